//! A plain rmcp server that knows nothing of the bus: notes that can be read, a tool that asks the client's
//! model, a prompt, completion and a request of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tidings::mcp::Wrap;

type Context = RequestContext<RoleServer>;

/// The state that all clients of the server share, which the test controls.
#[derive(Default)]
pub(super) struct Notes {
    texts: Mutex<BTreeMap<String, String>>,
    tools: Mutex<Vec<String>>,
    prompts: Mutex<Vec<String>>,
    failing: AtomicBool,
    busy: tokio::sync::RwLock<()>,
    gate: tokio::sync::RwLock<()>,
    asked: tokio::sync::Notify,
    servers: AtomicUsize,
    cancelled: AtomicUsize,
    read: Mutex<BTreeSet<String>>,
    wrap: Mutex<Option<Wrap>>,
}

impl Notes {
    pub(super) fn new() -> Arc<Notes> {
        let notes = Notes::default();
        notes.write("note://a", "one");
        notes.write("note://b", "one");
        notes.add_tool("summarize");
        notes.add_prompt("greet");
        Arc::new(notes)
    }

    pub(super) fn write(&self, uri: &str, text: &str) {
        self.texts.lock().unwrap().insert(uri.into(), text.into());
    }

    pub(super) fn remove(&self, uri: &str) -> String {
        self.texts.lock().unwrap().remove(uri).unwrap()
    }

    pub(super) fn add_tool(&self, name: &str) {
        self.tools.lock().unwrap().push(name.into());
    }

    pub(super) fn add_prompt(&self, name: &str) {
        self.prompts.lock().unwrap().push(name.into());
    }

    /// Makes the server answer lists and reads with an internal error.
    pub(super) fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    /// Keeps the server busy with each new client until the returned guard is dropped.
    pub(super) async fn keep_busy(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.busy.write().await
    }

