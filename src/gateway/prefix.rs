//! The names and URIs of a server as clients see them where a gateway has several servers.
//!
//! Tools and prompts are `files__read`, resources and templates `files+file:///a`: `+` may stand in the
//! scheme of a URI, so the result is one, and the first `+` ends the prefix.

use std::borrow::Cow;

use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, Skill, SkillResources,
};
use sha2::{Digest, Sha256};

/// The characters of a name. The APIs of models refuse longer ones.
const NAME_MAX: usize = 64;
/// Those that are kept of a longer name, in front of `_` and its digest.
const KEPT: usize = 50;
const DIGEST_LEN: usize = NAME_MAX - KEPT - 1;

/// The digits of the digest (RFC 4648, in lower case).
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The prefix of the items of one server; none leaves them as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix(Option<String>);

impl Prefix {
    /// Makes the prefix of a name.
    pub(super) fn new(name: Option<String>) -> Prefix {
        Prefix(name)
    }

    /// Returns true if items are as the server has them.
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the name of a tool or prompt. A name that would be too long ends with a digest, so it is
    /// looked up and never taken apart.
    pub(super) fn item<'n>(&self, own: &'n str) -> Cow<'n, str> {
        // Byte by byte as the server has it, however long: hosts have taken such names before.
        let Some(prefix) = &self.0 else {
            return Cow::Borrowed(own);
        };
        let whole = format!("{prefix}__{own}");
        if whole.chars().count() <= NAME_MAX {
            return Cow::Owned(whole);
        }
        let kept: String = whole.chars().take(KEPT).collect();
        Cow::Owned(format!("{kept}_{}", short_digest(&whole)))
    }

    /// Returns true if a name may be one of this server's.
    pub(super) fn may_have_item(&self, shown: &str) -> bool {
        match &self.0 {
            Some(prefix) => matches!(shown.strip_prefix(&**prefix), Some(rest) if rest.starts_with("__")),
            None => true,
        }
    }

    /// Returns the URI of a resource, or the text of a template.
    pub(super) fn uri(&self, own: &str) -> String {
        match &self.0 {
            Some(prefix) => format!("{prefix}+{own}"),
            None => own.to_owned(),
        }
    }

    /// Returns the URI as the server has it; none if the URI has another prefix.
    pub(super) fn own_uri<'u>(&self, shown: &'u str) -> Option<&'u str> {
        match &self.0 {
            Some(prefix) => shown.strip_prefix(&**prefix)?.strip_prefix('+'),
            None => Some(shown),
        }
    }

    /// Returns true if there is a prefix, and the URI has it.
    pub(super) fn begins(&self, shown: &str) -> bool {
        !self.is_none() && self.own_uri(shown).is_some()
    }

    fn put_before(&self, uri: &mut String) {
        if let Some(prefix) = &self.0 {
            uri.insert(0, '+');
            uri.insert_str(0, prefix);
        }
    }

    /// Puts the prefix before the URIs of resources.
    pub(super) fn resources(&self, resources: &mut [Resource]) {
        for resource in resources {
            self.put_before(&mut resource.uri);
        }
    }

    /// Puts the prefix before the texts of templates.
    pub(super) fn templates(&self, templates: &mut [ResourceTemplate]) {
        for template in templates {
            self.put_before(&mut template.uri_template);
        }
    }

    /// Puts the prefix before the URIs of skills and of their files.
    pub(super) fn skills(&self, skills: &mut [Skill]) {
        for skill in skills {
            self.put_before(&mut skill.uri);
            if let SkillResources::Files(files) = &mut skill.resources {
                for file in files {
                    self.put_before(&mut file.uri);
                }
            }
        }
    }

    /// Puts the prefix before the URIs in the answer to a read.
    pub(super) fn read(&self, result: &mut ReadResourceResult) {
        for contents in &mut result.contents {
            self.contents(contents);
        }
    }

    /// Puts the prefix before the URIs in the result of a call.
    pub(super) fn call(&self, result: &mut CallToolResult) {
        for block in &mut result.content {
            self.block(block);
        }
    }

    /// Puts the prefix before the URIs in a prompt.
    pub(super) fn prompt(&self, result: &mut GetPromptResult) {
        for message in &mut result.messages {
            self.block(&mut message.content);
        }
    }

    fn block(&self, block: &mut ContentBlock) {
        match block {
            ContentBlock::Resource(embedded) => self.contents(&mut embedded.resource),
            ContentBlock::ResourceLink(link) => self.put_before(&mut link.uri),
            _ => {}
        }
    }

    fn contents(&self, contents: &mut ResourceContents) {
        if let ResourceContents::TextResourceContents { uri, .. }
        | ResourceContents::BlobResourceContents { uri, .. } = contents
        {
            self.put_before(uri);
        }
    }
}

