//! The place of TLS in a build without it: there is never a value of these types.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The TLS side of a server, of which this build has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsTarget {}

impl TlsTarget {
    /// Is never called.
    #[must_use]
    pub fn agreeing_on(&self, _: &[u8]) -> TlsTarget {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn session(&self) -> io::Result<TlsSession> {
        match *self {}
    }
}

/// The TLS state of one connection, of which this build has none.
#[derive(Debug)]
pub enum TlsSession {}

impl TlsSession {
    /// Is never called.
    pub fn agreed(&self) -> Option<String> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn queue(&mut self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn flush(&mut self, _: &mut impl Write) -> io::Result<()> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn read<S: Read + Write>(&mut self, _: &mut S, _: &mut [u8]) -> io::Result<Option<usize>> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn read_blocking(&mut self, _: &mut TcpStream, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn write_blocking(&mut self, _: &mut TcpStream, _: &[u8]) -> io::Result<()> {
        match *self {}
    }
}
