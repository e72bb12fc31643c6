//! The names of the tools that a connection has listed, as far as their number is bounded.
//!
//! rmcp keeps the schema of each tool for as long as its connection lasts, so a server with other names in
//! each list would fill the memory. Its connection is ended instead, and made anew.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use rmcp::RoleClient;
use rmcp::model::ServerResult;
use rmcp::service::RxJsonRpcMessage;

/// Names of one connection: those of several lists of as many items as a list may have.
const NAMES_MAX: usize = 50_000;

/// The names of the tools that were listed on one connection, by their hashes.
#[derive(Default)]
pub(super) struct ToolNames {
    hashes: HashSet<u64>,
    random: RandomState,
}

impl ToolNames {
    /// Takes note of a message. Returns false for a list after which there are too many names.
    pub(super) fn note(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let RxJsonRpcMessage::<RoleClient>::Response(response) = message else {
            return true;
        };
        let ServerResult::ListToolsResult(list) = &response.result else {
            return true;
        };
        for tool in &list.tools {
            self.hashes.insert(self.random.hash_one(&tool.name));
            if self.hashes.len() > NAMES_MAX {
                tracing::warn!(
                    "the server behind the gateway has listed tools of more than {NAMES_MAX} names; it is connected \
                     to anew"
                );
                return false;
            }
        }
        true
    }
}
