//! Tools: what clients may call.
//!
//! Owns: [`Tool`], what a call hands in and what it answers. Never: runs a handler (the task that serves the call
//! does) or checks arguments against the schema. Publishers build tools and hand them to the bus.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::call_context::CallContext;
use super::callback::{BoxFuture, CallbackError};
use super::digest::Digest;
use super::resource::Body;
use super::uri::ResourceUri;

/// A piece of what a tool or a prompt answers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// Text for the model.
    Text(String),
    /// A picture.
    Image {
        /// Its bytes.
        data: Bytes,
        /// Its media type, such as `image/png`.
        media_type: String,
    },
    /// A sound.
    Audio {
        /// Its bytes.
        data: Bytes,
        /// Its media type, such as `audio/wav`.
        media_type: String,
    },
    /// A resource, with its body.
    Resource {
        /// The URI that names it.
        uri: ResourceUri,
        /// Its media type.
        media_type: Option<String>,
        /// Its body.
        body: Body,
    },
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// What the model reads.
    pub blocks: Vec<Block>,
    /// What programs read; matches the tool's output schema when it has one.
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput {
            blocks: vec![Block::Text(text.into())],
            structured: None,
        }
    }

    /// A structured answer, with its JSON as text beside it for clients that read text alone.
    pub fn structured(value: Value) -> ToolOutput {
        ToolOutput {
            blocks: vec![Block::Text(value.to_string())],
            structured: Some(value),
        }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> ToolOutput {
        ToolOutput::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> ToolOutput {
        ToolOutput::text(text)
    }
}

/// Answers the calls of a tool. A closure that takes the arguments does; [`WithContext`] is for one that takes the
/// [`CallContext`] too.
pub trait CallTool: Any + Send + Sync {
    /// Runs one call. An error becomes a tool error with the error's text: the model sees it and may try again.
    fn call(
        &self,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> BoxFuture<Result<ToolOutput, CallbackError>>;
}

impl<F, R> CallTool for F
where
    F: Fn(Map<String, Value>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, CallbackError>> + Send + 'static,
{
    fn call(
        &self,
        arguments: Map<String, Value>,
        _: CallContext,
    ) -> BoxFuture<Result<ToolOutput, CallbackError>> {
        Box::pin(self(arguments))
    }
}

/// A closure that answers calls and may report while it does.
#[derive(Debug, Clone, Copy)]
pub struct WithContext<F>(pub F);

impl<F, R> CallTool for WithContext<F>
where
    F: Fn(Map<String, Value>, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, CallbackError>> + Send + 'static,
{
    fn call(
        &self,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> BoxFuture<Result<ToolOutput, CallbackError>> {
        Box::pin(self.0(arguments, context))
    }
}

/// A tool as a publisher registers it.
///
/// ```
/// use serde_json::{Map, Value, json};
/// use tidings_actors::{Tool, ToolOutput};
/// let greet = Tool::new("greet", |arguments: Map<String, Value>| async move {
///     let name = arguments.get("name").and_then(Value::as_str).ok_or("name is missing")?;
///     Ok(ToolOutput::text(format!("hello {name}")))
/// })
/// .description("Greets somebody")
/// .input_schema(json!({ "type": "object", "properties": { "name": { "type": "string" } } }));
/// assert_eq!(greet.name(), "greet");
/// ```
#[derive(Clone)]
pub struct Tool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Value,
    output_schema: Option<Value>,
    annotations: Option<Value>,
    handler: Arc<dyn CallTool>,
}

impl Tool {
    /// A tool that takes any object.
    pub fn new(name: impl Into<String>, handler: impl CallTool) -> Tool {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            annotations: None,
            handler: Arc::new(handler),
        }
    }

    /// A tool that takes any object, whose handler may report progress and log while it runs.
    pub fn with_context<F, R>(name: impl Into<String>, handler: F) -> Tool
    where
        F: Fn(Map<String, Value>, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, CallbackError>> + Send + 'static,
    {
        Tool::new(name, WithContext(handler))
    }

    /// Names it for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Tool {
        self.title = Some(title.into());
        self
    }

    /// Says what it does, for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Tool {
        self.description = Some(description.into());
        self
    }

    /// The JSON schema of its arguments; an object schema.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Tool {
        self.input_schema = schema;
        self
    }

    /// The JSON schema of its structured answer.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Tool {
        self.output_schema = Some(schema);
        self
    }

    /// Hints on its behaviour, such as `readOnlyHint`; passed to clients as they are.
    #[must_use]
    pub fn annotations(mut self, annotations: Value) -> Tool {
        self.annotations = Some(annotations);
        self
    }

    /// The same tool, its calls answered by `handler`.
    #[must_use]
    pub fn with_handler(&self, handler: impl CallTool) -> Tool {
        Tool {
            handler: Arc::new(handler),
            ..self.clone()
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What answers its calls, if it is of this type.
    pub fn handler<H: CallTool>(&self) -> Option<&H> {
        let handler: &dyn Any = &*self.handler;
        handler.downcast_ref()
    }

    /// The item as clients see it in a list: `name`, `title`, `description`, `inputSchema`, `outputSchema`,
    /// `annotations`, the absent ones left out.
    pub fn item(&self) -> Value {
        let fields = [
            ("name", Some(json!(self.name))),
            ("title", self.title.as_ref().map(|text| json!(text))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("inputSchema", Some(self.input_schema.clone())),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", self.annotations.clone()),
        ];
        present(fields)
    }

    /// Runs one call; what its handler tells meanwhile goes to `context`.
    ///
    /// # Errors
    /// Whatever the handler fails with.
    pub async fn call(
        &self,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> Result<ToolOutput, CallbackError> {
        self.handler.call(arguments, context).await
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of_json(&self.item())
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A JSON object of the fields that are there.
pub(crate) fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let pairs = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        Tool::new("t", |_: Map<String, Value>| async { Ok(ToolOutput::text("")) })
    }

    #[test]
    fn every_field_shows_in_the_digest() {
        let variants = [
            tool(),
            tool().title("x"),
            tool().description("x"),
            tool().input_schema(json!({ "type": "object", "required": ["x"] })),
            tool().output_schema(json!({})),
            tool().annotations(json!({ "readOnlyHint": true })),
        ];
        for (i, variant) in variants.iter().enumerate() {
            assert!(
                variants[..i]
                    .iter()
                    .all(|other| other.digest() != variant.digest()),
                "{i}"
            );
        }
        assert_eq!(tool().digest(), tool().digest());
    }
}
