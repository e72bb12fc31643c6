//! Looks at lists that are not those of the watcher, when the server announces that they changed.
//!
//! A call may change the tools of its session, which no other connection sees.

use std::sync::{Arc, Weak};
use std::time::Duration;

use rmcp::model::{
    PromptListChangedNotification, RequestMetaObject, ServerNotification, ToolListChangedNotification,
};

use super::change_notices::{ChangeNotices, GATHER_TIME};
use super::client_lists::{read_prompts, read_tools};
use super::connection::{ConnectionEnd, UpstreamConnection};
use super::distinct_lists::DistinctLists;
use super::lists;
use super::upstream::Upstream;
use crate::ListKind;
use crate::mcp::ClientLine;

/// The shortest time between two looks, however many announcements a server sends.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The clients that are told of a change.
pub(super) enum Audience {
    /// The client whose connection it is.
    Client(ClientLine),
    /// All clients: no one knows those of one set of capabilities.
    All,
}

/// Watches over the lists of one connection until it ends.
pub(super) struct ListsWatch {
    upstream: Arc<Upstream>,
    lists: Arc<DistinctLists>,
    /// Weak: the connection ends with the session of its client.
    connection: Weak<UpstreamConnection>,
    lost: ConnectionEnd,
    notices: Arc<ChangeNotices>,
    audience: Audience,
}

/// Makes the method that looks at one list, and tells of a change.
macro_rules! watched_list {
    ($($look:ident: $list:ident, $kind:ident, $read:ident, $note:ident, $has_other:ident, $notice:ident;)+) => {
        $(
            async fn $look(&self, connection: &Arc<UpstreamConnection>) {
                // Clients that were shown no list have nothing to renew.
                let Some(before) = self.lists.known.$list() else { return };
                let Ok(mut now) = $read(connection, &RequestMetaObject::default()).await else {
                    return;
                };
                let changes = self.lists.known.changes();
                lists::$note(&self.upstream, &self.lists.known, &mut now);
                if self.lists.known.changes() == changes {
                    return;
                }
                // The watcher may have been told at the same moment, so it has not looked yet.
                if let Err(error) = lists::$list(&self.upstream).await {
                    tracing::debug!(%error, "the list of all clients is not known");
                }
                if self.lists.$has_other(&before, &self.upstream.lists) {
                    let notice = ServerNotification::$notice($notice::default());
                    self.tell(ListKind::$kind, notice).await;
                }
            }
        )+
    };
}

impl ListsWatch {
    /// Begins to watch over the lists of a connection that was made for them.
    pub(super) fn begin(
        upstream: &Arc<Upstream>,
        lists: &Arc<DistinctLists>,
        connection: &Arc<UpstreamConnection>,
        notices: Arc<ChangeNotices>,
        audience: Audience,
    ) {
        let watch = ListsWatch {
            upstream: upstream.clone(),
            lists: lists.clone(),
            connection: Arc::downgrade(connection),
            lost: connection.lost().clone(),
            notices,
            audience,
        };
        tokio::spawn(watch.run());
    }

    async fn run(self) {
        loop {
            tokio::select! {
                () = self.notices.arrived() => {}
                () = self.lost.wait() => return,
            }
            tokio::time::sleep(GATHER_TIME).await;
            let noticed = self.notices.take();
            let Some(connection) = self.connection.upgrade() else {
                return;
            };
            if noticed.lists {
                self.look_at_tools(&connection).await;
                self.look_at_prompts(&connection).await;
                drop(connection);
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
    }

    watched_list! {
        look_at_tools: tools, Tools, read_tools, note_tools, has_other_tools, ToolListChangedNotification;
        look_at_prompts: prompts, Prompts, read_prompts, note_prompts, has_other_prompts,
            PromptListChangedNotification;
    }

    async fn tell(&self, kind: ListKind, notice: ServerNotification) {
        match &self.audience {
            Audience::Client(client) => client.tell(notice).await,
            Audience::All => self.upstream.note_changed_view(kind),
        }
    }
}