    /// Keeps the server from answering lists until the returned guard is dropped.
    pub(super) async fn close(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// Waits until the server was asked for its tools.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Makes every handler hold the wrapper that wraps it.
    pub(super) fn hold(&self, wrap: &Wrap) {
        *self.wrap.lock().unwrap() = Some(wrap.clone());
    }

    /// Returns the number of handlers.
    pub(super) fn servers(&self) -> usize {
        self.servers.load(Ordering::SeqCst)
    }

    /// Returns the number of calls whose cancellation reached the server.
    pub(super) fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Returns true if the server was asked for this note.
    pub(super) fn was_read(&self, uri: &str) -> bool {
        self.read.lock().unwrap().contains(uri)
    }

    fn check(&self) -> Result<(), ErrorData> {
        match self.failing.load(Ordering::SeqCst) {
            true => Err(ErrorData::internal_error("the pen is broken", None)),
            false => Ok(()),
        }
    }
}

/// The server of one client.
pub(super) struct Server {
    notes: Arc<Notes>,
    _wrap: Option<Wrap>,
}

impl Server {
    pub(super) fn new(notes: &Arc<Notes>) -> Server {
        notes.servers.fetch_add(1, Ordering::SeqCst);
        Server {
            notes: notes.clone(),
            _wrap: notes.wrap.lock().unwrap().clone(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.notes.servers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> InitializeResult {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions()
            .enable_skills_with_directory_read()
            .build();
        InitializeResult::new(capabilities).with_server_info(Implementation::new("notes", "1"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.notes.check()?;
        let texts = self.notes.texts.lock().unwrap();
        // Note b can be read by clients that know its URI.
        let listed = texts.keys().filter(|uri| uri.as_str() == "note://a");
        Ok(ListResourcesResult::with_all_items(
            listed
                .map(|uri| Resource::new(uri.as_str(), uri.as_str()))
                .collect(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.notes.read.lock().unwrap().insert(request.uri.clone());
        self.notes.check()?;
        let text = self.notes.texts.lock().unwrap().get(&request.uri).cloned();
        let text = text.ok_or_else(|| ErrorData::resource_not_found("no such note", None))?;
        // The metadata of the answer differs each time; the note does not.
        let mut meta = MetaObject::default();
        let nonce = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        meta.0.insert("nonce".into(), json!(nonce.as_nanos().to_string()));
        let contents = ResourceContents::text(text, request.uri).with_meta(meta);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        self.notes.asked.notify_one();
        drop(self.notes.gate.read().await);
        self.notes.check()?;
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let names = self.notes.tools.lock().unwrap().clone();
        let tools = names
            .into_iter()
            .map(|name| Tool::new(name, "a tool", schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    #[expect(deprecated, reason = "older revisions have sampling and log messages")]
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        assert_ne!(request.name, "panics", "the tool that panics");
        if request.name == "endless" {
            let token = context.meta.get_progress_token().unwrap();
            let progress = ProgressNotificationParam::new(token, 1.0);
            context.peer.notify_progress(progress).await.unwrap();
            context.ct.cancelled().await;
            self.notes.cancelled.fetch_add(1, Ordering::SeqCst);
            return Err(ErrorData::internal_error("cancelled", None));
        }
        if request.name == "shout" {
            for text in shouts(&request) {
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Error, text);
                context.peer.notify_logging_message(message).await.unwrap();
            }
            return Ok(CallToolResult::success(vec![]).into());
        }
        let text = if request.name == "summarize" {
            let prompt = vec![SamplingMessage::user_text("sum up")];
            let answer = context
                .peer
                .create_message(CreateMessageRequestParams::new(prompt, 10));
            let answer = answer.await;
            let answer = answer.map_err(|refusal| ErrorData::internal_error(refusal.to_string(), None))?;
            let blocks = answer.message.content.into_vec();
            format!("the model says: {}", blocks[0].as_text().unwrap().text)
        } else {
            "the server's own tool".to_owned()
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.notes.check()?;
        let names = self.notes.prompts.lock().unwrap().clone();
        let prompts = names
            .into_iter()
            .map(|name| Prompt::new(name, Some("a prompt"), None));
        Ok(ListPromptsResult::with_all_items(prompts.collect()))
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, "hello")]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let names = ["Ada", "Grace"].into_iter();
        let values = names.filter(|name| name.starts_with(&request.argument.value));
        let values = values.map(str::to_owned).collect();
        Ok(CompleteResult::new(CompletionInfo::new(values).unwrap()))
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListSkillsResult, ErrorData> {
        let skills = ["note://a", "note://b"].map(|note| skill(format!("{note}/SKILL.md")));
        Ok(ListSkillsResult::with_all_items(skills.into()))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: Context,
    ) -> Result<GetSkillResult, ErrorData> {
        Ok(GetSkillResult::new(skill(request.uri)))
    }

    async fn read_resource_directory(
        &self,
        _: ReadResourceDirectoryRequestParams,
        _: Context,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let files = ["note://a/SKILL.md", "note://b/SKILL.md"];
        let files = files.map(|uri| Resource::new(uri, uri));
        Ok(ReadResourceDirectoryResult::with_all_items(files.into()))
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {
        drop(self.notes.busy.read().await);
    }

    async fn on_custom_request(&self, request: CustomRequest, _: Context) -> Result<CustomResult, ErrorData> {
        assert_eq!(request.method, "notes/count");
        Ok(CustomResult(json!(self.notes.texts.lock().unwrap().len())))
    }
}

/// Returns the texts of the log messages that a call of `shout` asks for: the numbers of `from` to `to`, each
/// followed by `padding` bytes.
fn shouts(request: &CallToolRequestParams) -> Vec<serde_json::Value> {
    let arguments = request.arguments.clone().unwrap_or_default();
    let number = |name: &str| {
        arguments
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    };
    let padding = " ".repeat(number("padding") as usize);
    (number("from")..=number("to"))
        .map(|shout| json!(format!("{shout}{padding}")))
        .collect()
}

/// The skill whose file has this URI. Its name is that of the note.
fn skill(uri: String) -> Skill {
    let name = uri.trim_start_matches("note://").trim_end_matches("/SKILL.md");
    let frontmatter = SkillFrontmatter::new(name, "Takes notes");
    Skill::new(uri, frontmatter, SkillResources::Dynamic)
}
