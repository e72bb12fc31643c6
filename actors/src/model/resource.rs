//! Resources: a descriptor, and either a body or the reader that fetches it. Versions are kept apart, in the
//! ledger.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::callback::{BoxFuture, CallbackError};
use super::digest::Digest;
use super::uri::{InvalidUri, ResourceUri};

/// The description of a resource, as clients list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// The URI.
    pub uri: ResourceUri,
    /// The short name for programs; the last segment of the URI unless set.
    pub name: String,
    /// The name shown to people.
    pub title: Option<String>,
    /// The description for people and models.
    pub description: Option<String>,
    /// The media type of the body (RFC 6838), such as `text/markdown`.
    pub media_type: Option<Cow<'static, str>>,
    /// True if clients may subscribe to it.
    pub subscribable: bool,
    /// True if the resource list contains it. Set it to false if another server of the process lists the
    /// resource; reads, subscriptions and versions do not depend on it.
    pub listed: bool,
}

impl Descriptor {
    /// Describes `uri` as subscribable and listed, named after its last segment.
    pub fn new(uri: ResourceUri) -> Descriptor {
        let text = uri.as_str();
        let path = text.trim_end_matches('/');
        let start = match path.bytes().rposition(|byte| matches!(byte, b'/' | b':')) {
            Some(separator) => separator + 1,
            None => 0,
        };
        let name = match &path[start..] {
            // A URI such as `demo://` or `x:` has no last segment.
            "" => text.to_owned(),
            last => last.to_owned(),
        };
        Descriptor {
            uri,
            name,
            title: None,
            description: None,
            media_type: None,
            subscribable: true,
            listed: true,
        }
    }

    /// Returns the digest of the list item.
    pub(crate) fn digest(&self) -> Digest {
        // `subscribable` is left out because a list does not show it.
        Digest::of(&[
            b"resource",
            self.uri.as_str().as_bytes(),
            self.name.as_bytes(),
            digest_part(self.title.as_deref()).as_bytes(),
            digest_part(self.description.as_deref()).as_bytes(),
            digest_part(self.media_type.as_deref()).as_bytes(),
        ])
    }
}

/// Returns an optional field as a part of a digest, so that an absent field and an empty one differ.
pub(super) fn digest_part(field: Option<&str>) -> String {
    match field {
        Some(text) => format!("+{text}"),
        None => String::new(),
    }
}

/// The body of a resource at one version.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(Arc<str>),
    /// Binary data.
    Blob(Bytes),
}

impl Body {
    /// Creates a text body.
    pub fn text(text: impl Into<Arc<str>>) -> Body {
        Body::Text(text.into())
    }

    /// Creates a binary body.
    pub fn blob(bytes: impl Into<Bytes>) -> Body {
        Body::Blob(bytes.into())
    }

    /// The bytes of a text or binary body.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Body::Text(text) => text.as_bytes(),
            Body::Blob(bytes) => bytes,
        }
    }

    /// The text; `None` for a binary body.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Body::Text(text) => Some(text),
            Body::Blob(_) => None,
        }
    }

    /// Returns the digest of media type, kind and bytes.
    pub fn digest(&self, media_type: Option<&str>) -> Digest {
        let kind: &[u8] = match self {
            Body::Text(_) => b"text",
            Body::Blob(_) => b"blob",
        };
        // The same bytes are another content under another media type, and so are an empty text and an empty
        // blob.
        Digest::of(&[media_type.unwrap_or_default().as_bytes(), kind, self.as_bytes()])
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies may be confidential, so logs show their size and never their content.
        let kind = match self {
            Body::Text(_) => "Text",
            Body::Blob(_) => "Blob",
        };
        write!(f, "Body::{kind}({} bytes)", self.as_bytes().len())
    }
}

/// The callback that fetches the body of a resource.
pub trait ReadBody: Send + Sync + 'static {
    /// Reads the current body. The text of an error is sent to the client.
    fn read(&self) -> BoxFuture<Result<Body, CallbackError>>;
}

impl<F, R> ReadBody for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<Body, CallbackError>> + Send + 'static,
{
    fn read(&self) -> BoxFuture<Result<Body, CallbackError>> {
        Box::pin(self())
    }
}

/// The source of the body of a resource.
#[derive(Clone)]
pub enum Content {
    /// The bus holds the body and compares digests to detect changes.
    Held(Body),
    /// A reader fetches the body for each read; the owner calls `touch` after a change.
    Lazy(Arc<dyn ReadBody>),
}

impl PartialEq for Content {
    /// Compares held bodies, and readers by identity.
    fn eq(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Held(one), Content::Held(two)) => one == two,
            (Content::Lazy(one), Content::Lazy(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Held(body) => body.fmt(f),
            Content::Lazy(_) => f.write_str("Lazy"),
        }
    }
}

/// A resource that can be registered on the bus.
///
/// ```
/// use tidings_actors::{Body, Resource};
/// let held = Resource::text("demo://greeting", "hello")?.title("Greeting").media_type("text/plain");
/// let lazy = Resource::lazy("demo://clock", || async { Ok(Body::text("noon")) })?.subscribable(false);
/// assert_eq!(held.descriptor().name, "greeting");
/// assert!(!lazy.descriptor().subscribable);
/// # Ok::<(), tidings_actors::InvalidUri>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Shared, so that a resource is small on its way through the bus, and its versions have one description.
    descriptor: Arc<Descriptor>,
    content: Content,
}

impl Resource {
    /// Creates a resource from its parts.
    pub fn new(descriptor: Descriptor, content: Content) -> Resource {
        Resource {
            descriptor: Arc::new(descriptor),
            content,
        }
    }

