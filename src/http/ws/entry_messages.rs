//! The messages of the entries that a connection takes from its outbox.

use tokio_tungstenite::tungstenite::Message;

use super::message;
use crate::auth::{Caller, EventIds};
use crate::http::notice_body::NoticeBodies;
use crate::{ListKind, OutboxEntry, Position};

/// Makes the messages of entries.
pub(super) struct EntryMessages<'s> {
    /// The content of notices; none unless the client asks for it.
    pub(super) content: Option<&'s NoticeBodies>,
    pub(super) caller: &'s Caller,
    /// The form of the positions that the client gets.
    pub(super) ids: EventIds<'s>,
    /// Per list, true if the client wants its changes.
    pub(super) lists: [bool; ListKind::ALL.len()],
}

impl EntryMessages<'_> {
    /// Returns the message of an entry; none for a list that the client does not want.
    pub(super) fn message(&self, entry: &OutboxEntry, position: Position) -> Option<Message> {
        match (entry, self.content) {
            (OutboxEntry::Updated(notice), Some(content)) => Some(message::notice_with_content(
                notice,
                self.ids,
                (content, self.caller),
            )),
            (OutboxEntry::Updated(notice), None) => Some(message::notice(notice, self.ids)),
            (OutboxEntry::ListChanged(kind), _) => {
                let at = ListKind::ALL.iter().position(|other| other == kind)?;
                self.lists[at].then(|| message::list_changed(*kind, self.ids.of_place(position)))
            }
        }
    }
}
