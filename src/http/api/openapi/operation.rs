//! One operation of the document: a method of a path.

use serde_json::{Map, Value, json};

/// An operation under construction.
pub(super) struct Operation {
    fields: Map<String, Value>,
    parameters: Vec<Value>,
    responses: Map<String, Value>,
}

impl Operation {
    /// Begins an operation that every guarded path has the common refusals of.
    pub(super) fn new(id: &str, tag: &str, summary: &str) -> Operation {
        let open = Operation::open(id, tag, summary);
        open.problems(&[400, 401, 403, 429, 503])
    }

    /// Begins an operation that is answered for any caller.
    pub(super) fn open(id: &str, tag: &str, summary: &str) -> Operation {
        let mut fields = Map::new();
        fields.insert("operationId".to_owned(), id.into());
        fields.insert("tags".to_owned(), json!([tag]));
        fields.insert("summary".to_owned(), summary.into());
        Operation {
            fields,
            parameters: Vec::new(),
            responses: Map::new(),
        }
    }

    /// Sets a field of the operation.
    pub(super) fn field(mut self, name: &str, value: Value) -> Operation {
        self.fields.insert(name.to_owned(), value);
        self
    }

    /// Adds parameters of the components.
    pub(super) fn takes(mut self, names: &[&str]) -> Operation {
        for name in names {
            self.parameters
                .push(json!({ "$ref": format!("#/components/parameters/{name}") }));
        }
        self
    }

    /// Adds a parameter of this operation alone.
    pub(super) fn parameter(mut self, parameter: Value) -> Operation {
        self.parameters.push(parameter);
        self
    }

    /// Sets the body of the request: its media types, with their schemas.
    pub(super) fn body(self, required: bool, content: &Value) -> Operation {
        self.field("requestBody", json!({ "required": required, "content": content }))
    }

    /// Adds an answer with these headers of the components, and with a content unless that is null.
    pub(super) fn answer(mut self, status: u16, text: &str, headers: &[&str], content: Value) -> Operation {
        let mut answer = Map::new();
        answer.insert("description".to_owned(), text.into());
        if !headers.is_empty() {
            let named = headers.iter().map(|name| {
                let reference = json!({ "$ref": format!("#/components/headers/{name}") });
                ((*name).to_owned(), reference)
            });
            answer.insert("headers".to_owned(), Value::Object(named.collect()));
        }
        if !content.is_null() {
            answer.insert("content".to_owned(), content);
        }
        self.responses.insert(status.to_string(), Value::Object(answer));
        self
    }

    /// Adds problems.
    pub(super) fn problems(mut self, statuses: &[u16]) -> Operation {
        for status in statuses {
            let reference = json!({ "$ref": format!("#/components/responses/Problem{status}") });
            self.responses.insert(status.to_string(), reference);
        }
        self
    }

    /// Returns the operation, and the same for HEAD: without contents.
    pub(super) fn with_head(self) -> (Value, Value) {
        let get = self.finish();
        // Described apart, since tools call what is described, and refuse what is not.
        let mut head = get.clone();
        let id = format!("{}Head", get["operationId"].as_str().unwrap_or_default());
        head["operationId"] = id.into();
        if let Value::Object(responses) = &mut head["responses"] {
            for (status, answer) in responses.iter_mut() {
                *answer = match answer.get("$ref") {
                    // The answer to HEAD has no body, of a problem either.
                    Some(_) => {
                        json!({ "description": format!("As for GET, with status {status} and no body") })
                    }
                    None => {
                        let mut answer = answer.clone();
                        if let Value::Object(fields) = &mut answer {
                            fields.remove("content");
                        }
                        answer
                    }
                };
            }
        }
        (get, head)
    }

    /// Returns the operation.
    pub(super) fn finish(mut self) -> Value {
        if !self.parameters.is_empty() {
            self.fields
                .insert("parameters".to_owned(), self.parameters.into());
        }
        self.fields
            .insert("responses".to_owned(), Value::Object(self.responses));
        Value::Object(self.fields)
    }
}
