//! The tools with a constant answer.

use rmcp::model::{CallToolResult, ContentBlock};

/// A red pixel, as base64.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQAY3Y2wAAAAAElFTkSuQmCC";

/// A wave file of no samples, as base64.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(crate) const NAMES: [&str; 8] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "json_schema_2020_12_tool",
    "test_custom_header",
];

/// Returns the answer of the tool of that name; none for a tool of another module.
pub(crate) fn answer(name: &str) -> Option<CallToolResult> {
    let text = ContentBlock::text;
    let blocks = match name {
        "test_simple_text" => vec![text("This is a simple text response for testing.")],
        "test_image_content" => vec![ContentBlock::image(PNG, "image/png")],
        "test_audio_content" => vec![ContentBlock::audio(WAV, "audio/wav")],
        "test_embedded_resource" => vec![embedded("test://embedded-resource")],
        "test_multiple_content_types" => vec![
            text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            embedded("test://mixed-content-resource"),
        ],
        "test_error_handling" => {
            let failure = text("This tool intentionally returns an error for testing");
            return Some(CallToolResult::error(vec![failure]));
        }
        "json_schema_2020_12_tool" | "test_custom_header" => vec![text("the arguments are accepted")],
        _ => return None,
    };
    Some(CallToolResult::success(blocks))
}

fn embedded(uri: &str) -> ContentBlock {
    ContentBlock::embedded_text(uri, "This is an embedded resource content.")
}