    /// Creates a text resource whose body the bus holds, with the media type `text/plain`.
    ///
    /// # Errors
    /// [`InvalidUri`] if `uri` is not a URI.
    pub fn text<U>(uri: U, text: impl Into<Arc<str>>) -> Result<Resource, InvalidUri>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let descriptor = Descriptor {
            media_type: Some("text/plain".into()),
            ..Descriptor::new(uri.try_into()?)
        };
        Ok(Resource::new(descriptor, Content::Held(Body::text(text))))
    }

    /// Creates a binary resource whose body the bus holds, with the media type `application/octet-stream`.
    ///
    /// # Errors
    /// [`InvalidUri`] if `uri` is not a URI.
    pub fn blob<U>(uri: U, bytes: impl Into<Bytes>) -> Result<Resource, InvalidUri>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        let media_type = Some("application/octet-stream".into());
        let descriptor = Descriptor {
            media_type,
            ..Descriptor::new(uri.try_into()?)
        };
        Ok(Resource::new(descriptor, Content::Held(Body::blob(bytes))))
    }

    /// Creates a resource whose body `reader` fetches for each read. Call `touch` after a change.
    ///
    /// # Errors
    /// [`InvalidUri`] if `uri` is not a URI.
    pub fn lazy<U>(uri: U, reader: impl ReadBody) -> Result<Resource, InvalidUri>
    where
        U: TryInto<ResourceUri>,
        InvalidUri: From<U::Error>,
    {
        Ok(Resource::new(
            Descriptor::new(uri.try_into()?),
            Content::Lazy(Arc::new(reader)),
        ))
    }

    /// Sets the name for programs.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Resource {
        Arc::make_mut(&mut self.descriptor).name = name.into();
        self
    }

    /// Sets the name shown to people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Resource {
        Arc::make_mut(&mut self.descriptor).title = Some(title.into());
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Resource {
        Arc::make_mut(&mut self.descriptor).description = Some(description.into());
        self
    }

    /// Sets the media type of the body.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<Cow<'static, str>>) -> Resource {
        Arc::make_mut(&mut self.descriptor).media_type = Some(media_type.into());
        self
    }

    /// Sets whether clients may subscribe to it (default: yes).
    #[must_use]
    pub fn subscribable(mut self, subscribable: bool) -> Resource {
        Arc::make_mut(&mut self.descriptor).subscribable = subscribable;
        self
    }

    /// Sets whether the resource list contains it (default: yes).
    #[must_use]
    pub fn listed(mut self, listed: bool) -> Resource {
        Arc::make_mut(&mut self.descriptor).listed = listed;
        self
    }

    /// The description.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The URI.
    pub fn uri(&self) -> &ResourceUri {
        &self.descriptor.uri
    }

    /// The source of the body.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the digest of body and description, by which the bus detects a change; none for a lazy body.
    pub fn digest(&self) -> Option<Digest> {
        self.digest_with(self.descriptor.digest())
    }

    /// Returns the same digest; `item` is the digest of the list item.
    pub(crate) fn digest_with(&self, item: Digest) -> Option<Digest> {
        match &self.content {
            Content::Held(body) => {
                let descriptor = &*self.descriptor;
                let body = body.digest(descriptor.media_type.as_deref());
                // An item shows neither of the flags.
                Some(body.combine(item, [descriptor.subscribable, descriptor.listed]))
            }
            Content::Lazy(_) => None,
        }
    }

    /// Takes the description of the version before if it is the same. Returns true if it is.
    pub(crate) fn share_descriptor(&mut self, before: &Resource) -> bool {
        let same = self.descriptor == before.descriptor;
        if same {
            self.descriptor = before.descriptor.clone();
        }
        same
    }

    /// The size in bytes of a held body; 0 for a lazy one.
    pub(crate) fn held_len(&self) -> usize {
        match &self.content {
            Content::Held(body) => body.as_bytes().len(),
            Content::Lazy(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_last_segment() {
        let name = |uri: &str| Descriptor::new(ResourceUri::new(uri).unwrap()).name;
        assert_eq!(name("demo://a/b.md"), "b.md");
        assert_eq!(name("demo://a/"), "a");
        assert_eq!(name("urn:isbn:12"), "12");
        assert_eq!(name("x:"), "x:");
    }

    #[test]
    fn every_listed_field_counts_in_the_digest() {
        let base = Descriptor::new(ResourceUri::new("demo://a").unwrap());
        let some = || Some("x".to_owned());
        let variants = [
            Descriptor {
                name: "x".into(),
                ..base.clone()
            },
            Descriptor {
                title: some(),
                ..base.clone()
            },
            Descriptor {
                description: some(),
                ..base.clone()
            },
            Descriptor {
                media_type: Some("x".into()),
                ..base.clone()
            },
            Descriptor {
                title: Some(String::new()),
                ..base.clone()
            },
        ];
        for (i, variant) in variants.iter().enumerate() {
            assert_ne!(variant.digest(), base.digest(), "{variant:?}");
            assert!(
                variants[..i]
                    .iter()
                    .all(|other| other.digest() != variant.digest())
            );
        }
        assert_eq!(
            Descriptor {
                subscribable: false,
                ..base.clone()
            }
            .digest(),
            base.digest()
        );
    }

    #[test]
    fn digest_covers_bytes_kind_and_media_type() {
        let text = Body::text("a");
        assert_eq!(
            text.digest(Some("text/plain")),
            Body::text("a").digest(Some("text/plain"))
        );
        assert_ne!(text.digest(Some("text/plain")), text.digest(Some("text/html")));
        assert_ne!(text.digest(None), Body::blob("a").digest(None));
    }

    #[test]
    fn debug_output_hides_the_content() {
        assert_eq!(format!("{:?}", Body::text("secret")), "Body::Text(6 bytes)");
    }
}
