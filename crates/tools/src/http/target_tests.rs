use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tollgate_outbound::special;

use super::*;

fn host(url: &str) -> String {
    Target::parse(url).unwrap().host.to_string()
}

#[test]
fn a_host_has_one_spelling() {
    for (url, normal) in [
        ("https://Example.COM/a", "example.com"),
        ("https://example.com./a", "example.com"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://XN--BCHER-KVA.example./", "xn--bcher-kva.example"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://0x7F.1/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://127.0.0.1../", "127.0.0.1"),
        ("http://１２７.０.０.１/", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1"),
        ("http://%31%32%37.0.0.1/", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
        ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
        ("http://[::127.0.0.1]/", "[::7f00:1]"),
    ] {
        assert_eq!(host(url), normal, "{url}");
    }
}

#[test]
fn an_address_has_one_spelling() {
    for (url, normal) in [
        ("HTTP://Example.com:80/a/../b?q#frag", "http://example.com/b?q"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com.:8443/x", "https://example.com:8443/x"),
        (" https://example.com/ ", "https://example.com/"),
        ("http:\\\\example.com\\x", "http://example.com/x"),
    ] {
        assert_eq!(Target::parse(url).unwrap().url.as_str(), normal, "{url}");
    }
}

#[test]
fn what_is_not_fetched_says_why() {
    for (url, says) in [
        ("file:///etc/passwd", "`file`"),
        ("data:text/plain,x", "`data`"),
        ("ftp://example.com/", "`ftp`"),
        ("gopher://127.0.0.1:70/_x", "`gopher`"),
        ("javascript:alert(1)", "`javascript`"),
        ("unix:/run/x.sock", "`unix`"),
        ("https://user@example.com/", "user name"),
        ("https://user:pass@example.com/", "user name"),
        ("https://:pass@example.com/", "user name"),
        ("https://example.com@127.0.0.1/", "user name"),
        ("example.com", "looks like https://"),
        ("", "looks like https://"),
        ("http://", "looks like https://"),
        ("http://a..b/", "empty part"),
        ("http://example.com../", "empty part"),
        ("http://exa mple.com/", "looks like https://"),
        ("http://[::1/", "looks like https://"),
        ("http://256.256.256.256/", "looks like https://"),
    ] {
        let problem = Target::parse(url).unwrap_err();
        assert!(problem.to_string().contains(says), "{url}: {problem}");
    }
    let long = format!("https://example.com/{}", "x".repeat(LONGEST_URL));
    assert_eq!(Target::parse(&long), Err(HttpProblem::TooLong));
}

#[test]
fn a_message_does_not_repeat_the_path() {
    let problem = Target::parse("ftp://example.com/?token=abcdef").unwrap_err();
    assert!(!problem.to_string().contains("abcdef"), "{problem}");
}

/// One of the ways in which people write an IPv4 address.
fn spelled(address: Ipv4Addr, form: u8, dot: bool, port: Option<u16>) -> String {
    let bits = address.to_bits();
    let [a, b, c, d] = address.octets();
    let [high, low] = [bits >> 16, bits & 0xffff];
    let host = match form {
        0 => address.to_string(),
        1 => bits.to_string(),
        2 => format!("{bits:#x}"),
        3 => format!("0{bits:o}"),
        4 => format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        5 => format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        6 => format!("{a}.{}", bits & 0x00ff_ffff),
        7 => format!("{a}.{b}.{low}"),
        8 => format!("{a:#X}.{b}.0{c:o}.{d}"),
        9 => format!("000{a:o}.{b}.{low:#x}"),
        10 => format!("[::ffff:{address}]"),
        11 => format!("[::{address}]"),
        12 => format!("[::ffff:{high:x}:{low:x}]"),
        13 => format!("[64:ff9b::{address}]"),
        14 => format!("[2002:{high:x}:{low:x}::1]"),
        15 => format!("[::ffff:0:{address}]"),
        16 => address.to_string().replace('.', "。"),
        17 => address.to_string().replace('.', "%2e"),
        18 => format!("[2001:0:{high:x}:{low:x}::]"),
        _ => format!("[2001:0:808:808:0:0:{:x}:{:x}]", !high & 0xffff, !low & 0xffff),
    };
    let dot = if dot && !host.starts_with('[') { "." } else { "" };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("http://{host}{dot}{port}/x")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// However a special address is written, it is read as an address, and as a special one.
    #[test]
    fn no_spelling_makes_a_special_address_public(
        bits in prop_oneof![
            any::<u32>(),
            (0x7f00_0000u32..0x8000_0000), (0x0a00_0000u32..0x0b00_0000),
            (0xc0a8_0000u32..0xc0a9_0000), (0xac10_0000u32..0xac20_0000),
            (0xa9fe_0000u32..0xa9ff_0000), (0x6440_0000u32..0x6480_0000),
            (0xe000_0000u32..=0xffff_ffff), (0x0000_0000u32..0x0100_0000),
            Just(0xa9fe_a9fe),
        ],
        form in 0u8..20,
        dot in any::<bool>(),
        port in prop::option::of(any::<u16>()),
    ) {
        let address = Ipv4Addr::from_bits(bits);
        let url = spelled(address, form, dot, port);
        let target = Target::parse(&url).unwrap();
        let read = target.host.ip();
        prop_assert!(read.is_some(), "{url} is read as a name");
        if special(IpAddr::V4(address)).is_some() {
            prop_assert!(special(read.unwrap()).is_some(), "{url} is {read:?}");
        }
        // What is connected to is what was checked.
        prop_assert_eq!(
            target.url.host_str().unwrap().trim_matches(['[', ']']).parse::<IpAddr>().unwrap(),
            read.unwrap()
        );
    }

    #[test]
    fn a_mapped_address_is_the_one_inside(bits in any::<u32>()) {
        let inside = Ipv4Addr::from_bits(bits);
        let mapped: Ipv6Addr = inside.to_ipv6_mapped();
        prop_assert_eq!(host(&format!("http://[{mapped}]/")), inside.to_string());
    }

    /// Reading is total, and what was read once is read again as the same.
    #[test]
    fn normal_stays_normal(url in "(http|https|HTTP)://[a-zA-Z0-9.%\\-_@:\\[\\]]{0,40}(/[!-~]{0,20})?") {
        if let Ok(target) = Target::parse(&url) {
            prop_assert_eq!(Target::parse(target.url.as_str()), Ok(target.clone()));
            prop_assert_eq!(target.host.as_str(), target.host.as_str().to_lowercase());
            prop_assert!(!target.host.as_str().ends_with('.'));
        }
    }

    #[test]
    fn nothing_makes_it_panic(url in ".{0,200}") {
        _ = Target::parse(&url);
    }
}
