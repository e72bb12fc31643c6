//! The suite's prompts.

use rmcp::ErrorData;
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult, Prompt, PromptArgument,
    PromptMessage, Role,
};
use serde_json::Value;

use crate::answers::PNG;
use crate::rounds;

/// The prompts, after so many changes.
pub(crate) fn list(changes: u32) -> Vec<Prompt> {
    let argument = |name: &str| {
        PromptArgument::new(name)
            .with_description("An argument")
            .with_required(true)
    };
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|name| argument(name)).collect();
        Prompt::new(name, Some("A prompt of the suite"), Some(arguments))
    };
    let mut prompts = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt(rounds::PROMPT, &[]),
    ];
    if changes > 0 {
        let description = format!("Change {changes}");
        prompts.push(Prompt::new("test_changing_prompt", Some(description), None));
    }
    prompts
}

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let value = request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name));
        let missing = || ErrorData::invalid_params(format!("the argument {name} is missing"), None);
        value.and_then(Value::as_str).ok_or_else(missing)
    };
    let user = |text: String| PromptMessage::new_text(Role::User, text);
    let messages = match request.name.as_str() {
        "test_simple_prompt" | "test_changing_prompt" => {
            vec![user("This is a simple prompt for testing.".into())]
        }
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1")?, argument("arg2")?);
            vec![user(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource =
                ContentBlock::embedded_text(argument("resourceUri")?, "Embedded resource content.");
            vec![
                PromptMessage::new(Role::User, resource),
                user("Please process the embedded resource above.".into()),
            ]
        }
        "test_prompt_with_image" => vec![
            PromptMessage::new(Role::User, ContentBlock::image(PNG, "image/png")),
            user("Please analyze the image above.".into()),
        ],
        other => {
            return Err(ErrorData::invalid_params(
                format!("Unknown prompt: {other}"),
                None,
            ));
        }
    };
    Ok(GetPromptResult::new(messages).into())
}
