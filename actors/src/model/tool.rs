//! Tools that clients may call. A tool runs in the task that serves the call; the endpoint that serves it
//! checks the arguments against the schema and keeps the time.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::call_context::CallContext;
use super::callback::{BoxFuture, CallbackError, run_callback};
use super::digest::Digest;
use super::resource::Body;
use super::uri::ResourceUri;

/// A piece of content in the output of a tool or a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// Text for the model.
    Text(String),
    /// An image.
    Image {
        /// The bytes.
        data: Bytes,
        /// The media type, such as `image/png`.
        media_type: String,
    },
    /// Audio data.
    Audio {
        /// The bytes.
        data: Bytes,
        /// The media type, such as `audio/wav`.
        media_type: String,
    },
    /// A resource with its body.
    Resource {
        /// The URI.
        uri: ResourceUri,
        /// The media type.
        media_type: Option<String>,
        /// The body.
        body: Body,
    },
}

/// The output of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// The content for the model.
    pub blocks: Vec<Block>,
    /// The content for programs. It has to match the output schema of the tool, if there is one.
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// Creates an output of one text.
    pub fn text(text: impl Into<String>) -> ToolOutput {
        ToolOutput {
            blocks: vec![Block::Text(text.into())],
            structured: None,
        }
    }

    /// Creates a structured output and adds its JSON as text, for clients that read only text.
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

/// The handler of a tool. A closure that takes the arguments implements it; wrap one that takes the
/// [`CallContext`] too in [`WithContext`].
pub trait CallTool: Any + Send + Sync {
    /// Runs one call. An error becomes a tool error with its text, so that the model sees it and may try
    /// again.
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

/// A handler made of a closure that takes the [`CallContext`].
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

/// The JSON schema of a tool's arguments, with room for its compiled form: the bus knows no language of
/// schemas, and an endpoint that does should not compile one at every call.
pub struct InputSchema {
    value: Value,
    compiled: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl InputSchema {
    fn new(value: Value) -> Arc<InputSchema> {
        Arc::new(InputSchema {
            value,
            compiled: OnceLock::new(),
        })
    }

    /// The schema as it was written.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the compiled form, which `compile` makes at the first call. None if it was made as another
    /// type before.
    pub fn compiled<T: Any + Send + Sync>(&self, compile: impl FnOnce(&Value) -> T) -> Option<&T> {
        let compiled = self.compiled.get_or_init(|| Box::new(compile(&self.value)));
        compiled.downcast_ref()
    }
}

/// A tool that can be registered on the bus.
///
/// ```
/// use serde_json::{Map, Value, json};
/// use tidings_actors::{Tool, ToolOutput};
/// let greet = Tool::new("greet", |arguments: Map<String, Value>| async move {
///     let Some(Value::String(name)) = arguments.get("name") else {
///         return Err("name is missing".into());
///     };
///     Ok(ToolOutput::text(format!("hello {name}")))
/// })
/// .description("Greets a person")
/// .input_schema(json!({ "type": "object", "properties": { "name": { "type": "string" } } }));
/// assert_eq!(greet.name(), "greet");
/// ```
#[derive(Clone)]
pub struct Tool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: Arc<InputSchema>,
    output_schema: Option<Value>,
    annotations: Option<Value>,
    timeout: Option<Duration>,
    handler: Arc<dyn CallTool>,
}

impl Tool {
    /// Creates a tool that takes any object.
    pub fn new(name: impl Into<String>, handler: impl CallTool) -> Tool {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            // Clients expect an object schema even for a tool without arguments.
            input_schema: InputSchema::new(json!({ "type": "object" })),
            output_schema: None,
            annotations: None,
            timeout: None,
            handler: Arc::new(handler),
        }
    }

    /// Creates a tool that takes any object and whose handler may report progress and log messages.
    pub fn with_context<F, R>(name: impl Into<String>, handler: F) -> Tool
    where
        F: Fn(Map<String, Value>, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, CallbackError>> + Send + 'static,
    {
        Tool::new(name, WithContext(handler))
    }

    /// Sets the name shown to people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Tool {
        self.title = Some(title.into());
        self
    }

