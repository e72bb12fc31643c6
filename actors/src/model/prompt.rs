//! Prompts: named texts with arguments. A prompt is rendered in the task that serves the request.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::callback::{BoxFuture, CallbackError, run_callback};
use super::digest::Digest;
use super::tool::{Block, object_of};

/// The speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// One message of a rendered prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// The speaker.
    pub role: Role,
    /// The content.
    pub block: Block,
}

impl PromptMessage {
    /// Creates a text message of the user.
    pub fn user(text: impl Into<String>) -> PromptMessage {
        PromptMessage {
            role: Role::User,
            block: Block::Text(text.into()),
        }
    }

    /// Creates a text message of the model.
    pub fn assistant(text: impl Into<String>) -> PromptMessage {
        PromptMessage {
            role: Role::Assistant,
            block: Block::Text(text.into()),
        }
    }
}

/// One argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// The description for people.
    pub description: Option<String>,
    /// True if the prompt cannot be rendered without it.
    pub required: bool,
}

impl PromptArgument {
    fn item(&self) -> Value {
        object_of([
            ("name", Some(json!(self.name))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("required", Some(json!(self.required))),
        ])
    }
}

/// The callback that renders a prompt.
pub trait RenderPrompt: Send + Sync + 'static {
    /// Renders the prompt. All required arguments are present. The text of an error is sent to the client.
    fn render(&self, arguments: Map<String, Value>) -> BoxFuture<Result<Vec<PromptMessage>, CallbackError>>;
}

impl<F, R> RenderPrompt for F
where
    F: Fn(Map<String, Value>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<PromptMessage>, CallbackError>> + Send + 'static,
{
    fn render(&self, arguments: Map<String, Value>) -> BoxFuture<Result<Vec<PromptMessage>, CallbackError>> {
        Box::pin(self(arguments))
    }
}

/// A prompt that can be registered on the bus.
///
/// ```
/// use serde_json::{Map, Value};
/// use tidings_actors::{Prompt, PromptMessage};
/// let review = Prompt::new("review", |arguments: Map<String, Value>| async move {
///     let page = match arguments.get("page") {
///         Some(Value::String(page)) => page,
///         _ => "/",
///     };
///     Ok(vec![PromptMessage::user(format!("Review the page {page}"))])
/// })
/// .argument("page", "which page", true);
/// assert_eq!(review.name(), "review");
/// ```
#[derive(Clone)]
pub struct Prompt {
    name: String,
    title: Option<String>,
    description: Option<String>,
    arguments: Vec<PromptArgument>,
    handler: Arc<dyn RenderPrompt>,
}

impl Prompt {
    /// Creates a prompt without arguments.
    pub fn new(name: impl Into<String>, handler: impl RenderPrompt) -> Prompt {
        Prompt {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            handler: Arc::new(handler),
        }
    }

    /// Sets the name shown to people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Prompt {
        self.title = Some(title.into());
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Prompt {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        required: bool,
    ) -> Prompt {
        let description = Some(description.into());
        self.arguments.push(PromptArgument {
            name: name.into(),
            description,
            required,
        });
        self
    }

    /// Replaces all arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: Vec<PromptArgument>) -> Prompt {
        self.arguments = arguments;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description.
    pub fn human_description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the item as clients list it: `name`, `title`, `description` and `arguments`, without absent
    /// fields.
    pub fn item(&self) -> Value {
        object_of([
            ("name", Some(json!(self.name))),
            ("title", self.title.as_ref().map(|text| json!(text))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            (
                "arguments",
                Some(self.arguments.iter().map(PromptArgument::item).collect()),
            ),
        ])
    }

    /// Returns the name of the first required argument that is missing in `arguments`.
    pub fn missing_argument(&self, arguments: &Map<String, Value>) -> Option<&str> {
        // Handlers rely on this check, because a client need not make it.
        let mut required = self.arguments.iter().filter(|argument| argument.required);
        let missing = required.find(|argument| !arguments.contains_key(&argument.name))?;
        Some(&missing.name)
    }

    /// Renders the prompt.
    ///
    /// # Errors
    /// The error of the callback, also when it panics.
    pub async fn render(&self, arguments: Map<String, Value>) -> Result<Vec<PromptMessage>, CallbackError> {
        run_callback(|| self.handler.render(arguments)).await
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of_json(&self.item())
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
