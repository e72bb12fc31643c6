//! What a gateway with several servers says of itself.

use std::collections::BTreeMap;

use rmcp::model::{InitializeResult, ProtocolVersion, ServerCapabilities};

use super::capabilities::gateway_name;

/// Returns the name of the gateway with the capabilities of all its servers, and their instructions under a
/// heading each.
pub(super) fn merged_info(infos: Vec<InitializeResult>, labels: Vec<&str>) -> InitializeResult {
    let mut capabilities = ServerCapabilities::default();
    let mut instructions = String::new();
    for (info, label) in infos.into_iter().zip(labels) {
        add(&mut capabilities, info.capabilities);
        if let Some(text) = info.instructions {
            instructions += &format!("# {label}\n\n{}\n\n", text.trim());
        }
    }
    let mut merged = InitializeResult::new(capabilities);
    merged.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    merged.server_info = gateway_name();
    merged.instructions = (!instructions.is_empty()).then(|| instructions.trim_end().to_owned());
    merged
}

/// Adds the capabilities of one server: each is there if some server has it.
fn add(all: &mut ServerCapabilities, one: ServerCapabilities) {
    // With the settings of the first server that has one: clients ask whether it is there, seldom how.
    all.tools = all.tools.take().or(one.tools);
    all.prompts = all.prompts.take().or(one.prompts);
    all.resources = all.resources.take().or(one.resources);
    all.logging = all.logging.take().or(one.logging);
    all.completions = all.completions.take().or(one.completions);
    for (name, value) in one.extensions.unwrap_or_default() {
        let extensions = all.extensions.get_or_insert_with(BTreeMap::new);
        extensions.entry(name).or_insert(value);
    }
}
