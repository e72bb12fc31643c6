//! The content that notices carry to clients that ask for it (`?body=1` on `/v1/events` and `/v1/ws`).
//!
//! A frame with content is made when a connection can take it, and only if the resource is still at the etag
//! of the notice. All connections that write it at that time share its bytes, and the last one frees them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::limits::{BytesPlace, SharedLimits};
use super::problem::{Problem, ProblemKind};
use crate::auth::{Caller, Object, Right};
use crate::metrics::{self, Limit, NoticeBody, NoticeBodyMetrics};
use crate::{Body, Content, Etag, ResourceUri, WeakBus};

/// The number of entries from which on those of frames that no connection writes any more are removed.
const FRAMES_MIN: usize = 64;

/// The content of a notice, or the reason for which it has none, as fields of its JSON object.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BodyFields<'a> {
    /// The media type of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    /// The content, if it is a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The content in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// The reason for which there is no content.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<&'static str>,
    /// The length of a content that is too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

/// Reads the parameter `body`; one that is empty counts as left out.
///
/// # Errors
/// 400 for another value.
pub(super) fn wants_bodies(value: &str) -> Result<bool, Problem> {
    match value {
        "1" | "true" => Ok(true),
        "" | "0" | "false" => Ok(false),
        other => {
            let shown: String = other.chars().take(40).collect();
            Err(ProblemKind::BadRequest.because(format!("body {shown:?} is neither 1 nor 0")))
        }
    }
}

/// The frames with content of one transport, and the limits of content.
#[derive(Debug)]
pub(super) struct NoticeBodies {
    // Weak, since an open stream must not keep a bus alive whose handles are gone.
    bus: WeakBus,
    limits: SharedLimits,
    frames: Mutex<HeldFrames>,
    metrics: NoticeBodyMetrics,
}

/// The frames that connections are writing.
#[derive(Debug)]
struct HeldFrames {
    held: HashMap<(ResourceUri, Etag), Weak<HeldFrame>>,
    /// The number of entries at which those without a frame are removed.
    sweep_at: usize,
}

/// A frame, with its place among the bodies in flight.
#[derive(Debug)]
struct HeldFrame {
    text: Vec<u8>,
    _place: BytesPlace,
}

/// A handle of a frame, as bytes.
struct SharedFrame(Arc<HeldFrame>);

impl AsRef<[u8]> for SharedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.0.text
    }
}

/// A notice that is about to be written.
pub(super) struct NoticeFrame<'n> {
    pub(super) uri: &'n ResourceUri,
    pub(super) etag: Etag,
    /// The frame without content.
    pub(super) frame: &'n Bytes,
    /// The bytes of the frame from the end of its JSON object on.
    pub(super) tail: usize,
}

impl NoticeFrame<'_> {
    /// Puts fields at the end of the JSON object.
    fn with(&self, fields: &BodyFields<'_>) -> Vec<u8> {
        let (object, tail) = self.frame.split_at(self.frame.len() - self.tail);
        // Room for a reason; a content is longer, and one more allocation costs little beside its copy.
        let mut text = Vec::with_capacity(self.frame.len() + 64);
        text.extend_from_slice(object);
        let start = text.len();
        serde_json::to_writer(&mut text, fields).expect("texts and numbers are JSON");
        // The fields are an object of their own here: its brace becomes the comma before them.
        text[start] = b',';
        text.pop();
        text.extend_from_slice(tail);
        text
    }
}

impl NoticeBodies {
    /// Reads the content of the resources of `bus`. Of `limits` it heeds `http.notice_body_max` and
    /// `http.bodies_bytes_max`.
    pub(super) fn new(bus: WeakBus, limits: SharedLimits) -> NoticeBodies {
        NoticeBodies {
            bus,
            limits,
            frames: Mutex::new(HeldFrames {
                held: HashMap::new(),
                sweep_at: FRAMES_MIN,
            }),
            metrics: NoticeBodyMetrics::new(),
        }
    }

