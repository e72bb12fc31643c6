//! A border that takes every request for one of the same principal, a reader, and the rule of that.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidings::auth::{Authenticate, Credentials, Principal, Unauthenticated};
use tidings::config::RuleConfig;

/// Takes every request for one of the reader, until its credential is taken back.
#[derive(Default)]
pub(crate) struct OnePrincipal {
    taken_back: AtomicU64,
}

impl OnePrincipal {
    /// Ends the credential.
    pub(crate) fn take_back(&self) {
        self.taken_back.fetch_add(1, Ordering::SeqCst);
    }
}

impl Authenticate for OnePrincipal {
    fn authenticate<'a>(&'a self, _: Credentials<'a>) -> BoxFuture<'a, Result<Principal, Unauthenticated>> {
        async { Ok(reader()) }.boxed()
    }

    fn is_current(&self, _: &Principal) -> bool {
        self.generation() == 0
    }

    fn generation(&self) -> u64 {
        self.taken_back.load(Ordering::SeqCst)
    }
}

pub(crate) fn reader() -> Principal {
    let roles = vec!["reader".to_owned()];
    Principal::builder("local:reader").roles(roles).build()
}

/// The rule of the reader, which sees these objects.
pub(crate) fn rules(objects: &[&str]) -> [RuleConfig; 1] {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    [RuleConfig {
        roles: owned(&["reader"]),
        may: owned(&["list", "read", "subscribe", "call"]),
        r#match: owned(objects),
        scope: None,
    }]
}
