//! The caller of a request that was let in.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Extensions;
use tidings_actors::rights::{Audience, Viewer};

use super::authorize::Verdict;
use super::border::Border;
#[cfg(feature = "service")]
use super::event_ids::EventIds;
use super::grant::Grant;
use super::principal::Principal;
use super::right::{Object, Right};

/// The time for which a request has the rights of a credential that was good when it was let in. A token
/// that ends between the two would otherwise have its request answered as if the object did not exist,
/// instead of a challenge.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// The address that a request's connection comes from. The server that carries the connection puts it into
/// the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// Returns the address under which a peer is counted. One machine has a whole /64 of IPv6, and IPv4
    /// addresses may be written as IPv6 ones.
    pub(crate) fn counted(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                // The lower half is chosen by the machine itself, which could take a new one for each
                // request.
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
        }
    }
}

/// The refusal of a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The caller has no right to the object, which to it is as if it did not exist.
    Absent,
    /// A token with this scope, too, would have the right.
    NeedsScope(String),
}

/// The caller of a request that was let in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Principal,
    address: Option<PeerAddress>,
    border: Option<Arc<Border>>,
    /// The number of the request in the audit.
    request: u64,
    /// The time at which the request was let in.
    admitted: SystemTime,
}

impl Caller {
    /// Returns the caller of a request that was let in.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Caller> {
        extensions.get()
    }

    /// Makes the caller of a service without a border, which may do everything.
    pub(crate) fn unlimited(address: Option<PeerAddress>) -> Caller {
        Caller {
            principal: Principal::local(),
            address,
            border: None,
            request: 0,
            admitted: SystemTime::UNIX_EPOCH,
        }
    }

    /// Makes the caller of a request that passed `border`.
    pub(super) fn passed(
        border: Arc<Border>,
        principal: Principal,
        address: Option<PeerAddress>,
        request: u64,
        admitted: SystemTime,
    ) -> Caller {
        Caller {
            principal,
            address,
            border: Some(border),
            request,
            admitted,
        }
    }

    /// Returns the same caller for another request of its connection, with a number of its own in the audit.
    pub(crate) fn next_request(&self) -> Caller {
        let request = match &self.border {
            Some(border) => border.next_request(),
            None => self.request,
        };
        Caller {
            request,
            admitted: SystemTime::now(),
            ..self.clone()
        }
    }

    /// Its identity.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The border that it passed; none if the service has none.
    pub(crate) fn border(&self) -> Option<&Arc<Border>> {
        self.border.as_ref()
    }

    /// The number of its request, for the audit; 0 without a border.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    /// The address of its connection; none when the server does not tell it.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        Some(self.address?.0)
    }

    /// Returns the address under which limits per caller count; none when the server does not tell it.
    pub(crate) fn counted(&self) -> Option<IpAddr> {
        Some(self.address?.counted())
    }

    /// Judges a right that the request uses, and tells the audit.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn may(&self, right: Right, object: Object<'_>) -> Result<(), Denied> {
        let Some(border) = &self.border else {
            return Ok(());
        };
        let verdict = self.judge(border, right, object);
        // Told before the verdict takes effect, so that no refusal and no use is missing from the audit.
        border.audit(self, right, object, &verdict);
        match verdict {
            Verdict::Allowed(_) => Ok(()),
            Verdict::NeedsScope(scope) => Err(Denied::NeedsScope(scope)),
            // Not a refusal of its own, by which a caller could find out that the object exists.
            Verdict::Denied => Err(Denied::Absent),
        }
    }

    /// Judges a right by the credential as it was when the request was let in; after [`REQUEST_TIME`], as it
    /// is.
    fn judge(&self, border: &Border, right: Right, object: Object<'_>) -> Verdict {
        let now = SystemTime::now();
        let time = match now.duration_since(self.admitted) {
            Ok(age) if age <= REQUEST_TIME => self.admitted,
            _ => now,
        };
        border.judge_at(&self.principal, right, object, time)
    }

    /// Judges the right to get a prompt. A rule may give either of the two rights: a prompt is content, and
    /// getting it runs code.
    pub(crate) fn may_get_prompt(&self, name: &str) -> bool {
        let object = Object::Prompt(name);
        self.sees(Right::Call, object) || self.may(Right::Read, object).is_ok()
    }

    /// Judges the right to call a tool, for what an earlier call of it has left behind. The audit was told of
    /// that call, so it is told of a refusal alone.
    pub(crate) fn may_still_call(&self, tool: &str) -> bool {
        let object = Object::Tool(tool);
        self.sees(Right::Call, object) || self.may(Right::Call, object).is_ok()
    }

    /// Returns the scope that a token of the caller lacks for a right that it could have otherwise, and tells
    /// the audit of that refusal. Other verdicts are left to the part that answers the request.
    pub(crate) fn lacks_scope(&self, right: Right, object: Object<'_>) -> Option<String> {
        let border = self.border.as_ref()?;
        let verdict = self.judge(border, right, object);
        if matches!(verdict, Verdict::NeedsScope(_)) {
            border.audit(self, right, object, &verdict);
        }
        match verdict {
            Verdict::NeedsScope(scope) => Some(scope),
            Verdict::Allowed(_) | Verdict::Denied => None,
        }
    }

    /// Returns the part of the lists that the caller sees; none if it sees everything.
    pub(crate) fn audience(&self) -> Option<Arc<dyn Audience>> {
        Some(self.border.as_ref()?.audience(&self.principal))
    }

    /// Returns the rights of the caller for a session or a call; none if it has all.
    pub(crate) fn viewer(&self) -> Option<Arc<dyn Viewer>> {
        let grant: Arc<dyn Viewer> = Grant::of(self)?;
        Some(grant)
    }

    /// Returns the form of ids in what the caller is told now.
    #[cfg(feature = "service")]
    pub(crate) fn event_ids(&self) -> EventIds<'_> {
        match &self.border {
            Some(border) => border.event_ids(border.may_be_told_all(&self.principal)),
            None => EventIds::plain(),
        }
    }

    /// Judges a right of something that the caller did not name, such as an item of a list. The audit is not
    /// told: to leave an item out refuses no request.
    pub(crate) fn sees(&self, right: Right, object: Object<'_>) -> bool {
        let Some(border) = &self.border else {
            return true;
        };
        matches!(self.judge(border, right, object), Verdict::Allowed(_))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::auth::{Authenticate, Credentials, Policy, Unauthenticated};
    use crate::config::RuleConfig;

    const OBJECT: Object<'_> = Object::Resource("test:///a");

    struct NoCredentials;

    impl Authenticate for NoCredentials {
        fn authenticate<'a>(
            &'a self,
            _: Credentials<'a>,
        ) -> BoxFuture<'a, Result<Principal, Unauthenticated>> {
            async { Err(Unauthenticated::Missing) }.boxed()
        }
    }

    /// Makes a reader that was let in so many seconds ago, with a credential that ended so many seconds ago.
    fn reader(admitted: u64, ended: u64) -> Caller {
        let now = SystemTime::now();
        let rule = RuleConfig {
            roles: vec!["reader".into()],
            may: vec!["read".into()],
            r#match: vec!["*".into()],
            scope: None,
        };
        let policy = Policy::new(&[rule]).unwrap();
        let border = Arc::new(Border::new(Arc::new(NoCredentials), Arc::new(policy)));
        let principal = Principal::builder("a")
            .roles(vec!["reader".into()])
            .expires(Some(now - Duration::from_secs(ended)))
            .build();
        Caller::passed(border, principal, None, 1, now - Duration::from_secs(admitted))
    }

    #[test]
    fn credential_that_ends_meanwhile_serves_a_request() {
        let judged = |caller: Caller| caller.may(Right::Read, OBJECT);
        assert_eq!(judged(reader(2, 1)), Ok(()));
        assert_eq!(
            judged(reader(1, 2)),
            Err(Denied::Absent),
            "ended before the request"
        );
        assert_eq!(
            judged(reader(60, 1)),
            Err(Denied::Absent),
            "a request that is none any more"
        );
        // The next request of a connection is judged anew.
        assert_eq!(judged(reader(2, 1).next_request()), Err(Denied::Absent));
    }
}
