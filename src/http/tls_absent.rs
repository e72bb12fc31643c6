//! The place of TLS in a build without it: there is never a value of [`Tls`].

use tokio::sync::watch;

use crate::config::TlsConfig;

/// TLS that cannot be used: this build has none.
#[derive(Debug, thiserror::Error)]
#[error("this build speaks no TLS: remove the section [tls], or build with tidings' feature \"tls\"")]
pub struct TlsError;

/// The TLS side of listeners, of which this build has none.
#[derive(Debug, Clone)]
pub enum Tls {}

impl Tls {
    /// Returns none if TLS is off.
    ///
    /// # Errors
    /// TLS is on.
    pub fn load(config: &TlsConfig) -> Result<Option<Tls>, TlsError> {
        match config.certificate {
            Some(_) => Err(TlsError),
            None => Ok(None),
        }
    }

    /// Returns the mistake of a configuration with TLS.
    pub fn check(config: &TlsConfig) -> Vec<TlsError> {
        Tls::load(config).err().into_iter().collect()
    }

    /// Never called, as there is no value.
    #[allow(clippy::unused_async, reason = "the same form as with TLS")]
    pub async fn reload(&self) {
        match *self {}
    }

    /// Never called, as there is no value.
    pub fn generation(&self) -> watch::Receiver<u64> {
        match *self {}
    }

    /// Never called, as there is no value.
    pub fn follow_files(&self) {
        match *self {}
    }
}
