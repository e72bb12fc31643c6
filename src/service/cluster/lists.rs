//! The hashes of the lists that are code of this node, by which nodes see that they differ.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::cluster::NodeLists;
use crate::{Bus, Closed};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The items that are asked for at once.
const PAGE_LEN: usize = 100;

/// The bytes of a hash that are shown.
const HASH_BYTES: usize = 8;

/// Follows the lists until the bus stops.
pub(super) fn follow(bus: &Bus) -> watch::Receiver<NodeLists> {
    let (told, lists) = watch::channel(NodeLists::default());
    let bus = bus.downgrade();
    tokio::spawn(async move {
        while !told.is_closed() {
            let Ok(bus) = bus.upgrade() else { return };
            let Ok(lists) = hashes(&bus).await else { return };
            told.send_replace(lists);
            // The handle would keep the bus running.
            drop(bus);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    lists
}

async fn hashes(bus: &Bus) -> Result<NodeLists, Closed> {
    let mut tools = Vec::new();
    let mut after = None;
    loop {
        let page = bus.tools(after, PAGE_LEN).await?;
        tools.extend(page.items.iter().map(|tool| tool.item()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut prompts = Vec::new();
    let mut after = None;
    loop {
        let page = bus.prompts(after, PAGE_LEN).await?;
        prompts.extend(page.items.iter().map(|prompt| prompt.item()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut templates = Vec::new();
    for template in bus.templates().await? {
        templates.push(json!([
            template.uri_template().as_str(),
            template.program_name(),
            template.human_title(),
            template.human_description(),
            template.body_media_type(),
        ]));
    }
    Ok(NodeLists {
        tools: hash(&tools),
        prompts: hash(&prompts),
        templates: hash(&templates),
    })
}

/// Returns the hash of a list, whose order says nothing.
fn hash(items: &[Value]) -> String {
    let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
    // Items without an order must not seem to differ.
    texts.sort_unstable();
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    let mut shown = String::new();
    for byte in &digest.finalize()[..HASH_BYTES] {
        shown.push_str(&format!("{byte:02x}"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tool, ToolOutput};

    fn tool(name: &str, description: &str) -> Tool {
        Tool::new(name, |_| async { Ok(ToolOutput::text("x")) }).description(description)
    }

    #[tokio::test]
    async fn hashes_tell_lists_apart() {
        let bus = Bus::builder().start().unwrap();
        let empty = hashes(&bus).await.unwrap();
        for n in 0..250 {
            bus.add_tool(tool(&format!("t{n}"), "x")).await.unwrap();
        }
        let many = hashes(&bus).await.unwrap();
        assert_eq!(empty.differing(&many), ["tools"]);
        bus.replace_tools((0..250).rev().map(|n| tool(&format!("t{n}"), "x")).collect())
            .await
            .unwrap();
        assert_eq!(hashes(&bus).await.unwrap(), many);
        bus.add_tool(tool("t249", "y")).await.unwrap();
        assert_ne!(hashes(&bus).await.unwrap(), many);
    }
}
