//! The rights of a subscriber, as far as the bus judges them: when it lists, when a subscription begins, and
//! when a notice is handed out.
//!
//! The bus knows neither credentials nor policies. It asks these traits, and it asks again when their
//! generation is another one.

use std::sync::Arc;
use std::time::SystemTime;

use super::uri::ResourceUri;

/// The validity of the credential behind a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is valid.
    Valid,
    /// It expired or was revoked. The streams of the subscriber end, and its pending entries wait for a
    /// stream with a valid one.
    Ended,
}

/// The part of the lists that subscribers with equal rights see.
///
/// The answers of one id never change: other rights are another audience. They are asked for on the threads
/// of the bus and must neither block nor call it.
pub trait Audience: Send + Sync + 'static {
    /// The id. Audiences of one id give the same answers.
    fn id(&self) -> u64;
    /// Returns true if lists show this resource.
    fn shows_resource(&self, uri: &ResourceUri) -> bool;
    /// Returns true if the list of templates shows the one with this text.
    fn shows_template(&self, uri_template: &str) -> bool;
    /// Returns true if the list of tools shows this one.
    fn shows_tool(&self, name: &str) -> bool;
    /// Returns true if the list of prompts shows this one.
    fn shows_prompt(&self, name: &str) -> bool;
}

/// The audience that sees everything, for viewers whose lists nothing is kept from. Its id is 0.
#[derive(Debug, Clone, Copy)]
pub struct WholeAudience;

impl Audience for WholeAudience {
    fn id(&self) -> u64 {
        0
    }

    fn shows_resource(&self, _: &ResourceUri) -> bool {
        true
    }

    fn shows_template(&self, _: &str) -> bool {
        true
    }

    fn shows_tool(&self, _: &str) -> bool {
        true
    }

    fn shows_prompt(&self, _: &str) -> bool {
        true
    }
}

/// The rights of one subscriber.
///
/// The answers are asked for on the threads of the bus, also while an outbox is locked, so they must neither
/// block nor call the bus. The answers have to change first and the generation after that;
/// [`Session::recheck`](crate::Session::recheck) or [`Bus::rights_changed`](crate::Bus::rights_changed) then
/// makes the bus look at once, and without them it looks when a stream takes its next entry.
pub trait Viewer: Send + Sync + 'static {
    /// The generation: another number after every change of an answer below, an expiry included.
    fn generation(&self) -> u64;
    /// Returns whether the credential is valid.
    fn standing(&self) -> Standing;
    /// Returns true if the subscriber may be told of changes of this resource. If not, the resource is to the
    /// subscriber as if it did not exist.
    fn may_be_told(&self, uri: &ResourceUri) -> bool;
    /// Returns true if the tools that it calls may read this resource and its etag for it. By default that is
    /// the right to be told.
    fn may_read(&self, uri: &ResourceUri) -> bool {
        self.may_be_told(uri)
    }
    /// Returns the time at which the credential ends by the clock; none if it does not. A call that waits for
    /// a change ends by then: a change that ended the wait later would tell of itself.
    fn expires(&self) -> Option<SystemTime> {
        None
    }
    /// Returns the audience that the subscriber belongs to.
    fn audience(&self) -> Arc<dyn Audience>;
}

impl std::fmt::Debug for dyn Audience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audience({})", self.id())
    }
}

impl std::fmt::Debug for dyn Viewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Viewer({:?})", self.standing())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A viewer and an audience whose answers a test sets.

    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// An audience that does not see the items whose names contain one of these texts.
    pub(crate) struct TestAudience(pub(crate) u64, pub(crate) &'static [&'static str]);

    impl TestAudience {
        fn shows(&self, name: &str) -> bool {
            !self.1.iter().any(|hidden| name.contains(hidden))
        }
    }

    impl Audience for TestAudience {
        fn id(&self) -> u64 {
            self.0
        }

        fn shows_resource(&self, uri: &ResourceUri) -> bool {
            self.shows(uri.as_str())
        }

        fn shows_template(&self, uri_template: &str) -> bool {
            self.shows(uri_template)
        }

        fn shows_tool(&self, name: &str) -> bool {
            self.shows(name)
        }

        fn shows_prompt(&self, name: &str) -> bool {
            self.shows(name)
        }
    }

    /// A viewer that may not be told of some URIs.
    #[derive(Default)]
    pub(crate) struct TestViewer {
        generation: AtomicU64,
        ended: AtomicBool,
        hidden: Mutex<BTreeSet<String>>,
        audience: Mutex<Option<Arc<dyn Audience>>>,
    }

    impl TestViewer {
        pub(crate) fn hide(&self, uris: impl IntoIterator<Item = String>) {
            *self.hidden.lock().unwrap_or_else(PoisonError::into_inner) = uris.into_iter().collect();
            self.generation.fetch_add(1, Ordering::SeqCst);
        }

        pub(crate) fn set_ended(&self, ended: bool) {
            self.ended.store(ended, Ordering::SeqCst);
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Viewer for TestViewer {
        fn generation(&self) -> u64 {
            self.generation.load(Ordering::SeqCst)
        }

        fn standing(&self) -> Standing {
            match self.ended.load(Ordering::SeqCst) {
                true => Standing::Ended,
                false => Standing::Valid,
            }
        }

        fn may_be_told(&self, uri: &ResourceUri) -> bool {
            let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
            !hidden.contains(uri.as_str())
        }

        fn audience(&self) -> Arc<dyn Audience> {
            let audience = self.audience.lock().unwrap_or_else(PoisonError::into_inner);
            audience.clone().unwrap_or_else(|| Arc::new(TestAudience(0, &[])))
        }
    }
}
