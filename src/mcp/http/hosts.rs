//! The hosts whose requests were let pass, so that rmcp's rule is asked once for each and not for every request.
//!
//! Owns: a few `Host` headers that passed, as they were written. Never: decides; what it does not know is asked of rmcp,
//! and so is every request with an `Origin`. The rule looks at these two headers alone, and its lists never change.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock};

use ::http::header::{HOST, ORIGIN};
use ::http::{HeaderMap, HeaderValue};

/// How many are remembered; with more in use, the newest are.
const HOSTS_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Hosts {
    passed: RwLock<VecDeque<HeaderValue>>,
}

/// What the rule goes by, where that is the host alone.
fn host(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(HOST).filter(|_| !headers.contains_key(ORIGIN))
}

impl Hosts {
    /// Whether a request with these headers is known to pass.
    pub(super) fn passed(&self, headers: &HeaderMap) -> bool {
        let passed = || self.passed.read().unwrap_or_else(PoisonError::into_inner);
        host(headers).is_some_and(|host| passed().contains(host))
    }

    /// A request with these headers passed.
    pub(super) fn remember(&self, headers: &HeaderMap) {
        let Some(host) = host(headers) else { return };
        let mut passed = self.passed.write().unwrap_or_else(PoisonError::into_inner);
        if passed.contains(host) {
            return;
        }
        if passed.len() >= HOSTS_MAX {
            passed.pop_front();
        }
        passed.push_back(host.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str) -> HeaderMap {
        HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())])
    }

    #[test]
    fn only_a_host_that_passed_without_an_origin_is_known() {
        let hosts = Hosts::default();
        let mut with_origin = headers("a:1");
        with_origin.insert(ORIGIN, HeaderValue::from_static("http://evil.example"));
        hosts.remember(&with_origin);
        hosts.remember(&HeaderMap::new());
        assert!(!hosts.passed(&headers("a:1")) && !hosts.passed(&HeaderMap::new()));
        hosts.remember(&headers("a:1"));
        assert!(hosts.passed(&headers("a:1")) && !hosts.passed(&headers("a:2")));
        assert!(!hosts.passed(&with_origin));
    }

    #[test]
    fn no_more_than_the_newest_are_kept() {
        let hosts = Hosts::default();
        for port in 0..100 {
            hosts.remember(&headers(&format!("a:{port}")));
        }
        assert_eq!(hosts.passed.read().unwrap().len(), HOSTS_MAX);
        assert!(hosts.passed(&headers("a:99")) && !hosts.passed(&headers("a:0")));
    }
}
