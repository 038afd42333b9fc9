//! Which addresses belong to everybody, and which only to a machine or a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not one of the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Of a machine or a private network. An operator may allow these.
    Private(&'static str),
    /// Of the machine's surroundings, where clouds hand out credentials, or of no host at all. Only a host
    /// that the operator names may have one.
    Never(&'static str),
}

impl Special {
    /// What kind of address it is, for a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Private(what) | Self::Never(what) => what,
        }
    }
}

/// What is special about an address, if it is not a public one.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    use Special::{Never, Private};
    Some(match address.octets() {
        [0, ..] => Never("an address of no host"),
        [127, ..] => Private("this machine itself"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Private("a private address"),
        [100, 64..=127, ..] => Private("an address shared behind a carrier"),
        [169, 254, ..] => Never("a link-local address"),
        // Not link-local by its number, but by what it does: it serves the host that runs a machine.
        [168, 63, 129, 16] => Never("an address of the cloud's own"),
        [192, 0, 0, _] | [192, 88, 99, _] => Never("a reserved address"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Never("an address for examples"),
        [198, 18..=19, ..] => Never("an address for benchmarks"),
        [224..=239, ..] => Never("a multicast address"),
        [255, 255, 255, 255] => Never("the broadcast address"),
        [240..=255, ..] => Never("a reserved address"),
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    use Special::{Never, Private};
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Never("an address of no host"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Private("this machine itself"),
        // IPv4 in IPv6 clothes, in the forms that there are: what counts is the address inside.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => return special_v4(inside(high, low)),
        [0x64, 0xff9b, ..] => Never("an address of a local translator"),
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            let server = special_v4(inside(server_high, server_low));
            return server.or_else(|| special_v4(inside(!high, !low)));
        }
        [0x2001, 0x2, 0, ..] => Never("an address for benchmarks"),
        [0x2001, 0..=0x1ff, ..] => Never("a reserved address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Never("an address for examples"),
        [0xfc00..=0xfdff, ..] => Private("a private address"),
        [0xfe80..=0xfebf, ..] => Never("a link-local address"),
        [0xfec0..=0xfeff, ..] => Private("a private address"),
        [0xff00..=0xffff, ..] => Never("a multicast address"),
        [0x2000..=0x3fff, ..] => return None,
        // Nothing else was ever given out.
        _ => Never("a reserved address"),
    })
}

/// The IPv4 address in two segments of an IPv6 one.
fn inside(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
