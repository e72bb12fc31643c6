//! What a resource is: its description, and its body or the reader that fetches it.
//!
//! Owns: [`Resource`], [`Descriptor`], [`Body`], [`Content`]. Never: knows versions (the ledger does) or who listens.
//! Publishers build these and hand them to the bus; reads hand them back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::callback::{BoxFuture, CallbackError};
use super::digest::Digest;
use super::uri::{InvalidUri, ResourceUri};

/// What clients see of a resource in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// The URI that names it.
    pub uri: ResourceUri,
    /// Short name for programs; the URI's last segment unless given.
    pub name: String,
    /// Name for people.
    pub title: Option<String>,
    /// What it holds, for people and models.
    pub description: Option<String>,
    /// Media type of its body (RFC 6838), such as `text/markdown`.
    pub media_type: Option<String>,
    /// Whether clients may subscribe to it.
    pub subscribable: bool,
    /// Whether it is in the resource list. What is not is read, subscribed to and versioned like any other: for
    /// resources that somebody else lists.
    pub listed: bool,
}

impl Descriptor {
    /// Describes `uri`: named after its last segment, subscribable, nothing else said.
    pub fn new(uri: ResourceUri) -> Descriptor {
        let text = uri.as_str();
        let last = text
            .trim_end_matches('/')
            .rsplit(['/', ':'])
            .next()
            .filter(|part| !part.is_empty());
        let name = last.unwrap_or(text).to_owned();
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

    /// The digest of the list item; `subscribable` is not part of what clients see, so not part of it.
    pub(crate) fn digest(&self) -> Digest {
        let optional =
            |field: &Option<String>| field.as_deref().map_or(String::new(), |text| format!("+{text}"));
        Digest::of(&[
            b"resource",
            self.uri.as_str().as_bytes(),
            self.name.as_bytes(),
            optional(&self.title).as_bytes(),
            optional(&self.description).as_bytes(),
            optional(&self.media_type).as_bytes(),
        ])
    }
}

/// The content of a resource at one version.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// Text in UTF-8.
    Text(Arc<str>),
    /// Anything else.
    Blob(Bytes),
}

impl Body {
    /// A text body.
    pub fn text(text: impl Into<Arc<str>>) -> Body {
        Body::Text(text.into())
    }

    /// A binary body.
    pub fn blob(bytes: impl Into<Bytes>) -> Body {
        Body::Blob(bytes.into())
    }

    /// Its bytes, whatever kind it is.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Body::Text(text) => text.as_bytes(),
            Body::Blob(bytes) => bytes,
        }
    }

    /// Its text, unless it is binary.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Body::Text(text) => Some(text),
            Body::Blob(_) => None,
        }
    }

    /// The digest that decides whether the content changed: media type, kind and bytes.
    pub fn digest(&self, media_type: Option<&str>) -> Digest {
        let kind: &[u8] = if matches!(self, Body::Text(_)) {
            b"text"
        } else {
            b"blob"
        };
        Digest::of(&[media_type.unwrap_or_default().as_bytes(), kind, self.as_bytes()])
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies are other people's data: a log line gets their size, never their content.
        let kind = if matches!(self, Body::Text(_)) {
            "Text"
        } else {
            "Blob"
        };
        write!(f, "Body::{kind}({} bytes)", self.as_bytes().len())
    }
}

/// Fetches the body of a resource that the bus does not hold.
pub trait ReadBody: Send + Sync + 'static {
    /// Reads the current body. The error's text reaches the client.
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

/// Where the body of a resource comes from.
#[derive(Clone)]
pub enum Content {
    /// The bus holds it, and decides by its digest whether an update changed anything.
    Held(Body),
    /// A reader fetches it when somebody asks; its owner says `touch` when it changed.
    Lazy(Arc<dyn ReadBody>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Held(body) => body.fmt(f),
            Content::Lazy(_) => f.write_str("Lazy"),
        }
    }
}

/// A resource as a publisher registers it.
///
/// ```
/// use tidings_actors::{Body, Resource};
/// let held = Resource::text("demo://greeting", "hello")?.title("Greeting").media_type("text/plain");
/// let lazy = Resource::lazy("demo://clock", || async { Ok(Body::text("noon")) })?.subscribable(false);
/// assert_eq!(held.descriptor().name, "greeting");
/// assert!(!lazy.descriptor().subscribable);
/// # Ok::<(), tidings_actors::InvalidUri>(())
/// ```
#[derive(Debug, Clone)]
pub struct Resource {
    descriptor: Descriptor,
    content: Content,
}

impl Resource {
    /// A resource from its parts.
    pub fn new(descriptor: Descriptor, content: Content) -> Resource {
        Resource { descriptor, content }
    }

    /// A text resource whose body the bus holds; media type `text/plain` unless changed.
    ///
    /// # Errors
    /// [`InvalidUri`] when `uri` is none.
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

    /// A binary resource whose body the bus holds; media type `application/octet-stream` unless changed.
    ///
    /// # Errors
    /// [`InvalidUri`] when `uri` is none.
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

    /// A resource whose body `reader` fetches on each read; say `touch` when it changed.
    ///
    /// # Errors
    /// [`InvalidUri`] when `uri` is none.
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

    /// Names it for programs.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Resource {
        self.descriptor.name = name.into();
        self
    }

    /// Names it for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Resource {
        self.descriptor.title = Some(title.into());
        self
    }

    /// Says what it holds.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Resource {
        self.descriptor.description = Some(description.into());
        self
    }

    /// Sets the media type of its body.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Resource {
        self.descriptor.media_type = Some(media_type.into());
        self
    }

    /// Says whether clients may subscribe to it; they may unless told otherwise.
    #[must_use]
    pub fn subscribable(mut self, subscribable: bool) -> Resource {
        self.descriptor.subscribable = subscribable;
        self
    }

    /// Says whether it is in the resource list; it is unless told otherwise.
    #[must_use]
    pub fn listed(mut self, listed: bool) -> Resource {
        self.descriptor.listed = listed;
        self
    }

    /// What clients see of it in a list.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The URI that names it.
    pub fn uri(&self) -> &ResourceUri {
        &self.descriptor.uri
    }

    /// Where its body comes from.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Size of the held body in bytes; 0 for a lazy one.
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
    fn the_name_is_the_last_segment() {
        let name = |uri: &str| Descriptor::new(ResourceUri::new(uri).unwrap()).name;
        assert_eq!(name("demo://a/b.md"), "b.md");
        assert_eq!(name("demo://a/"), "a");
        assert_eq!(name("urn:isbn:12"), "12");
        assert_eq!(name("x:"), "x:");
    }

    #[test]
    fn every_listed_field_shows_in_the_digest() {
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
                media_type: some(),
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
    fn same_bytes_and_media_type_are_the_same_content() {
        let text = Body::text("a");
        assert_eq!(
            text.digest(Some("text/plain")),
            Body::text("a").digest(Some("text/plain"))
        );
        assert_ne!(text.digest(Some("text/plain")), text.digest(Some("text/html")));
        assert_ne!(text.digest(None), Body::blob("a").digest(None));
    }

    #[test]
    fn a_body_never_prints_its_content() {
        assert_eq!(format!("{:?}", Body::text("secret")), "Body::Text(6 bytes)");
    }
}
