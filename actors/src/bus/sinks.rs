//! Requests about attached subscribers, which have no session.

use std::sync::Arc;

use crossbeam_channel::bounded;
use tokio::sync::oneshot;

use super::Bus;
use crate::messages::{AttachQueue, AttachedAt, CursorRequest};
use crate::model::{Closed, ListKind, NoticeKind, SessionOptions, SubscriberKind};
use crate::outbox::OutboxReader;
use crate::sink::{
    AttachError, AttachOptions, AttachedInfo, Attachment, AttachmentState, DeliveryClass, Feed,
    MakeSubscriber, Subscriber, SubscriberError, Worker,
};

impl Bus {
    /// Attaches a subscriber until its [`Attachment`] is dropped. It gets everything that its filter
    /// accepts and that is published after this returns. `make` creates it on a thread of its own, and
    /// again after a pause when it fails or panics. Waits for admission, but never for `make`.
    ///
    /// ```
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidings_actors::{Bus, Resource};
    /// use tidings_actors::attach::{AttachOptions, Delivery, Subscriber, SubscriberError};
    /// struct Print;
    /// impl Subscriber for Print {
    ///     fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
    ///         if let Delivery::Notice(notice) = delivery {
    ///             eprintln!("{} is at {}", notice.uri, notice.etag);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// let bus = Bus::builder().start()?;
    /// let printing = bus.attach(AttachOptions::new("print"), || Ok(Print)).await?;
    /// bus.register(Resource::text("demo://greeting", "hello")?).await?;
    /// bus.update(Resource::text("demo://greeting", "good day")?).await?;
    /// assert!(printing.detach(std::time::Duration::from_secs(10)).await);
    /// # Ok(()) }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    /// # runtime.unwrap().block_on(run()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub async fn attach<S, F>(&self, options: AttachOptions, mut make: F) -> Result<Attachment, AttachError>
    where
        S: Subscriber,
        F: FnMut() -> Result<S, SubscriberError> + Send + 'static,
    {
        let make: MakeSubscriber = Box::new(move || Ok(Box::new(make()?) as Box<dyn Subscriber>));
        let state = Arc::new(AttachmentState::new(&options));
        let (open, closing) = bounded(0);
        let (done, ended) = oneshot::channel();
        let attachment = self.inner.attachments.reserve(&state, open, ended)?;
        let feed = match state.queue() {
            Some(queue) => {
                let feed = Feed::every(queue.clone(), closing);
                match options.trace {
                    Some(every) => self.inner.tracer.add(state.clone(), every),
                    None => self.attach_queue(&state, options.newest_max).await?,
                }
                feed
            }
            None => Feed::latest(self.attach_outbox(&options, &state).await?, closing),
        };
        let worker = Worker::new(state, feed, options.backoff_max, options.idle_every);
        let run = move || {
            worker.run(make);
            drop(done);
        };
        let name = options.name;
        std::thread::Builder::new()
            .name(format!("tidings-{name}"))
            .spawn(run)
            .map_err(|error| AttachError::Thread {
                name,
                reason: error.to_string(),
            })?;
        Ok(attachment)
    }

    /// Returns all attached subscribers, ordered by name.
    pub fn attached(&self) -> Vec<AttachedInfo> {
        self.inner.attachments.infos()
    }

    /// Forgets how far the subscriber of this name was that was attached to resume
    /// ([`AttachOptions::resume`]); detach it first. The bus keeps the changes that a subscriber has not
    /// taken for as long as it has its cursor.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn forget_cursor(&self, name: &str) -> Result<(), Closed> {
        self.ask(|reply| CursorRequest::Forget(name.into(), reply)).await
    }

    async fn attach_queue(&self, state: &Arc<AttachmentState>, newest_max: usize) -> Result<(), Closed> {
        let attached = self.ask(|reply| AttachQueue {
            state: state.clone(),
            newest_max,
            reply,
        });
        let AttachedAt { position, newest } = attached.await?;
        state.set_attached(position, newest);
        Ok(())
    }

    async fn attach_outbox(
        &self,
        options: &AttachOptions,
        state: &Arc<AttachmentState>,
    ) -> Result<OutboxReader, AttachError> {
        let pending_max = match options.class {
            DeliveryClass::Latest { pending_max } => pending_max,
            DeliveryClass::Every { capacity, .. } => capacity,
        };
        let mut session = SessionOptions::new(SubscriberKind::Attached, options.name.clone());
        session.lists = ListKind::ALL
            .into_iter()
            .filter(|list| options.filter.wants_kind(NoticeKind::List(*list)))
            .collect();
        session.trusted = true;
        let session = self.open(session).await?;
        // Drains one entry at a time, so that the others are conflated until they are taken.
        let reader = OutboxReader::open(session.outbox.clone(), 1);
        state.set_outbox(session.outbox.clone());
        session.watch(state.filter().clone(), pending_max).await?;
        session.ready().await?;
        self.inner
            .attachments
            .set_session(&options.name, Box::new(session));
        Ok(reader)
    }
}
