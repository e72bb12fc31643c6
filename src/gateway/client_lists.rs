//! The tools and prompts that one client is shown: those of its own connection once it has one, else those of
//! all clients with its capabilities.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::*;
use rmcp::service::{RequestContext, ServiceError};

use super::capabilities;
use super::connection::UpstreamConnection;
use super::distinct_lists::DistinctLists;
use super::known_lists::KnownLists;
use super::lists::{self, Page};
use super::options::Isolation;
use super::own_speaker::OwnSpeaker;
use super::server::{ListSource, UpstreamServer};
use super::speakers::ClientKey;
use super::views::ListView;

type Context = RequestContext<RoleServer>;

/// The connection over which the lists of a client are read, and the `_meta` of the requests.
struct ListRoad {
    connection: Arc<UpstreamConnection>,
    meta: RequestMetaObject,
}

/// The place where the lists of a client are kept.
enum ListOwner {
    Own(Arc<OwnSpeaker>),
    /// Those of a set of capabilities, and the connection of calls that may have changed them.
    View(Arc<ListView>, Option<Arc<UpstreamConnection>>),
}

impl ListOwner {
    fn lists(&self) -> &DistinctLists {
        match self {
            ListOwner::Own(own) => &own.lists,
            ListOwner::View(view, _) => &view.lists,
        }
    }
}

/// Makes the method that returns a list as the client is shown it.
macro_rules! client_list {
    ($($name:ident: $item:ty = $read:ident, $note:ident, $note_read:ident;)+) => {
        $(
            /// Returns all items of the list that the client is shown.
            ///
            /// # Errors
            /// The server refused or has too many; or it is not there, and its list is not known.
            pub(super) async fn $name(&self, context: &Context) -> Result<Vec<$item>, ErrorData> {
                let upstream = self.upstream();
                if self.source() == ListSource::Known {
                    return Ok(lists::known_or_none(upstream.lists.$name()));
                }
                let Some(owner) = self.list_owner(context) else {
                    return self.tell_changes(&upstream.lists, lists::$name(upstream)).await;
                };
                if let Some(road) = self.list_road(&owner, context).await {
                    match $read(&road.connection, &road.meta).await {
                        Ok(mut items) => {
                            let shown = owner.lists();
                            let noted = async { lists::$note(upstream, &shown.known, &mut items) };
                            self.tell_changes(&shown.known, noted).await;
                            shown.$note_read(&upstream.lists);
                            return Ok(items);
                        }
                        Err(error) => {
                            tracing::debug!(upstream = upstream.label(), %error, "a list for a client could not be read");
                        }
                    }
                }
                match owner.lists().known.$name() {
                    Some(known) => Ok(known.to_vec()),
                    None => lists::$name(upstream).await,
                }
            }
        )+
    };
}

impl UpstreamServer {
    client_list! {
        tools: Tool = read_tools, note_tools, note_read_tools;
        prompts: Prompt = read_prompts, note_prompts, note_read_prompts;
    }

    /// Has the watcher look at the lists if a client is shown a change, of which others may not know yet.
    pub(super) async fn tell_changes<T>(&self, lists: &KnownLists, shown: impl Future<Output = T>) -> T {
        let before = lists.changes();
        let shown = shown.await;
        if lists.changes() != before {
            self.upstream().lists_due.notify_one();
        }
        shown
    }

    /// Returns the place of the client's lists; none if they are those of the watcher.
    fn list_owner(&self, context: &Context) -> Option<ListOwner> {
        let upstream = self.upstream();
        match upstream.options().isolation {
            // The watcher is the connection of the calls, too.
            Isolation::Shared | Isolation::Sole => return None,
            Isolation::Auto | Isolation::Client => {}
        }
        if let Some(own) = self.own()
            && own.opened_now().is_some()
        {
            return Some(ListOwner::Own(own.clone()));
        }
        let leased = self.leased_connection(context);
        let capabilities = context.client_capabilities().unwrap_or_default();
        let view = upstream.view(capabilities, leased.is_some())?;
        Some(ListOwner::View(view, leased))
    }

    /// Takes note of a connection that was made for the client, whose lists are those of the client from here
    /// on.
    pub(super) fn begin_own_lists(
        &self,
        own: &OwnSpeaker,
        connection: &Arc<UpstreamConnection>,
        context: &Context,
    ) {
        let upstream = self.upstream();
        let capabilities = context.client_capabilities().unwrap_or_default();
        let view = upstream.views.known(&capabilities);
        let shown = match &view {
            Some(view) => &view.lists.known,
            None => &upstream.lists,
        };
        own.lists.begin_with(shown, &upstream.lists);
        own.note_open(connection);
    }

    /// Returns the way to the client's lists, if there is one now.
    async fn list_road(&self, owner: &ListOwner, context: &Context) -> Option<ListRoad> {
        // A server that is down is answered for: another start of it would be as vain.
        let watcher = self.upstream().connected_now()?;
        let connection = match owner {
            ListOwner::Own(own) => own.opened_now()?,
            ListOwner::View(_, Some(leased)) => leased.clone(),
            // The client comes with each request, so the connection need not be another one.
            ListOwner::View(..) if watcher.is_stateless() => watcher,
            ListOwner::View(view, None) => view.connection(self.upstream()).await?,
        };
        let meta = capabilities::meta_for(context, connection.is_stateless());
        Some(ListRoad { connection, meta })
    }

    /// Returns the connection that the next call of a client without a session would have to itself, if it is
    /// there. Its last call may have changed the lists.
    fn leased_connection(&self, context: &Context) -> Option<Arc<UpstreamConnection>> {
        let watcher = self.upstream().connected_now()?;
        match self.leases(&watcher, context) {
            true => self.upstream().speakers.idle_connection(&ClientKey::of(context)),
            false => None,
        }
    }
}

/// Makes the function that reads all pages of a list over a connection.
macro_rules! read_list {
    ($($name:ident: $item:ty = $request:ident, $result:ident.$items:ident;)+) => {
        $(
            pub(super) async fn $name(
                connection: &Arc<UpstreamConnection>,
                meta: &RequestMetaObject,
            ) -> Result<Vec<$item>, ErrorData> {
                lists::distinct_pages(async |page: Page| {
                    let mut request = $request::default();
                    request.params = page;
                    let request = ClientRequest::$request(request);
                    let call = connection.begin(request, meta.clone(), lists::LIST_TIMEOUT).await?;
                    match call.answer().await? {
                        ServerResult::$result(page) => Ok((page.$items, page.next_cursor)),
                        _ => Err(ServiceError::UnexpectedResponse),
                    }
                })
                .await
            }
        )+
    };
}

read_list! {
    read_tools: Tool = ListToolsRequest, ListToolsResult.tools;
    read_prompts: Prompt = ListPromptsRequest, ListPromptsResult.prompts;
}
