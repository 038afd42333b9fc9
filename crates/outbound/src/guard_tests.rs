use super::*;

async fn refusal(guard: &AddressGuard, address: &str) -> String {
    match guard.check(address).await {
        Ok(checked) => panic!("{address} passed: {checked:?}"),
        Err(refused) => refused.to_string(),
    }
}

#[tokio::test]
async fn an_address_inside_is_refused_however_it_is_written() {
    let guard = AddressGuard::default();
    for (host, leads_to) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.01", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("%31%32%37.0.0.1", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("10.0.0.8", "10.0.0.8"),
        ("169.254.169.254", "169.254.169.254"),
        ("[::1]", "::1"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1"),
        ("[fd00::1]", "fd00::1"),
    ] {
        for scheme in ["http", "https"] {
            let address = format!("{scheme}://{host}:8080/hook?token=canary");
            let refused = refusal(&guard, &address).await;
            assert!(refused.contains(&format!("leads to {leads_to}, which is")), "{refused}");
            assert!(refused.contains("have the operator allow this host"), "{refused}");
            assert!(!refused.contains("canary"), "{refused}");
            let form = guard.check_form(&address).map_err(|refused| refused.to_string());
            assert_eq!(form, Err(refused));
        }
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused() {
    let refused = refusal(&AddressGuard::default(), "http://localhost:1/").await;
    assert!(refused.starts_with("the host `localhost` leads to "), "{refused}");
    assert!(refused.contains("which is this machine itself"), "{refused}");
}

#[tokio::test]
async fn what_is_no_address_of_a_webhook_is_refused_with_advice() {
    let long = format!("https://example.com/{}", "a".repeat(LONGEST));
    for (address, said) in [
        ("", "looks like https://example.com/path"),
        ("example.com/hook", "looks like https://example.com/path"),
        ("https://", "looks like https://example.com/path"),
        ("http://[::1", "looks like https://example.com/path"),
        ("http://256.1.1.1/", "looks like https://example.com/path"),
        ("ftp://example.com/", "begins with https:// or http://"),
        ("file:///etc/passwd", "begins with https:// or http://"),
        ("unix:/run/x", "begins with https:// or http://"),
        ("https://user@example.com/", "leave them out"),
        ("https://user:canary@example.com/", "leave them out"),
        ("https://:canary@example.com/", "leave them out"),
        (&long, "use a shorter one"),
        ("https://no-such-host.invalid/", "check its spelling"),
    ] {
        let refused = refusal(&AddressGuard::default(), address).await;
        assert!(refused.contains(said), "{address}: {refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}

#[tokio::test]
async fn one_address_inside_refuses_all_of_a_host() {
    let host = Host { name: "both.example".to_owned(), ip: None };
    let addresses: [IpAddr; 2] = ["8.8.8.8".parse().unwrap(), "::1".parse().unwrap()];
    let guard = AddressGuard::default();
    assert!(guard.check_addresses(&host, addresses).is_err());
    assert!(guard.check_addresses(&host, [addresses[0]]).is_ok());
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // A name that leads nowhere by now, or elsewhere.
    for name in ["Moved.invalid", "example.com"] {
        let url = Url::parse(&format!("http://{name}:{}/", address.port())).unwrap();
        let checked = Checked { url: url.clone(), addresses: vec![address] };
        let client = checked.client(Duration::from_secs(20)).unwrap();
        let asking = tokio::spawn(client.get(url).send());
        let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
        assert!(accepted.unwrap().is_ok());
        assert!(asking.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_operator_can_allow_what_is_private_but_not_the_clouds_credentials() {
    let guard = AddressGuard { allow_private: true, allowed_hosts: vec![] };
    for address in
        ["http://127.0.0.1/", "http://localhost/", "https://10.2.3.4/", "http://[fd00::1]/"]
    {
        assert!(guard.check(address).await.is_ok(), "{address}");
    }
    for address in
        ["http://169.254.169.254/", "http://[fe80::1]/", "http://0/", "http://224.0.0.1/"]
    {
        assert!(guard.check(address).await.is_err(), "{address}");
    }
}

#[tokio::test]
async fn an_operator_can_allow_a_host_by_name_alone() {
    let hosts = ["LocalHost", "10.0.0.8", "::1", "169.254.1.1"].map(str::to_owned).to_vec();
    let guard = AddressGuard { allow_private: false, allowed_hosts: hosts };
    for address in
        ["http://LOCALHOST/", "https://10.0.0.8:1/", "http://[::1]/", "http://169.254.1.1/x"]
    {
        assert!(guard.check(address).await.is_ok(), "{address}");
    }
    assert!(guard.check("http://127.0.0.1/").await.is_err());
    assert!(guard.check_form("https://10.0.0.8./").is_ok());
    let checked = guard.check("http://10.0.0.8/a").await.unwrap();
    assert_eq!(checked.addresses(), ["10.0.0.8:80".parse().unwrap()]);
    assert_eq!(checked.url().as_str(), "http://10.0.0.8/a");
}
