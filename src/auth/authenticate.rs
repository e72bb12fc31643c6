//! The port for authentication.

use std::net::IpAddr;

use futures_util::future::BoxFuture;
use http::{Extensions, HeaderMap};

use super::principal::Principal;

/// The head of a request, as far as credentials may stand in it.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// The token of the header `Authorization: Bearer`, if there is one. It is well formed: RFC 6750, section
    /// 2.1.
    pub bearer: Option<&'a str>,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The values that the server put beside the request, such as the client's certificate.
    pub extensions: &'a Extensions,
    /// The address of the peer, if the server tells it.
    pub address: Option<IpAddr>,
}

/// The reason for which a caller has no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unauthenticated {
    /// There are no credentials, and requests without them are not let in.
    #[error("this service needs credentials; send them as Authorization: Bearer TOKEN")]
    Missing,
    /// The credentials are unknown, expired, revoked or not for this service. Which of them is not told.
    #[error("the credentials are not valid here; get new ones")]
    Invalid,
    /// The credentials cannot be checked now, for example because their issuer does not answer.
    #[error("the credentials cannot be checked now; try again")]
    Unavailable,
    /// The address of the caller has sent too many wrong credentials, so these were not checked.
    #[error("too many wrong credentials came from this address (auth.failures_max); try again later")]
    TooMany {
        /// Seconds after which credentials are checked again.
        retry_after: u32,
    },
}

/// Turns the credentials of a request into a principal. An error refuses the request.
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the principal of a request, before its body is read.
    ///
    /// # Errors
    /// [`Unauthenticated`].
    fn authenticate<'a>(
        &'a self,
        credentials: Credentials<'a>,
    ) -> BoxFuture<'a, Result<Principal, Unauthenticated>>;

    /// Returns false for a principal whose credential was revoked since, so that its open streams end. Its
    /// expiry is judged elsewhere.
    fn is_current(&self, principal: &Principal) -> bool {
        let _ = principal;
        true
    }

    /// A number that grows whenever [`is_current`](Self::is_current) may answer otherwise.
    fn generation(&self) -> u64 {
        0
    }
}