    /// Returns the frame of a notice with the content of its etag, if `caller` may read it and the limits
    /// allow, otherwise with the reason.
    pub(super) fn frame(&self, caller: &Caller, notice: &NoticeFrame<'_>) -> Bytes {
        let (outcome, frame) = match self.content(caller, notice) {
            Ok(frame) => (NoticeBody::Sent, frame),
            Err(Omitted { reason, bytes }) => {
                let fields = BodyFields {
                    omitted: Some(reason.label()),
                    bytes,
                    ..BodyFields::default()
                };
                (reason, notice.with(&fields).into())
            }
        };
        self.metrics.count(outcome);
        frame
    }

    fn content(&self, caller: &Caller, notice: &NoticeFrame<'_>) -> Result<Bytes, Omitted> {
        // Judged each time, and told to the audit like a read: the right may have gone since the last notice.
        if caller
            .may(Right::Read, Object::Resource(notice.uri.as_str()))
            .is_err()
        {
            return Err(NoticeBody::NotReadable.into());
        }
        // Looked for by etag, as each subscriber that comes back with an old etag has a notice of its own.
        let key = (notice.uri.clone(), notice.etag);
        if let Some(held) = self.lock().held.get(&key)
            && let Some(frame) = held.upgrade()
        {
            return Ok(Bytes::from_owner(SharedFrame(frame)));
        }
        let frame = Arc::new(self.make(notice)?);
        // Two connections may have made it at once; then the later one is shared.
        self.lock().keep(key, &frame);
        Ok(Bytes::from_owner(SharedFrame(frame)))
    }

