//! Services whose reader loses its right, each by one cause and with one kind of credential.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::SanType;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::{RULES, Ruled, WAITS, Way};
use crate::http::auth::issuer::{Issuer, RESOURCE};
use crate::http::tls::Secure;
use crate::http::tls::authority::{Authority, tunnel};
use crate::mcp::server::Server;

/// The rules after a reload that leaves the reader its last resources.
const LEFT: &str = "match = ['note://other', 'note://last']";
/// The issuer of signed tokens. It is not called: its keys are in a file.
const ISSUER: &str = "https://login.example";
/// The time for which the service believes the answer about an opaque token.
const ANSWER_AGE: Duration = Duration::from_secs(2);
/// The time for which a credential lives whose end is waited for: longer than it takes to open the streams.
const LIFE: Duration = Duration::from_secs(12);
/// The serial number of the reader's certificate.
const READER_SERIAL: u64 = 7;

/// The cause by which the right of the reader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// New rules: the credential stays good.
    Reload,
    /// The time in the line of a static token.
    TokenEnds,
    /// The line of a static token is removed.
    TokenRemoved,
    /// The `exp` of a JSON Web Token.
    SignedTokenEnds,
    /// The issuer calls an opaque token inactive.
    OpaqueTokenRevoked,
    /// The time in a client certificate.
    CertificateEnds,
    /// A client certificate is on a new revocation list.
    CertificateRevoked,
    /// The revocation list of an authority ends without a next one.
    ListEnds,
}

impl Cause {
    pub(super) const ALL: [Cause; 8] = [
        Cause::Reload,
        Cause::TokenEnds,
        Cause::TokenRemoved,
        Cause::SignedTokenEnds,
        Cause::OpaqueTokenRevoked,
        Cause::CertificateEnds,
        Cause::CertificateRevoked,
        Cause::ListEnds,
    ];

    /// Returns true if the reader keeps its streams, and what else it may be told.
    pub(super) fn keeps_credential(self) -> bool {
        self == Cause::Reload
    }
}

/// A service with a reader and operators.
pub(super) struct Scene {
    cause: Cause,
    fixture: Fixture,
    /// The end of what ends by the clock.
    end: SystemTime,
    pub(super) reader: Way,
    pub(super) ops: Way,
}

enum Fixture {
    Tokens(Ruled),
    /// Kept running.
    Signed {
        _server: Server,
    },
    Opaque {
        issuer: Issuer,
        _server: Server,
    },
    Certificates {
        secure: Box<Secure>,
        readers: Box<Authority>,
        operators: Box<Authority>,
    },
}

impl Scene {
    pub(super) async fn start(cause: Cause) -> Scene {
        let end = in_whole_seconds(SystemTime::now() + LIFE);
        match cause {
            Cause::Reload | Cause::TokenRemoved => Scene::with_tokens(cause, "", end).await,
            Cause::TokenEnds => {
                let until = format!(" not-after={}", rfc3339(end));
                Scene::with_tokens(cause, &until, end).await
            }
            Cause::SignedTokenEnds => Scene::with_signed_tokens(cause, end).await,
            Cause::OpaqueTokenRevoked => Scene::with_opaque_tokens(cause, end).await,
            Cause::CertificateEnds | Cause::CertificateRevoked | Cause::ListEnds => {
                Scene::with_certificates(cause, end).await
            }
        }
    }

    async fn with_tokens(cause: Cause, until: &str, end: SystemTime) -> Scene {
        let ruled = Ruled::start_until(until).await;
        Scene {
            cause,
            reader: ruled.way(&ruled.reader),
            ops: ruled.way(&ruled.ops),
            fixture: Fixture::Tokens(ruled),
            end,
        }
    }

    async fn with_signed_tokens(cause: Cause, end: SystemTime) -> Scene {
        let signer = Signer::new();
        let config = format!(
            "[auth]\nanonymous = 'none'\nresource = '{RESOURCE}'\nleeway = '0s'\n\
             [[auth.issuer]]\nurl = '{ISSUER}'\njwks = 'keys.json'\n{RULES}{WAITS}"
        );
        let keys = signer.keys().to_string();
        let server = Server::with_files(&config, &[("keys.json", &keys)]).await;
        let way = |role: &str, end| Way {
            address: server.address,
            token: Some(signer.sign(role, end)),
        };
        Scene {
            cause,
            reader: way("reader", end),
            ops: way("ops", end + LIFE * 100),
            fixture: Fixture::Signed { _server: server },
            end,
        }
    }

