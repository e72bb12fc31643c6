//! The rights of an open session or stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use tidings_actors::rights::{Audience, Standing, Viewer};
use tidings_actors::{ResourceUri, Session};

use super::authorize::Verdict;
use super::border::Border;
use super::caller::Caller;
use super::event_ids::EventIds;
use super::principal::Principal;
use super::right::{Object, Right};

/// The rights of an open session or stream: those of the principal that opened it, judged anew whenever they
/// may have changed.
#[derive(Debug)]
pub(crate) struct Grant {
    border: Arc<Border>,
    /// The principal, by the credential that it presented last.
    principal: RwLock<Principal>,
    /// The number of credentials that were presented, and of those that ended.
    changes: AtomicU64,
    /// Whether the principal may be told of every change, as the lowest bit, below the generation at which
    /// that was judged.
    told_all: AtomicU64,
}

impl Grant {
    /// Makes the grant of a session that `caller` opens; none if the service has no border.
    pub(crate) fn of(caller: &Caller) -> Option<Arc<Grant>> {
        let border = caller.border()?.clone();
        Some(Arc::new(Grant {
            border,
            principal: RwLock::new(caller.principal().clone()),
            changes: AtomicU64::new(0),
            told_all: AtomicU64::new(u64::MAX),
        }))
    }

    /// Returns the form of ids in what the subscriber is told now. Judged once for each generation of rights,
    /// since every frame asks.
    pub(crate) fn event_ids(&self) -> EventIds<'_> {
        let generation = Viewer::generation(self) << 1;
        let known = self.told_all.load(Ordering::Relaxed);
        let is_told_all = match known & !1 == generation {
            true => known & 1 == 1,
            false => {
                let is_told_all = self.border.may_be_told_all(&self.principal());
                // The generation from before the judgement: one that came meanwhile has it judged again.
                self.told_all
                    .store(generation | u64::from(is_told_all), Ordering::Relaxed);
                is_told_all
            }
        };
        self.border.event_ids(is_told_all)
    }

    /// Returns true if `caller` is the principal that opened the session.
    pub(crate) fn belongs_to(&self, caller: &Caller) -> bool {
        self.principal().id() == caller.principal().id()
    }

    /// Goes on with the credential that the caller presented. Returns true if it is another one.
    pub(crate) fn renew(&self, caller: &Caller) -> bool {
        let mut principal = self.principal.write().unwrap_or_else(PoisonError::into_inner);
        // A credential that was taken back and is good again is another one.
        if *principal == *caller.principal() && !principal.is_revoked() {
            return false;
        }
        *principal = caller.principal().clone();
        drop(principal);
        self.note_change();
        true
    }

    /// Returns the time at which the credential ends.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        self.principal().expires()
    }

    /// Has the rights judged anew, because the credential has ended.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Has the streams of `session` end when the credential does, unless a new one has come by then.
    pub(crate) fn end_streams_at_expiry(self: &Arc<Self>, session: &Arc<Session>) {
        let Some(expires) = self.expires() else {
            return;
        };
        let grant = Arc::downgrade(self);
        let session = Arc::downgrade(session);
        tokio::spawn(async move {
            // An expiry in the past is due at once.
            let rest = expires.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::time::sleep(rest).await;
            // A session that ended meanwhile is not kept by the timer.
            let (Some(grant), Some(session)) = (grant.upgrade(), session.upgrade()) else {
                return;
            };
            if grant.expires() == Some(expires) {
                grant.note_change();
                session.recheck();
            }
        });
    }

    fn principal(&self) -> Principal {
        self.principal
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn allows(&self, right: Right, uri: &ResourceUri) -> bool {
        let object = Object::Resource(uri.as_str());
        matches!(
            self.border.judge(&self.principal(), right, object),
            Verdict::Allowed(_)
        )
    }
}

impl Viewer for Grant {
    fn generation(&self) -> u64 {
        // Both only grow, so their sum changes with either.
        self.border
            .generation()
            .wrapping_add(self.changes.load(Ordering::Acquire))
    }

    fn standing(&self) -> Standing {
        match self.border.is_current(&self.principal()) {
            true => Standing::Valid,
            false => Standing::Ended,
        }
    }

    fn may_be_told(&self, uri: &ResourceUri) -> bool {
        self.allows(Right::Subscribe, uri)
    }

    fn may_read(&self, uri: &ResourceUri) -> bool {
        self.allows(Right::Read, uri)
    }

    fn expires(&self) -> Option<SystemTime> {
        Grant::expires(self)
    }

    fn audience(&self) -> Arc<dyn Audience> {
        self.border.audience(&self.principal())
    }
}
