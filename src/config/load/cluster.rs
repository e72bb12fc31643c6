//! The values of `[cluster]` that must agree.

use super::Draft;
use crate::config::Config;

/// Whether this program has the engine.
const HAS_NATS: bool = cfg!(feature = "nats");

impl Draft<'_> {
    /// Checks that the engine can be used, and that no other part claims its work.
    pub(super) fn check_cluster(&mut self, config: &Config) {
        let cluster = &config.cluster;
        self.check_cluster_credentials(config);
        if !cluster.is_on() {
            if !cluster.urls.is_empty() {
                let text = "cluster.urls is set, but cluster.engine is not: set cluster.engine = \"nats\", or \
                            remove cluster.urls";
                self.note_disagreement(&["cluster.urls", "cluster.engine"], text);
            }
            return;
        }
        self.check_engine(HAS_NATS);
        if cluster.urls.is_empty() {
            let text = "cluster.engine is set, but cluster.urls is empty: set cluster.urls to the addresses of the \
                        engine's servers, such as [\"nats://broker:4222\"]";
            self.note_disagreement(&["cluster.engine", "cluster.urls"], text);
        }
        if config.store.dir.is_some() {
            let text = "cluster.engine and store.dir (or --data) are both set, but the engine keeps the changes: remove \
                        one; `tidings cluster import DIR` takes the content of a store into a cluster";
            self.note_disagreement(&["cluster.engine", "store.dir"], text);
        }
        if cluster.require_durable && cluster.replicas < 3 {
            let text = format!(
                "cluster.require_durable is true, but cluster.replicas is {}, so a change can be lost with one disk: \
                 set cluster.replicas = 3",
                cluster.replicas
            );
            self.note_disagreement(&["cluster.require_durable", "cluster.replicas"], &text);
        }
        if cluster.require_durable && cluster.monitoring.is_empty() {
            let text = "cluster.require_durable is true, but cluster.monitoring is empty, so it cannot be known: set it to \
                        the addresses of the servers' monitoring, such as [\"http://broker:8222\"]";
            self.note_disagreement(&["cluster.require_durable", "cluster.monitoring"], text);
        }
    }

    /// Checks that the program has the engine.
    fn check_engine(&mut self, has_nats: bool) {
        if !has_nats {
            let text = "cluster.engine is \"nats\", but this program was built without the feature nats: build it with \
                        --features nats, or remove cluster.engine";
            self.note_disagreement(&["cluster.engine"], text);
        }
    }

    /// Checks that a node presents one credential, and no part of one.
    fn check_cluster_credentials(&mut self, config: &Config) {
        let cluster = &config.cluster;
        let user = cluster.user.is_some();
        let password = cluster.password_file.is_some();
        let certificate = cluster.tls_cert.is_some();
        for (key, is_set, needed, has_needed) in [
            ("cluster.user", user, "cluster.password_file", password),
            ("cluster.password_file", password, "cluster.user", user),
            (
                "cluster.tls_cert",
                certificate,
                "cluster.tls_key",
                cluster.tls_key.is_some(),
            ),
            (
                "cluster.tls_key",
                cluster.tls_key.is_some(),
                "cluster.tls_cert",
                certificate,
            ),
        ] {
            if is_set && !has_needed {
                let text = format!("{key} is set, but {needed} is not: set {needed} too, or remove {key}");
                self.note_disagreement(&[key, needed], &text);
            }
        }
        let named = [
            ("cluster.credentials", cluster.credentials.is_some()),
            ("cluster.user", user),
            ("cluster.token_file", cluster.token_file.is_some()),
        ];
        let given: Vec<_> = named.iter().filter(|(_, is_set)| *is_set).collect();
        if let [(first, _), (second, _), ..] = given[..] {
            let text =
                format!("{first} and {second} are both set, but a node presents one credential: remove one");
            self.note_disagreement(&[first, second], &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{from_text, refusal};
    use super::*;
    use crate::config::{ClusterConfig, ClusterRead, ClusterSessions};
    use std::path::Path;

    const HEAD: &str = "[cluster]\nengine = 'nats'\nurls = ['nats://a:4222', 'tls://b']\n";

    #[test]
    fn cluster_is_off_by_default() {
        let config = from_text("").unwrap().cluster;
        assert_eq!(config, ClusterConfig::default());
        assert!(!config.is_on());
        assert_eq!(config.sessions, ClusterSessions::Resume);
        assert!(from_text("cluster.engine = ''").is_ok());
    }

    #[test]
    fn cluster_is_read_and_printed() {
        let text = format!(
            "{HEAD}namespace = 'My-name1'\nnode = 'n-1'\nsessions = 'sticky'\nread = 'latest'\nmax_bytes = '16MiB'\n"
        );
        let config = from_text(&text).unwrap();
        assert!(config.cluster.is_on());
        assert_eq!(config.cluster.urls, ["nats://a:4222", "tls://b"]);
        assert_eq!(config.cluster.sessions, ClusterSessions::Sticky);
        assert_eq!(config.cluster.read, ClusterRead::Latest);
        assert_eq!(from_text(&config.to_toml()).unwrap(), config);
    }

    #[test]
    fn engine_and_store_exclude_each_other() {
        let refused = refusal(&format!("{HEAD}[store]\ndir = 'kept'\n"));
        assert!(
            refused.starts_with("cluster.engine and store.dir (or --data) are both set"),
            "{refused}"
        );
    }

    #[test]
    fn engine_and_urls_need_each_other() {
        assert!(
            refusal("cluster.engine = 'nats'")
                .starts_with("cluster.engine is set, but cluster.urls is empty")
        );
        let refused = refusal("cluster.urls = ['nats://a']");
        assert!(
            refused.starts_with("cluster.urls is set, but cluster.engine is not"),
            "{refused}"
        );
    }

    #[test]
    fn program_without_the_engine_refuses_it() {
        let mut draft = Draft::new(Path::new("tidings.toml"), "");
        draft.check_engine(false);
        let text = &draft.mistakes[0].text;
        assert!(text.contains("built without the feature nats"), "{text}");
    }

    #[test]
    fn wrong_values_of_the_cluster_are_refused() {
        for wrong in [
            "engine = 'redis'",
            "urls = ['http://a']",
            "urls = ['nats://user:secret@a']",
            "urls = ['nats://a/b']",
            "urls = ['nats://']",
            "namespace = ''",
            "namespace = 'a.b'",
            "namespace = 'a_b'",
            "namespace = 'é'",
            "namespace = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
            "node = 'a b'",
            "replicas = 0",
            "replicas = 6",
            "heartbeat = '0s'",
        ] {
            let refused = refusal(&format!("[cluster]\n{wrong}\n"));
            assert!(refused.starts_with("invalid value "), "{wrong}: {refused}");
        }
    }

    #[test]
    fn node_presents_one_whole_credential() {
        for (text, beginning) in [
            (
                "user = 'a'",
                "cluster.user is set, but cluster.password_file is not",
            ),
            (
                "tls_key = 'a'",
                "cluster.tls_key is set, but cluster.tls_cert is not",
            ),
            (
                "token_file = 'a'\ncredentials = 'b'",
                "cluster.credentials and cluster.token_file are both set",
            ),
        ] {
            let refused = refusal(&format!("{HEAD}{text}\n"));
            assert!(refused.starts_with(beginning), "{refused}");
        }
        let whole = format!("{HEAD}user = 'a'\npassword_file = 'b'\n");
        assert!(from_text(&whole).is_ok(), "{}", refusal(&whole));
    }

    #[test]
    fn durability_is_required_with_a_way_to_know() {
        let refused = refusal(&format!("{HEAD}require_durable = true\nreplicas = 1\n"));
        assert_eq!(refused.lines().count(), 2, "{refused}");
        let text = format!("{HEAD}require_durable = true\nmonitoring = ['http://a:8222']\n");
        assert!(from_text(&text).is_ok(), "{}", refusal(&text));
    }
}
