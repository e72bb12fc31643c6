//! Resource templates: families of resources that share a URI template. Their callbacks run in the task that
//! reads or lists.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::callback::{BoxFuture, CallbackError};
use super::digest::Digest;
use super::resource::{Body, Descriptor, digest_part};
use super::uri::ResourceUri;
use super::uri_template::{InvalidUriTemplate, UriTemplate, Variables};

/// The callback that reads a member of a template.
pub trait ReadTemplate: Send + Sync + 'static {
    /// Reads the body of `uri`, which the template matched with `variables`. Returns `None` if there is no
    /// such member.
    fn read(&self, uri: ResourceUri, variables: Variables) -> BoxFuture<Result<Option<Body>, CallbackError>>;
}

impl<F, R> ReadTemplate for F
where
    F: Fn(ResourceUri, Variables) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Option<Body>, CallbackError>> + Send + 'static,
{
    fn read(&self, uri: ResourceUri, variables: Variables) -> BoxFuture<Result<Option<Body>, CallbackError>> {
        Box::pin(self(uri, variables))
    }
}

/// The callback that lists the members of a template.
pub trait ListTemplate: Send + Sync + 'static {
    /// Lists the members that exist now.
    fn list(&self) -> BoxFuture<Result<Vec<Descriptor>, CallbackError>>;
}

impl<F, R> ListTemplate for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<Vec<Descriptor>, CallbackError>> + Send + 'static,
{
    fn list(&self) -> BoxFuture<Result<Vec<Descriptor>, CallbackError>> {
        Box::pin(self())
    }
}

/// A family of resources whose URIs are the expansions of an RFC 6570 template (levels 1 to 3).
///
/// Members need no registration: a read calls the reader, and `touch` on a member's URI notifies its
/// subscribers.
///
/// ```
/// use tidings_actors::{Body, ResourceTemplate, ResourceUri, Variables};
/// let read = |_uri: ResourceUri, variables: Variables| async move {
///     Ok(variables.get("id").map(|id| Body::text(format!("user {id}"))))
/// };
/// let users = ResourceTemplate::new("app://users/{id}", read)?
/// .title("Users")
/// .media_type("text/plain");
/// assert_eq!(users.uri_template().as_str(), "app://users/{id}");
/// # Ok::<(), tidings_actors::InvalidUriTemplate>(())
/// ```
#[derive(Clone)]
pub struct ResourceTemplate {
    uri_template: UriTemplate,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) media_type: Option<Cow<'static, str>>,
    pub(crate) subscribable: bool,
    reader: Arc<dyn ReadTemplate>,
    lister: Option<Arc<dyn ListTemplate>>,
}

impl ResourceTemplate {
    /// Creates a template whose members `reader` reads. It is named after its text, its members are
    /// subscribable, and they are not listed.
    ///
    /// # Errors
    /// [`InvalidUriTemplate`] if `uri_template` is not a template or uses level 4.
    pub fn new(
        uri_template: &str,
        reader: impl ReadTemplate,
    ) -> Result<ResourceTemplate, InvalidUriTemplate> {
        Ok(ResourceTemplate {
            uri_template: UriTemplate::parse(uri_template)?,
            // A list item has to have a name, and the text of the template is unique.
            name: uri_template.to_owned(),
            title: None,
            description: None,
            media_type: None,
            subscribable: true,
            reader: Arc::new(reader),
            lister: None,
        })
    }

    /// Sets the name for programs.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> ResourceTemplate {
        self.name = name.into();
        self
    }

    /// Sets the name shown to people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> ResourceTemplate {
        self.title = Some(title.into());
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> ResourceTemplate {
        self.description = Some(description.into());
        self
    }

    /// Sets the media type of the bodies.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<Cow<'static, str>>) -> ResourceTemplate {
        self.media_type = Some(media_type.into());
        self
    }

    /// Sets whether clients may subscribe to members (default: yes).
    #[must_use]
    pub fn subscribable(mut self, subscribable: bool) -> ResourceTemplate {
        self.subscribable = subscribable;
        self
    }

    /// Lists the members among the resources. `lister` runs once at registration and for each full list; its
    /// result is part of the list hash.
    #[must_use]
    pub fn list(mut self, lister: impl ListTemplate) -> ResourceTemplate {
        self.lister = Some(Arc::new(lister));
        self
    }

    /// The template of the URIs.
    pub fn uri_template(&self) -> &UriTemplate {
        &self.uri_template
    }

    /// The name for programs.
    pub fn program_name(&self) -> &str {
        &self.name
    }

    /// The name shown to people.
    pub fn human_title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The description.
    pub fn human_description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The media type of the bodies.
    pub fn body_media_type(&self) -> Option<&str> {
        self.media_type.as_deref()
    }

    pub(crate) fn reader(&self) -> &Arc<dyn ReadTemplate> {
        &self.reader
    }

    pub(crate) fn lister(&self) -> Option<&Arc<dyn ListTemplate>> {
        self.lister.as_ref()
    }

    pub(crate) fn digest(&self) -> Digest {
        // The callbacks are left out because a list does not show them.
        Digest::of(&[
            b"template",
            self.uri_template.as_str().as_bytes(),
            self.name.as_bytes(),
            digest_part(self.title.as_deref()).as_bytes(),
            digest_part(self.description.as_deref()).as_bytes(),
            digest_part(self.media_type.as_deref()).as_bytes(),
        ])
    }
}

impl fmt::Debug for ResourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTemplate")
            .field("uri_template", &self.uri_template.as_str())
            .finish_non_exhaustive()
    }
}
