//! The border: the identity of a caller, and the rights that it has.
//!
//! A request becomes a [`Caller`] once, before its body is read. [`Authenticate`] turns its credentials into
//! a [`Principal`], [`Authorize`] judges each right that it uses, and a [`Border`] holds both. Without a
//! border every caller may do everything.

mod authenticate;
mod authorize;
mod border;
mod caller;
mod event_ids;
mod grant;
mod peer_certificate;
mod principal;
mod read;
mod right;
#[cfg(feature = "service")]
mod policy;
#[cfg(feature = "service")]
mod audit_file;
#[cfg(feature = "service")]
mod token_line;
#[cfg(feature = "service")]
mod tokens;
#[cfg(feature = "service")]
mod ring_provider;
#[cfg(feature = "service")]
mod discovery;
#[cfg(feature = "service")]
mod jwks;
#[cfg(feature = "service")]
mod issuer_keys;
#[cfg(feature = "service")]
mod jwt;
#[cfg(feature = "service")]
mod introspection_endpoint;
#[cfg(feature = "service")]
mod introspection;
#[cfg(feature = "service")]
mod issuers;
#[cfg(feature = "service")]
mod protected_resource;
#[cfg(feature = "service")]
mod configured;
#[cfg(feature = "fuzzing")]
mod fuzz_entrances;

#[cfg(feature = "service")]
pub use audit_file::AuditFile;
pub use authenticate::{Authenticate, Credentials, Unauthenticated};
pub use authorize::{Authorize, Verdict};
pub use border::{AuditEntry, Border, BorderRefusal, Challenge, RecordAudit};
pub use caller::{Caller, Denied, PeerAddress};
#[cfg(feature = "service")]
pub use configured::BorderFault;
#[cfg(feature = "service")]
pub(crate) use configured::{ConfiguredBorder, is_needed};
pub(crate) use event_ids::{EventId, EventIds};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzz_entrances::{read_token, read_token_lines};
pub(crate) use grant::Grant;
#[cfg(feature = "service")]
pub use introspection_endpoint::IntrospectionFault;
pub use peer_certificate::PeerCertificate;
#[cfg(feature = "tls")]
pub(crate) use peer_certificate::{Trust, end_of_list, expiry_of};
#[cfg(feature = "service")]
pub use policy::{InvalidRule, Policy};
pub use principal::{Principal, PrincipalBuilder, Revocable};
#[cfg(feature = "service")]
pub(crate) use protected_resource::ProtectedResource;
pub use right::{Object, Right};
#[cfg(feature = "service")]
pub use token_line::NewToken;
#[cfg(feature = "service")]
pub use tokens::TokenFault;
#[cfg(feature = "service")]
pub(crate) use tokens::Tokens;
