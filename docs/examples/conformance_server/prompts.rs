//! The suite's prompts.

use rmcp::ErrorData;
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult, Prompt, PromptArgument,
    PromptMessage, Role,
};
use serde_json::Value;

use crate::answers::PNG;
use crate::input_rounds;

fn prompt(name: &str, arguments: &[&str]) -> Prompt {
    let mut required = Vec::new();
    for argument in arguments {
        let argument = PromptArgument::new(*argument).with_description("An argument");
        required.push(argument.with_required(true));
    }
    Prompt::new(name, Some("A prompt of the suite"), Some(required))
}

/// Returns the prompts as they are after this number of changes.
pub(crate) fn list(changes: u32) -> Vec<Prompt> {
    let mut prompts = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt(input_rounds::PROMPT, &[]),
    ];
    if changes > 0 {
        let description = format!("Change {changes}");
        prompts.push(Prompt::new("test_changing_prompt", Some(description), None));
    }
    prompts
}

fn user(text: &str) -> PromptMessage {
    PromptMessage::new_text(Role::User, text)
}

fn argument<'a>(request: &'a GetPromptRequestParams, name: &str) -> Result<&'a str, ErrorData> {
    if let Some(arguments) = &request.arguments
        && let Some(Value::String(value)) = arguments.get(name)
    {
        return Ok(value);
    }
    Err(ErrorData::invalid_params(
        format!("the argument {name} is missing"),
        None,
    ))
}

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let messages = match request.name.as_str() {
        "test_simple_prompt" | "test_changing_prompt" => {
            vec![user("This is a simple prompt for testing.")]
        }
        "test_prompt_with_arguments" => {
            let one = argument(request, "arg1")?;
            let two = argument(request, "arg2")?;
            vec![user(&format!(
                "Prompt with arguments: arg1='{one}', arg2='{two}'"
            ))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource =
                ContentBlock::embedded_text(argument(request, "resourceUri")?, "Embedded resource content.");
            vec![
                PromptMessage::new(Role::User, resource),
                user("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => vec![
            PromptMessage::new(Role::User, ContentBlock::image(PNG, "image/png")),
            user("Please analyze the image above."),
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
