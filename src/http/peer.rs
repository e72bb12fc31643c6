//! The address of a request's peer.

use std::net::{IpAddr, Ipv6Addr};

/// The address that a request's connection comes from. The server that carries the connection puts it into
/// the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// Returns the address under which a peer is counted. One machine has a whole /64 of IPv6, and IPv4
    /// addresses may be written as IPv6 ones.
    pub(crate) fn counted(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
        }
    }
}
