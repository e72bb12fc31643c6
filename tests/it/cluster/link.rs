//! A link between two parties, which a test can cut: connections stay open and carry nothing, like those over
//! a network that has failed. Links run on a thread of their own, so a test that blocks holds none up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::frames::Frames;
use crate::stress::Random;

/// The bytes that are carried at once.
const CHUNK: usize = 16 << 10;

/// Drops a share of the acknowledgements that a server sends.
#[derive(Debug)]
pub(super) struct AckLoss {
    percent: usize,
    random: Mutex<Random>,
    passed: AtomicU64,
    dropped: AtomicU64,
}

impl AckLoss {
    /// Drops `percent` of 100 acknowledgements, chosen by the seed.
    pub(super) fn new(percent: usize, seed: u64) -> Arc<AckLoss> {
        Arc::new(AckLoss {
            percent,
            random: Mutex::new(Random::new(seed)),
            passed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// The acknowledgements that were passed on, and those that were dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.passed.load(Ordering::Relaxed),
            self.dropped.load(Ordering::Relaxed),
        )
    }

    fn drops(&self) -> bool {
        let drops = self.random.lock().unwrap().below(100) < self.percent;
        let counter = match drops {
            true => &self.dropped,
            false => &self.passed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        drops
    }
}

/// A listener whose connections lead to a port.
pub(super) struct Link {
    /// The port at which it listens.
    pub(super) port: u16,
    is_open: watch::Sender<bool>,
    listener: JoinHandle<()>,
}

impl Link {
    /// Makes a link to a port of this machine.
    pub(super) fn to(port: u16) -> Link {
        Link::with(port, None)
    }

    /// Makes a link to a server of NATS that loses acknowledgements.
    pub(super) fn losing(port: u16, loss: Arc<AckLoss>) -> Link {
        Link::with(port, Some(loss))
    }

    fn with(to: u16, loss: Option<Arc<AckLoss>>) -> Link {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_open, state) = watch::channel(true);
        let listener = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(carry(socket, to, state.clone(), loss.clone()));
            }
        });
        Link {
            port,
            is_open,
            listener,
        }
    }

    /// Lets nothing through from now on.
    pub(super) fn cut(&self) {
        self.is_open.send_replace(false);
    }

    /// Lets everything through again, also the bytes that wait.
    pub(super) fn mend(&self) {
        self.is_open.send_replace(true);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    })
}

/// Carries one connection until one of its ends closes it.
async fn carry(near: TcpStream, to: u16, state: watch::Receiver<bool>, loss: Option<Arc<AckLoss>>) {
    if opened(&mut state.clone()).await.is_none() {
        return;
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", to)).await else {
        return;
    };
    // A delay of small messages would be taken for one of the parties.
    near.set_nodelay(true).ok();
    far.set_nodelay(true).ok();
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let filter = loss.map(|loss| (Frames::default(), loss));
    tokio::select! {
        _ = copy(near_in, far_out, state.clone(), None) => {}
        _ = copy(far_in, near_out, state, filter) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<bool>,
    mut filter: Option<(Frames, Arc<AckLoss>)>,
) -> Option<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let count = from.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        opened(&mut state).await?;
        match &mut filter {
            None => to.write_all(&bytes[..count]).await.ok()?,
            Some((frames, loss)) => {
                frames.add(&bytes[..count]);
                while let Some(frame) = frames.next() {
                    if frame.is_acknowledgement && loss.drops() {
                        continue;
                    }
                    to.write_all(&frame.bytes).await.ok()?;
                }
            }
        }
    }
}

/// Waits until the link is open; none if it is gone.
async fn opened(state: &mut watch::Receiver<bool>) -> Option<()> {
    state.wait_for(|is_open| *is_open).await.ok()?;
    Some(())
}
