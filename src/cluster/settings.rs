//! The settings of the shared log, and the checks that need no server.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;

use super::error::ClusterError;

/// The longest name of a namespace or a node, in bytes.
const NAME_MAX: usize = 64;

/// The numbers of copies that JetStream offers.
const REPLICAS: std::ops::RangeInclusive<usize> = 1..=5;

/// The addresses, the names and the limits of a log in NATS JetStream.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// The addresses of the servers, such as `nats://10.0.0.1:4222`. At least one; the others of the cluster
    /// are discovered.
    pub urls: Vec<String>,
    /// The name that keeps several logs of one NATS account apart: letters, digits and hyphens.
    pub namespace: String,
    /// The copies of each record, when this node creates the log: 1, 3 or 5.
    pub replicas: usize,
    /// The name of this node in the list of consumers; empty for `node`.
    pub node: String,
    /// The credentials for all servers.
    pub login: ClusterLogin,
    /// The certificates of the authorities that sign the servers' certificates, as PEM. Makes TLS mandatory.
    pub tls_ca: Option<PathBuf>,
    /// The certificate of this node, as PEM; needs `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// The private key of this node, as PEM.
    pub tls_key: Option<PathBuf>,
    /// The proposals that wait for an acknowledgement at a time. More wait for their turn.
    pub in_flight_max: usize,
    /// The longest time for which a proposal is tried; then its outcome is reported as unknown.
    pub publish_timeout: Duration,
    /// The interval at which an idle server says that it is there. After two that are missing, the log is
    /// read anew.
    pub heartbeat: Duration,
    /// The time after which a server that accepts no proposal is left for another one. The next ones get
    /// half a second, until one accepts any.
    pub leave_after: Duration,
    /// The largest body in bytes that stands in its record; larger ones are kept apart.
    pub inline_bytes_max: usize,
    /// The bytes that the records may take, and as many the bodies, when this node creates the log. Beyond
    /// it, proposals are refused.
    pub max_bytes: u64,
    /// The time after which a body that is kept apart is removed when no record has named it since.
    pub sweep_after: Duration,
    /// True to refuse a log that could lose an answered change with the power of all servers, or with one
    /// server.
    pub require_durable: bool,
    /// The addresses at which the servers report their state, such as `http://10.0.0.1:8222`. From there
    /// alone it is known whether a server writes through to its disk.
    pub monitoring: Vec<String>,
}

impl Default for ClusterSettings {
    fn default() -> ClusterSettings {
        ClusterSettings {
            urls: Vec::new(),
            namespace: "default".to_owned(),
            replicas: 3,
            node: String::new(),
            login: ClusterLogin::None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            in_flight_max: 256,
            publish_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_millis(500),
            leave_after: Duration::from_secs(3),
            inline_bytes_max: 64 << 10,
            max_bytes: 1 << 30,
            sweep_after: Duration::from_secs(600),
            require_durable: false,
            monitoring: Vec::new(),
        }
    }
}

/// The credentials of a node. `Debug` shows no secret.
#[derive(Clone, Default)]
pub enum ClusterLogin {
    /// None.
    #[default]
    None,
    /// A credentials file of NATS: a JWT and the seed of its key.
    File(PathBuf),
    /// A name and a password.
    User {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl fmt::Debug for ClusterLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterLogin::None => f.write_str("None"),
            ClusterLogin::File(path) => write!(f, "File({})", path.display()),
            ClusterLogin::User { name, .. } => write!(f, "User({name:?}, …)"),
            ClusterLogin::Token(_) => f.write_str("Token(…)"),
        }
    }
}

impl ClusterSettings {
    /// Checks everything that can be checked without a server.
    pub(super) fn check(&self) -> Result<(), ClusterError> {
        if self.urls.is_empty() {
            return Err(ClusterError::NoUrls);
        }
        self.server_addresses()?;
        check_name("namespace", &self.namespace)?;
        if !self.node.is_empty() {
            check_name("node", &self.node)?;
        }
        if !REPLICAS.contains(&self.replicas) {
            return Err(ClusterError::Replicas(self.replicas));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(ClusterError::HalfCertificate);
        }
        let login = match &self.login {
            ClusterLogin::File(path) => Some(path),
            ClusterLogin::None | ClusterLogin::User { .. } | ClusterLogin::Token(_) => None,
        };
        for path in [
            login,
            self.tls_ca.as_ref(),
            self.tls_cert.as_ref(),
            self.tls_key.as_ref(),
        ] {
            if let Some(path) = path
                && let Err(error) = std::fs::File::open(path)
            {
                let path = path.clone();
                return Err(ClusterError::File { path, error });
            }
        }
        Ok(())
    }

    /// Returns the addresses of the servers.
    pub(super) fn server_addresses(&self) -> Result<Vec<ServerAddr>, ClusterError> {
        let mut addresses = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            match url.parse::<ServerAddr>() {
                Ok(address) if !address.is_websocket() => addresses.push(address),
                Ok(_) => return Err(ClusterError::url(url, "WebSocket is not supported")),
                Err(error) => return Err(ClusterError::url(url, &error.to_string())),
            }
        }
        Ok(addresses)
    }

    /// The name of the node in the list of consumers.
    pub(super) fn node_name(&self) -> &str {
        match self.node.as_str() {
            "" => "node",
            node => node,
        }
    }
}

/// Checks that `name` can stand in the names and subjects of NATS.
fn check_name(key: &'static str, name: &str) -> Result<(), ClusterError> {
    // An underscore is left out because it separates the parts of the streams' names.
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if name.is_empty() || name.len() > NAME_MAX || !is_plain {
        let name = name.chars().take(NAME_MAX).collect();
        return Err(ClusterError::Name { key, name });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ClusterSettings {
        ClusterSettings {
            urls: vec!["nats://127.0.0.1:4222".to_owned()],
            ..ClusterSettings::default()
        }
    }

    #[test]
    fn invalid_settings_are_named() {
        type Change = fn(&mut ClusterSettings);
        let cases: [(Change, &str); 8] = [
            (|s| s.urls.clear(), "no address"),
            (|s| s.urls.push("::".to_owned()), "\"::\""),
            (|s| s.urls.push("ws://a".to_owned()), "WebSocket"),
            (|s| s.namespace = "a_b".to_owned(), "\"a_b\""),
            (|s| s.node = "a.b".to_owned(), "node"),
            (|s| s.replicas = 6, "6 copies"),
            (|s| s.tls_cert = Some("a.pem".into()), "go together"),
            (
                |s| s.login = ClusterLogin::File("no/such.creds".into()),
                "no/such.creds",
            ),
        ];
        assert!(settings().check().is_ok());
        for (change, part) in cases {
            let mut changed = settings();
            change(&mut changed);
            let error = changed.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let user = ClusterLogin::User {
            name: "ann".to_owned(),
            password: "hidden".to_owned(),
        };
        for login in [user, ClusterLogin::Token("hidden".to_owned())] {
            assert!(!format!("{login:?}").contains("hidden"));
        }
    }

    #[test]
    fn password_in_an_address_is_not_shown() {
        let mut changed = settings();
        changed.urls = vec!["nats://ann:hidden@[".to_owned()];
        let error = changed.check().unwrap_err().to_string();
        assert!(!error.contains("hidden"), "{error}");
    }
}
