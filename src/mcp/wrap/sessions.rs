//! The sessions of wrapped servers over HTTP, in place of rmcp's own: each holds the handler of its client,
//! and a service of rmcp only while it needs one.

mod connection;
mod routes;
mod session;
mod table;

pub(super) use self::session::OpeningSession;
pub(super) use self::table::HandlerSessions;
