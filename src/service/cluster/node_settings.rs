//! The settings of this node's engine, from the configuration and the files that it names.

use std::path::Path;

use anyhow::Context as _;

use crate::cluster::{ClusterLogin, ClusterSettings};
use crate::config::ClusterConfig;
use crate::small_file;

/// The largest file with a password or a token in bytes.
const SECRET_BYTES_MAX: u64 = 4 << 10;

/// The longest name of a node.
const NODE_LEN_MAX: usize = 63;

/// Reads the settings of the engine.
pub(super) fn settings(config: &ClusterConfig) -> anyhow::Result<ClusterSettings> {
    let login = match (
        &config.credentials,
        &config.user,
        &config.password_file,
        &config.token_file,
    ) {
        (Some(file), ..) => ClusterLogin::File(file.clone()),
        (None, Some(name), Some(file), _) => ClusterLogin::User {
            name: name.clone(),
            password: secret("cluster.password_file", file)?,
        },
        (None, _, _, Some(file)) => ClusterLogin::Token(secret("cluster.token_file", file)?),
        _ => ClusterLogin::None,
    };
    Ok(ClusterSettings {
        urls: config.urls.clone(),
        namespace: config.namespace.clone(),
        replicas: config.replicas,
        node: name_of(config),
        login,
        tls_ca: config.tls_ca.clone(),
        tls_cert: config.tls_cert.clone(),
        tls_key: config.tls_key.clone(),
        in_flight_max: config.in_flight_max,
        publish_timeout: config.publish_timeout,
        heartbeat: config.heartbeat,
        leave_after: config.leave_after,
        inline_bytes_max: config.inline_bytes_max,
        max_bytes: config.max_bytes,
        sweep_after: config.sweep_after,
        require_durable: config.require_durable,
        monitoring: config.monitoring.clone(),
    })
}

/// Returns the name of this node.
pub(super) fn name_of(config: &ClusterConfig) -> String {
    match &config.node {
        Some(node) => node.clone(),
        None => host_name(),
    }
}

/// Reads a secret, without the end of its line.
fn secret(key: &str, file: &Path) -> anyhow::Result<String> {
    let text = small_file::read_text(file, SECRET_BYTES_MAX)
        .with_context(|| format!("{key}: {} cannot be read", file.display()))?;
    // An editor ends the last line, which is no part of the secret.
    let secret = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(!secret.is_empty(), "{key}: {} is empty", file.display());
    Ok(secret.to_owned())
}

/// Returns the first part of the host name, as a name of a node.
fn host_name() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    node_name(&host.to_string_lossy())
}

/// Makes the name of a node of a host name.
fn node_name(host: &str) -> String {
    let first = host.split('.').next().unwrap_or_default();
    let mut name = String::new();
    // Names of consumers and subjects of NATS take no others.
    for c in first.chars().take(NODE_LEN_MAX) {
        name.push(if c.is_ascii_alphanumeric() { c } else { '-' });
    }
    match name.is_empty() {
        true => "node".to_owned(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_named_after_its_host() {
        assert_eq!(node_name("node-1.example.org"), "node-1");
        assert_eq!(node_name("my_host"), "my-host");
        assert_eq!(node_name(""), "node");
        assert_eq!(node_name(&"a".repeat(80)).len(), NODE_LEN_MAX);
    }

    #[test]
    fn secret_is_read_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hidden\r\n").unwrap();
        assert_eq!(secret("cluster.token_file", file.path()).unwrap(), "hidden");
        std::fs::write(file.path(), "\n").unwrap();
        let error = secret("cluster.token_file", file.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("cluster.token_file: ") && error.ends_with("is empty"),
            "{error}"
        );
        let missing = secret("cluster.token_file", Path::new("/no/such")).unwrap_err();
        assert!(missing.to_string().contains("/no/such"), "{missing}");
    }

    #[test]
    fn one_credential_becomes_the_login() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hidden").unwrap();
        let config = ClusterConfig {
            user: Some("ann".to_owned()),
            password_file: Some(file.path().to_owned()),
            node: Some("n".to_owned()),
            ..ClusterConfig::default()
        };
        let made = settings(&config).unwrap();
        assert!(
            matches!(made.login, ClusterLogin::User { name, password } if name == "ann" && password == "hidden")
        );
        assert_eq!(made.node, "n");
    }
}
