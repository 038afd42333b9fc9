use super::*;

#[test]
fn what_is_not_public_is_known() {
    let table = [
        ("127.0.0.1", "this machine itself"),
        ("127.255.0.3", "this machine itself"),
        ("0.0.0.0", "an address of no host"),
        ("0.1.2.3", "an address of no host"),
        ("10.1.2.3", "a private address"),
        ("172.16.0.1", "a private address"),
        ("172.31.255.255", "a private address"),
        ("192.168.1.1", "a private address"),
        ("100.64.0.1", "an address shared behind a carrier"),
        ("100.127.255.255", "an address shared behind a carrier"),
        ("169.254.169.254", "a link-local address"),
        ("168.63.129.16", "an address of the cloud's own"),
        ("192.0.0.8", "a reserved address"),
        ("192.0.2.1", "an address for examples"),
        ("198.51.100.7", "an address for examples"),
        ("203.0.113.9", "an address for examples"),
        ("198.18.0.1", "an address for benchmarks"),
        ("198.19.255.1", "an address for benchmarks"),
        ("224.0.0.1", "a multicast address"),
        ("239.255.255.250", "a multicast address"),
        ("240.0.0.1", "a reserved address"),
        ("255.255.255.255", "the broadcast address"),
        ("::", "an address of no host"),
        ("::1", "this machine itself"),
        ("::7f00:1", "this machine itself"),
        ("::ffff:127.0.0.1", "this machine itself"),
        ("::ffff:10.0.0.1", "a private address"),
        ("::ffff:0:169.254.169.254", "a link-local address"),
        ("64:ff9b::10.0.0.1", "a private address"),
        ("64:ff9b:1::1", "an address of a local translator"),
        ("2002:7f00:1::", "this machine itself"),
        ("2002:c0a8:101::1", "a private address"),
        ("2001:0:a00:1::", "a private address"),
        // The client of a Teredo address is written inverted.
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", "this machine itself"),
        ("2001:2::1", "an address for benchmarks"),
        ("2001:10::1", "a reserved address"),
        ("2001:db8::1", "an address for examples"),
        ("3fff:1::1", "an address for examples"),
        ("fc00::1", "a private address"),
        ("fdff::1", "a private address"),
        ("fec0::1", "a private address"),
        ("fe80::1", "a link-local address"),
        ("ff02::1", "a multicast address"),
        ("100::1", "a reserved address"),
        ("4000::1", "a reserved address"),
    ];
    for (address, what) in table {
        let found = special(address.parse().unwrap()).map(Special::what);
        assert_eq!(found, Some(what), "{address}");
    }
}

#[test]
fn what_is_public_is_left_alone() {
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
        "::ffff:8.8.8.8",
        "2002:808:808::1",
        "64:ff9b::8.8.8.8",
        "2001:4860:4860::8888",
    ] {
        assert_eq!(special(address.parse().unwrap()), None, "{address}");
    }
}
