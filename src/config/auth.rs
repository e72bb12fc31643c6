//! The border: credentials, rules, TLS of the listener, quotas and the audit.

use super::bounded::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The callers that are let in without credentials, with the role `anonymous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Anonymous {
    /// Those of this machine.
    #[default]
    Loopback,
    /// None.
    None,
    /// All.
    All,
}

table! { AuthConfig = "Credentials and rights. Without tokens, issuers, certificates and rules, callers that \
                       are let in may do everything.";
    /// The callers that are let in without credentials, with the role `anonymous`. A listener beyond loopback
    /// starts only with credentials or with `all`.
    anonymous: Anonymous = Anonymous::default();
    /// The address of the MCP endpoint as clients know it, which tokens of issuers must be meant for.
    resource: Option<String> = None, "Checked::<OrNone<HttpUrl>>";
    /// Scopes that a client asks for first.
    scopes: Vec<String> = Vec::new(), "Checked::<List<Scope, 0, 64>>";
    /// Difference of clocks that times of tokens are allowed.
    leeway: Duration = Duration::from_millis(30 * SECOND), "Checked::<Time<0, { 5 * MINUTE }>>";
    /// Wrong tokens of one address in a minute, at once or spread over it. At the limit: its requests with
    /// unknown tokens get 429 until there is room for another one.
    failures_max: usize = 30, "Checked::<Count<1, 1_000_000>>";
    /// Principals with static tokens.
    token: Vec<AuthTokenConfig> = Vec::new();
    /// Authorization servers whose tokens are accepted.
    issuer: Vec<IssuerConfig> = Vec::new();
    /// Principals with client certificates.
    certificate: Vec<CertificateConfig> = Vec::new();
    /// Rules that give rights. What no rule gives is refused.
    rule: Vec<RuleConfig> = Vec::new();
}

#[cfg(feature = "service")]
impl AuthConfig {
    /// Returns true if there are callers with credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        !(self.token.is_empty() && self.issuer.is_empty() && self.certificate.is_empty())
    }
}

table! { AuthTokenConfig = "A principal with static tokens.";
    /// Its name: `token:NAME` in the audit; each is used once.
    name: String = String::new(), "Checked::<Name>";
    /// File with a line `sha256:HEX`, or `sha256:HEX not-after=TIME`, per token. A relative path starts at
    /// the folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    file: PathBuf = PathBuf::new(), "Checked::<File>";
    /// Its roles.
    roles: Vec<String> = Vec::new(), "Checked::<List<Role, 0, 64>>";
}

table! { IssuerConfig = "An authorization server (OAuth 2.1).";
    /// Its issuer identifier, which the tokens must name exactly.
    url: String = String::new(), "Checked::<HttpUrl>";
    /// Its keys: an address or a file; empty finds them by the metadata of the issuer. A relative path starts
    /// at the folder of the configuration file.
    #[schemars(extend("x-path" = "read, or an address"))]
    jwks: String = String::new(), "Checked::<Text<0, 4096>>";
    /// Signature algorithms that its tokens may have.
    algorithms: Vec<String> = ["ES256", "RS256", "EdDSA"].map(String::from).to_vec(),
        "Checked::<List<Algorithm, 1, 16>>";
    /// The type that its tokens must name (RFC 9068); empty accepts any.
    typ: String = String::from("at+jwt"), "Checked::<Text<0, 64>>";
    /// The claim that names the principal.
    subject_claim: String = String::from("sub"), "Checked::<Field>";
    /// The claim with the roles, a list or a text with blanks between them.
    roles_claim: String = String::from("roles"), "Checked::<Field>";
    /// File with lines `client_id = ID` and `client_secret = SECRET`, with which its opaque tokens are looked
    /// up (RFC 7662); empty for JSON Web Tokens alone. One issuer may have it. A relative path starts at the
    /// folder of the configuration file.
    #[schemars(extend("x-path" = "read"))]
    introspect: Option<PathBuf> = None, "Checked::<OrNone<File>>";
    /// Time after which a token that was looked up and is in use is looked up again, at the latest: its
    /// revocation takes effect within it.
    introspect_age: Duration = Duration::from_secs(30), "Checked::<Time<SECOND, { 5 * MINUTE }>>";
}

table! { CertificateConfig = "A principal with a client certificate.";
    /// The first URI or DNS name of the certificate.
    name: String = String::new(), "Checked::<Text<1, 1024>>";
    /// Its roles.
    roles: Vec<String> = Vec::new(), "Checked::<List<Role, 0, 64>>";
}

table! { RuleConfig = "A rule that gives rights.";
    /// Roles of the principals that it applies to; empty for every principal with credentials.
    roles: Vec<String> = Vec::new(), "Checked::<List<Role, 0, 64>>";
    /// Rights that it gives: list, read, subscribe, publish, call, admin, metrics.
    may: Vec<String> = Vec::new(), "Checked::<List<RightName, 1, 7>>";
    /// Objects of the rights: URIs, beginnings of URIs, templates, `tool:NAME`, `prompt:NAME`, with `*` at
    /// the end for all that begin so; `*` alone stands for every object. Rules for admin and metrics alone
    /// need none.
    r#match: Vec<String> = Vec::new(), "Checked::<List<ObjectPattern, 0, 64>>";
    /// Scope that a token needs besides; empty for none.
    scope: Option<String> = None, "Checked::<OrNone<Scope>>";
}

table! { AuditConfig = "The audit: JSON lines of refusals, publishes, calls and administrative acts.";
    /// The file; empty for none. A relative path starts at the folder of the configuration file.
    #[schemars(extend("x-path" = "written"))]
    file: Option<PathBuf> = None, "Checked::<OrNone<File>>";
}