    async fn with_opaque_tokens(cause: Cause, end: SystemTime) -> Scene {
        let issuer = Issuer::start().await;
        for role in ["reader", "ops"] {
            issuer.grant_role(role, role, "read");
        }
        let url = issuer.url();
        let config = format!(
            "[auth]\nanonymous = 'none'\nresource = '{RESOURCE}'\n\
             [[auth.issuer]]\nurl = '{url}'\nintrospect = 'client'\nintrospect_age = '{}s'\n{RULES}{WAITS}",
            ANSWER_AGE.as_secs()
        );
        let client = "client_id = the-service\nclient_secret = s3cr3t\n";
        let server = Server::with_files(&config, &[("client", client)]).await;
        let way = |token: &str| Way {
            address: server.address,
            token: Some(token.to_owned()),
        };
        Scene {
            cause,
            reader: way("reader"),
            ops: way("ops"),
            fixture: Fixture::Opaque {
                issuer,
                _server: server,
            },
            end,
        }
    }

    async fn with_certificates(cause: Cause, end: SystemTime) -> Scene {
        let readers = Authority::named("readers");
        let operators = Authority::named("operators");
        let config = format!(
            "client_ca = 'FOLDER/clients.pem'\nclient_crl = 'FOLDER/revoked.pem'\n\
             [auth]\nanonymous = 'none'\n\
             [[auth.certificate]]\nname = 'spiffe://reader'\nroles = ['reader']\n\
             [[auth.certificate]]\nname = 'spiffe://ops'\nroles = ['ops']\n{RULES}{WAITS}"
        );
        let secure = Secure::with(&config, |folder, _| {
            let list = match cause {
                Cause::ListEnds => readers.revoke_until(&[], end),
                _ => readers.revoke(&[], 2999),
            };
            let authorities = readers.pem() + &operators.pem();
            fs::write(folder.join("clients.pem"), authorities).unwrap();
            fs::write(folder.join("revoked.pem"), list + &operators.revoke(&[], 2999)).unwrap();
        })
        .await;
        let named = |name: &str| SanType::URI(name.try_into().unwrap());
        let until = (cause == Cause::CertificateEnds).then_some(end);
        let reader = readers.issue_until(&[named("spiffe://reader")], READER_SERIAL, until);
        let ops = operators.issue(&[named("spiffe://ops")], 8);
        let mut ways = Vec::new();
        for own in [&reader, &ops] {
            let address = tunnel(secure.authority.client(Some(own)), secure.address).await;
            ways.push(Way { address, token: None });
        }
        let [reader, ops] = ways.try_into().unwrap();
        Scene {
            cause,
            reader,
            ops,
            fixture: Fixture::Certificates {
                secure: Box::new(secure),
                readers: Box::new(readers),
                operators: Box::new(operators),
            },
            end,
        }
    }

    /// Ends the right of the reader; returns when it has none.
    pub(super) fn end_right(&self) -> Instant {
        match (&self.fixture, self.cause) {
            (Fixture::Tokens(ruled), Cause::Reload) => {
                let rules = RULES.replace("match = ['note://*']", LEFT);
                ruled.replace_rules(&(rules + WAITS));
                Instant::now()
            }
            (Fixture::Tokens(ruled), Cause::TokenRemoved) => {
                fs::write(ruled.server.folder().join("reader"), "# none\n").unwrap();
                Instant::now()
            }
            (Fixture::Opaque { issuer, .. }, _) => {
                issuer.revoke("reader");
                // The service believes the answer from before for so long.
                Instant::now() + ANSWER_AGE
            }
            (
                Fixture::Certificates {
                    secure,
                    readers,
                    operators,
                },
                Cause::CertificateRevoked,
            ) => {
                let lists = readers.revoke(&[READER_SERIAL], 2999) + &operators.revoke(&[], 2999);
                fs::write(secure.folder.path().join("revoked.pem"), lists).unwrap();
                secure.hang_up();
                Instant::now()
            }
            (Fixture::Tokens(_) | Fixture::Signed { .. } | Fixture::Certificates { .. }, _) => {
                let rest = self.end.duration_since(SystemTime::now()).unwrap_or_default();
                Instant::now() + rest
            }
        }
    }
}

/// The key of an issuer of signed tokens.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Signer(key.unwrap())
    }

    /// Returns its public half as a set of keys (RFC 7517).
    fn keys(&self) -> Value {
        let point = self.0.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "a", "use": "sig", "x": x, "y": y }] })
    }

    /// Makes a token for a principal with this role, which ends at `end`.
    fn sign(&self, role: &str, end: SystemTime) -> String {
        let exp = end.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "a" });
        let claims = json!({
            "iss": ISSUER, "aud": RESOURCE, "sub": role, "client_id": "c", "exp": exp, "roles": [role],
        });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

/// Returns a time as tokens and certificates can have it.
fn in_whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).unwrap().as_secs())
}

/// Returns a time as RFC 3339 has it.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let date = Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%FT%TZ"])
        .output()
        .unwrap();
    String::from_utf8(date.stdout).unwrap().trim_end().to_owned()
}
