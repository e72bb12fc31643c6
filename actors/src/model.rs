//! The values that publishers, subscribers and actors exchange: names, versions, content, lists, errors and
//! limits.
//!
//! Nothing here imports a module outside this one, so every other module may use it without making a circle.

mod uri;
mod uri_map;
mod uri_template;
mod etag;
mod owner;
mod position;
mod clock;
mod digest;
mod line;
mod list;
mod list_query;
mod notice;
mod change;
mod filter;
mod resource;
mod template;
mod tool;
mod prompt;
mod call_context;
mod callback;
mod subscriber;
mod subscription_request;
mod told;
mod viewer;
mod allowance;
mod session_options;
mod end_reason;
mod trace;
mod error;
mod limits;

pub use allowance::SubscriptionAllowance;
pub use call_context::{CallContext, CallEvent, CallObserver, LogLevel};
pub(crate) use callback::run_callback;
pub use callback::{BoxFuture, CallbackError, Panicked, catch_panic};
pub use change::{Change, Condition, EtagCondition, EtagSet, ListOutcome, Outcome};
pub(crate) use change::{ListChange, MemberList};
pub use clock::HeldClock;
pub(crate) use clock::MonotonicMillis;
pub use digest::Digest;
pub use end_reason::EndReason;
pub use error::{Closed, OpenError, PublishError, ReadError, StartError, StoreError, SubscribeError};
pub use etag::{Etag, InvalidEtag};
pub use filter::{Filter, InvalidPattern, NoticeKind, PATTERNS_MAX, UriPattern};
pub use limits::Limits;
pub use line::{Line, LineState};
pub use list::{ListHash, ListKind};
pub use list_query::ListQuery;
pub use notice::{Cause, Notice};
pub use owner::{InvalidOwner, Owner};
pub use position::{InvalidPosition, Life, Lineage, Position};
pub use prompt::{Prompt, PromptArgument, PromptMessage, RenderPrompt, Role};
pub use resource::{Body, Content, Descriptor, ReadBody, Resource};
pub use session_options::SessionOptions;
pub(crate) use subscriber::PENDING_URIS_MAX;
pub use subscriber::{
    DelayReason, DeliveryStatus, EndedSubscriber, InvalidSubscriberId, Pending, Progress, SubscriberFilter,
    SubscriberId, SubscriberInfo, SubscriberKind, SubscriberPage, SubscriberState,
};
pub use subscription_request::SubscriptionRequest;
pub(crate) use subscription_request::SubscriptionRules;
pub use template::{ListTemplate, ReadTemplate, ResourceTemplate};
pub(crate) use told::ListStart;
pub use told::{ToldList, ToldResource, ToldState};
pub use tool::{Block, CallTool, InputSchema, Tool, ToolOutput, WithContext};
pub use trace::{SkipReason, SubscriberRef, Trace, TraceStep, TraceSubject};
pub use uri::{InvalidUri, ResourceUri};
pub(crate) use uri_map::{UriHashState, UriMap};
pub use uri_template::{InvalidUriTemplate, UriTemplate, Variables};
#[cfg(test)]
pub(crate) use viewer::testing as viewer_testing;
pub use viewer::{Audience, Standing, Viewer, WholeAudience};
