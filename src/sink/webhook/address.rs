//! The check that a webhook goes to a public address.
//!
//! The resolver itself leaves out addresses that are not public, so the address that is checked is the one
//! that is connected to. A name that resolves differently the second time gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// IPv4 networks outside the public internet, as address and prefix length (RFC 6890).
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// IPv6 networks within 2000::/3 that are outside the public internet.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    // Teredo and other protocol assignments; documentation; 6to4, whose IPv4 part may be private;
    // documentation.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Returns true if the public internet routes `address`.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, length)| {
        let differ = network.to_bits() ^ address.to_bits();
        differ >> (32 - length) == 0
    })
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    let segments = address.segments();
    // The well-known prefix of NAT64 (RFC 6052): the last 32 bits are the IPv4 address that is reached.
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(Ipv4Addr::from_bits(address.to_bits() as u32));
    }
    // Only 2000::/3 is allocated for the internet; loopback, private, link-local, multicast and
    // IPv4-compatible addresses are all outside.
    let allocated = segments[0] & 0xe000 == 0x2000;
    allocated
        && !SPECIAL_V6.iter().any(|(network, length)| {
            let differ = network.to_bits() ^ address.to_bits();
            differ >> (128 - length) == 0
        })
}

/// Returns true if the host of `url` is an IP address that is not public. Host names are checked by
/// [`PublicOnly`].
pub(super) fn names_private(url: &Url) -> bool {
    // The URL parser has turned forms such as 127.1 or 0x7f000001 into dotted addresses.
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse() {
        Ok(address) => !is_public(address),
        Err(_) => false,
    }
}

/// The resolver of the operating system, without addresses that are not public.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| is_public(found.ip())).collect();
            if public.is_empty() {
                return Err(format!(
                    "{} has no public address; set allow_private to reach it",
                    name.as_str()
                )
                .into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn special_addresses_are_not_public() {
        for special in [
            "127.0.0.1",
            "127.255.255.255",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001::1",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.255.255",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn disguised_private_addresses_are_found() {
        for (url, private) in [
            ("http://127.0.0.1/", true),
            ("http://127.1/", true),
            ("http://2130706433/", true),
            ("http://0x7f.0.0.1:80/", true),
            ("http://[::1]/", true),
            ("http://[::ffff:7f00:1]/", true),
            ("http://1.1.1.1/", false),
            ("http://localhost/", false),
        ] {
            assert_eq!(names_private(&Url::parse(url).unwrap()), private, "{url}");
        }
    }

    #[tokio::test]
    async fn name_of_a_private_address_is_not_resolved() {
        let refused = PublicOnly
            .resolve("localhost".parse().unwrap())
            .await
            .err()
            .unwrap();
        assert!(
            refused.to_string().starts_with("localhost has no public address"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn mapped_address_counts_as_its_ipv4(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(is_public(address.to_ipv6_mapped().into()), is_public(address.into()));
        }
    }
}