    /// Sets the description for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Tool {
        self.description = Some(description.into());
        self
    }

    /// Creates a tool whose arguments are read into a type, from which their JSON schema is made.
    /// Arguments that do not fit get a tool error that names the field, and the handler is not called.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use tidings_actors::{Tool, ToolOutput};
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Greeting {
    ///     /// The person to greet.
    ///     name: String,
    /// }
    ///
    /// let greet = Tool::typed("greet", |greeting: Greeting| async move {
    ///     Ok(ToolOutput::text(format!("hello {}", greeting.name)))
    /// });
    /// assert_eq!(greet.item()["inputSchema"]["required"][0], "name");
    /// ```
    ///
    /// `A` has to be a struct or a map, since the arguments of a tool are an object.
    pub fn typed<A, F, R>(name: impl Into<String>, handler: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, CallbackError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let tool = Tool::new(name, move |arguments| {
            let handler = handler.clone();
            async move {
                let arguments = serde_json::from_value(Value::Object(arguments));
                match arguments {
                    Ok(arguments) => handler(arguments).await,
                    Err(error) => Err(CallbackError::from(format!("invalid arguments: {error}"))),
                }
            }
        });
        tool.input_schema(schemars::schema_for!(A).to_value())
    }

    /// Sets the JSON schema of the arguments, which has to be an object schema. An endpoint refuses
    /// arguments that violate it with a tool error.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Tool {
        self.input_schema = InputSchema::new(schema);
        self
    }

    /// Sets the longest time of one call. Without it an endpoint applies its own limit to all handlers.
    /// At the limit the future of the call is dropped, and the client gets a tool error.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Tool {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the JSON schema of the structured output.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Tool {
        self.output_schema = Some(schema);
        self
    }

    /// Sets hints such as `readOnlyHint`, which are passed to clients unchanged.
    #[must_use]
    pub fn annotations(mut self, annotations: Value) -> Tool {
        self.annotations = Some(annotations);
        self
    }

    /// Copies the tool with another handler.
    #[must_use]
    pub fn with_handler(&self, handler: impl CallTool) -> Tool {
        Tool {
            handler: Arc::new(handler),
            ..self.clone()
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The JSON schema of the arguments, which copies of the tool share.
    pub fn arguments_schema(&self) -> &InputSchema {
        &self.input_schema
    }

    /// The longest time of one call; none for the limit of the endpoint.
    pub fn call_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns the handler if it has the type `H`.
    pub fn handler<H: CallTool>(&self) -> Option<&H> {
        // `CallTool: Any` makes the upcast possible.
        let handler: &dyn Any = &*self.handler;
        handler.downcast_ref()
    }

    /// Returns the item as clients list it: `name`, `title`, `description`, `inputSchema`, `outputSchema` and
    /// `annotations`, without absent fields.
    pub fn item(&self) -> Value {
        object_of([
            ("name", Some(json!(self.name))),
            ("title", self.title.as_ref().map(|text| json!(text))),
            ("description", self.description.as_ref().map(|text| json!(text))),
            ("inputSchema", Some(self.input_schema.value.clone())),
            ("outputSchema", self.output_schema.clone()),
            ("annotations", self.annotations.clone()),
        ])
    }

    /// Runs one call. The handler reports to `context`. The arguments are passed as they are: an endpoint
    /// holds them against [`arguments_schema`](Tool::arguments_schema) first.
    ///
    /// # Errors
    /// The error of the handler, also when it panics.
    pub async fn call(
        &self,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> Result<ToolOutput, CallbackError> {
        run_callback(|| self.handler.call(arguments, context)).await
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

/// Creates a JSON object of the fields that have a value.
pub(super) fn object_of<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    // Clients reject `null` where the protocol has an optional field.
    let mut object = Map::new();
    for (name, field) in fields {
        if let Some(value) = field {
            object.insert(name.to_owned(), value);
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        Tool::new("t", |_: Map<String, Value>| async { Ok(ToolOutput::text("")) })
    }

    #[test]
    fn every_field_counts_in_the_digest() {
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