    /// Makes the frame with content.
    fn make(&self, notice: &NoticeFrame<'_>) -> Result<HeldFrame, Omitted> {
        let Ok(bus) = self.bus.upgrade() else {
            return Err(NoticeBody::Superseded.into());
        };
        let (resource, content) = match bus.cached_resource(notice.uri.as_str()) {
            Ok(Some((resource, etag))) if etag == notice.etag => match resource.content() {
                Content::Held(body) => (resource.clone(), body.clone()),
                // Its content may be newer than the etag.
                Content::Lazy(_) => return Err(NoticeBody::NotHeld.into()),
            },
            // A member of a template is in no index.
            Ok(None) => return Err(NoticeBody::NotHeld.into()),
            // A notice of the newer etag follows.
            _ => return Err(NoticeBody::Superseded.into()),
        };
        let bytes = content.as_bytes().len();
        if bytes > self.limits.notice_body_max() {
            metrics::limit_reached(Limit::NoticeBodyBytes);
            return Err(Omitted {
                reason: NoticeBody::TooLarge,
                bytes: Some(bytes),
            });
        }
        let media_type = resource.descriptor().media_type.as_deref();
        let mut fields = BodyFields {
            media_type,
            ..BodyFields::default()
        };
        match &content {
            Body::Text(text) => fields.text = Some(text),
            Body::Blob(blob) => fields.base64 = Some(STANDARD.encode(blob)),
        }
        // Escapes and base64 make it longer than the content, and the place counts what is held.
        let text = notice.with(&fields);
        match self.limits.place_body(text.len()) {
            Some(place) => Ok(HeldFrame { text, _place: place }),
            None => Err(NoticeBody::Busy.into()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HeldFrames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldFrames {
    fn keep(&mut self, key: (ResourceUri, Etag), frame: &Arc<HeldFrame>) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, frame| frame.strong_count() > 0);
            // So that a sweep looks at each entry a few times at most.
            self.sweep_at = FRAMES_MIN.max(2 * self.held.len());
        }
        self.held.insert(key, Arc::downgrade(frame));
    }
}

/// The reason for which a notice comes without content.
struct Omitted {
    reason: NoticeBody,
    bytes: Option<usize>,
}

impl From<NoticeBody> for Omitted {
    fn from(reason: NoticeBody) -> Omitted {
        Omitted { reason, bytes: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HttpConfig, QuotaConfig, SessionConfig};
    use crate::{Bus, Resource};
    use serde_json::{Value, json};

    const A: &str = "demo://a";

    fn bodies(bus: &Bus, notice_body_max: usize, bodies_bytes_max: usize) -> NoticeBodies {
        let http = HttpConfig {
            notice_body_max,
            bodies_bytes_max,
            ..HttpConfig::default()
        };
        let limits = SharedLimits::new(&http, &SessionConfig::default(), &QuotaConfig::default());
        NoticeBodies::new(bus.downgrade(), limits)
    }

    /// Returns the frame of a notice, and its fields.
    fn framed(bodies: &NoticeBodies, uri: &str, etag: Etag) -> (Bytes, Value) {
        let notice = NoticeFrame {
            uri: &ResourceUri::new(uri).unwrap(),
            etag,
            frame: &Bytes::from_static(b"data: {\"n\":1}\n\n"),
            tail: 3,
        };
        let frame = bodies.frame(&Caller::unlimited(None), &notice);
        let text = std::str::from_utf8(&frame).unwrap();
        let object = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        let value = serde_json::from_str(object).unwrap();
        (frame, value)
    }

    #[tokio::test]
    async fn content_is_the_one_of_the_etag() {
        let bus = Bus::builder().start().unwrap();
        let bodies = bodies(&bus, 10, 1 << 20);
        let old = bus.register(Resource::text(A, "x\n\"").unwrap()).await.unwrap();
        let (_, fields) = framed(&bodies, A, old.etag);
        assert_eq!(fields["n"], 1);
        assert_eq!(fields["text"], "x\n\"");
        let blob = Resource::blob(A, vec![0_u8, 255]).unwrap();
        let new = bus.update(blob).await.unwrap();
        let (_, fields) = framed(&bodies, A, old.etag);
        assert_eq!(fields, json!({ "n": 1, "omitted": "superseded" }));
        let (_, fields) = framed(&bodies, A, new.etag);
        let media_type = "application/octet-stream";
        assert_eq!(
            fields,
            json!({ "n": 1, "mediaType": media_type, "base64": "AP8=" })
        );
        let large = bus
            .update(Resource::text(A, "12345678901").unwrap())
            .await
            .unwrap();
        let (_, fields) = framed(&bodies, A, large.etag);
        assert_eq!(fields, json!({ "n": 1, "omitted": "too_large", "bytes": 11 }));
    }

    #[tokio::test]
    async fn frame_is_shared_while_it_is_written() {
        let bus = Bus::builder().start().unwrap();
        let bodies = bodies(&bus, 1_000, 1_500);
        let mut etags = Vec::new();
        for uri in [A, "demo://b"] {
            let made = bus
                .register(Resource::text(uri, "x".repeat(1_000)).unwrap())
                .await;
            etags.push(made.unwrap().etag);
        }
        let (first, _) = framed(&bodies, A, etags[0]);
        let (second, _) = framed(&bodies, A, etags[0]);
        assert_eq!(first.as_ptr(), second.as_ptr());
        // Another one would be more than all bodies in flight may have.
        let (_, fields) = framed(&bodies, "demo://b", etags[1]);
        assert_eq!(fields["omitted"], "busy");
        drop((first, second));
        let (third, fields) = framed(&bodies, "demo://b", etags[1]);
        assert_eq!(fields["omitted"], Value::Null);
        assert_eq!(bodies.lock().held.len(), 2);
        drop(third);
        for number in 0..3 * FRAMES_MIN {
            let uri = format!("demo://{number}");
            let made = bus
                .register(Resource::text(uri.as_str(), "x").unwrap())
                .await
                .unwrap();
            framed(&bodies, &uri, made.etag);
        }
        assert!(bodies.lock().held.len() <= FRAMES_MIN);
    }

    #[tokio::test]
    async fn content_that_is_made_when_read_is_left_out() {
        let bus = Bus::builder().start().unwrap();
        let bodies = bodies(&bus, 10, 1 << 20);
        let lazy = Resource::lazy(A, || async { Ok(Body::text("noon")) }).unwrap();
        let made = bus.register(lazy).await.unwrap();
        let (_, fields) = framed(&bodies, A, made.etag);
        assert_eq!(fields["omitted"], "not_held");
    }
}
