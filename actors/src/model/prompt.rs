//! Prompts: texts that people pick and clients fill in.
//!
//! Owns: [`Prompt`], its arguments and what it renders to. Never: renders itself (the task that serves the request
//! does). Publishers build prompts and hand them to the bus.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::callback::{BoxFuture, CallbackError};
use super::digest::Digest;
use super::tool::{Block, present};

/// Who speaks a message of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One message of a rendered prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// Who speaks it.
    pub role: Role,
    /// What is said.
    pub block: Block,
}

impl PromptMessage {
    /// A text that the person says.
    pub fn user(text: impl Into<String>) -> PromptMessage {
        PromptMessage {
            role: Role::User,
            block: Block::Text(text.into()),
        }
    }

    /// A text that the model says.
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
    /// Its name.
    pub name: String,
    /// What to write there, for people.
    pub description: Option<String>,
    /// Whether the prompt cannot be rendered without it.
    pub required: bool,
}

/// Renders a prompt.
pub trait RenderPrompt: Send + Sync + 'static {
    /// Renders with the arguments given; required ones are there. The error's text reaches the client.
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

/// A prompt as a publisher registers it.
///
/// ```
/// use serde_json::{Map, Value};
/// use tidings_actors::{Prompt, PromptMessage};
/// let review = Prompt::new("review", |arguments: Map<String, Value>| async move {
///     let page = arguments.get("page").and_then(Value::as_str).unwrap_or("/");
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
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>, handler: impl RenderPrompt) -> Prompt {
        let handler = Arc::new(handler);
        Prompt {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            handler,
        }
    }

    /// Names it for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Prompt {
        self.title = Some(title.into());
        self
    }

    /// Says what it is for.
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

    /// Makes these all its arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: Vec<PromptArgument>) -> Prompt {
        self.arguments = arguments;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    pub fn human_description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The item as clients see it in a list: `name`, `title`, `description`, `arguments`, the absent ones left out.
    pub fn item(&self) -> Value {
        let argument = |argument: &PromptArgument| {
            present([
                ("name", Some(json!(argument.name))),
                (
                    "description",
                    argument.description.as_ref().map(|text| json!(text)),
                ),
                ("required", Some(json!(argument.required))),
            ])
        };
        present([
            ("name", Some(json!(self.name))),
            ("title", self.title.as_ref().map(|text| json!(text))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("arguments", Some(self.arguments.iter().map(argument).collect())),
        ])
    }

    /// The first required argument that `arguments` lacks.
    pub fn missing_argument(&self, arguments: &Map<String, Value>) -> Option<&str> {
        let missing =
            |argument: &&PromptArgument| argument.required && !arguments.contains_key(&argument.name);
        self.arguments
            .iter()
            .find(missing)
            .map(|argument| argument.name.as_str())
    }

    /// Renders it.
    ///
    /// # Errors
    /// Whatever the handler fails with.
    pub async fn render(&self, arguments: Map<String, Value>) -> Result<Vec<PromptMessage>, CallbackError> {
        self.handler.render(arguments).await
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