/// Returns the first digits of the digest of a text.
fn short_digest(text: &str) -> String {
    // 65 bits of it, so that no two names of one gateway become the same by chance.
    let digest = Sha256::digest(text.as_bytes());
    let mut bits = digest
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut digits = String::with_capacity(DIGEST_LEN);
    for _ in 0..DIGEST_LEN {
        let digit = bits.by_ref().take(5).fold(0, |digit, bit| digit << 1 | bit);
        digits.push(char::from(BASE32[usize::from(digit)]));
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn files() -> Prefix {
        Prefix::new(Some("files".to_owned()))
    }

    #[test]
    fn names_and_uris_begin_with_the_prefix() {
        let prefix = files();
        assert_eq!(prefix.item("read"), "files__read");
        assert_eq!(prefix.uri("file:///a"), "files+file:///a");
        assert_eq!(prefix.own_uri("files+git+ssh://h/a"), Some("git+ssh://h/a"));
        assert_eq!(prefix.own_uri("files2+a://b"), None);
        assert!(prefix.may_have_item("files__read") && !prefix.may_have_item("files2__read"));
        let none = Prefix::new(None);
        assert_eq!(
            (none.item("read"), none.own_uri("a://b")),
            ("read".into(), Some("a://b"))
        );
    }

    #[test]
    fn long_name_ends_with_its_digest() {
        let own = "a".repeat(58);
        let shown = files().item(&own).into_owned();
        assert_eq!(shown.len(), NAME_MAX);
        assert!(shown.starts_with(&format!("files__{}_", "a".repeat(43))));
        assert_ne!(shown, files().item(&format!("{own}b")));
        assert_eq!(files().item(&"a".repeat(57)).len(), NAME_MAX);
    }

    #[test]
    fn every_uri_of_an_answer_gets_the_prefix() {
        let blocks = json!({ "content": [
            { "type": "text", "text": "file:///a" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "x" } },
        ] });
        let mut result: CallToolResult = serde_json::from_value(blocks).unwrap();
        files().call(&mut result);
        let shown = json!(result);
        assert_eq!(shown["content"][0]["text"], "file:///a");
        assert_eq!(shown["content"][1]["uri"], "files+file:///a");
        assert_eq!(shown["content"][2]["resource"]["uri"], "files+file:///a");
    }

    proptest! {
        #[test]
        fn uris_read_back(prefix in "[a-z][a-z0-9-]{0,15}", uri in "\\PC{0,40}") {
            let prefix = Prefix::new(Some(prefix));
            let shown = prefix.uri(&uri);
            prop_assert_eq!(prefix.own_uri(&shown), Some(&*uri));
        }

        #[test]
        fn no_name_is_longer_than_models_take(prefix in "[a-z][a-z0-9-]{0,15}", name in "\\PC{0,200}") {
            let prefix = Prefix::new(Some(prefix));
            prop_assert!(prefix.item(&name).chars().count() <= NAME_MAX);
        }
    }
}
