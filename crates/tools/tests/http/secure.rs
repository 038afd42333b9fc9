//! Encrypted connections: whom we believe, and that nothing falls back to plain text.

use std::{fs, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};
use tollgate_tools::http::HttpProblem;

use crate::support::{Fixture, Server, again, is_role, passes, text};

/// A server with a certificate for `name`, and the certificate of whoever vouches for it. `/page` is a page, everything
/// else leads to `elsewhere`.
async fn encrypted(name: &str, elsewhere: String) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer_key = KeyPair::generate().unwrap();
    let vouching = params.self_signed(&issuer_key).unwrap().pem();
    let issuer = Issuer::new(params, issuer_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Who does not believe us goes away.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => break,
                }
            }
            let answer = if request.starts_with(b"GET /page ") {
                "HTTP/1.1 200 X\r\ncontent-length: 6\r\n\r\nsecure".to_owned()
            } else {
                format!("HTTP/1.1 302 X\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n")
            };
            _ = stream.write_all(answer.as_bytes()).await;
            _ = stream.shutdown().await;
        }
    });
    (port, vouching)
}

#[tokio::test]
async fn a_certificate_counts_and_encryption_is_not_given_up_on_the_way() {
    if is_role("believes") {
        let port = std::env::var("PORT").unwrap();
        let fixture = Fixture::new();
        let get = async |url: String| fixture.get(&url).await;
        let page = get(format!("https://localhost:{port}/page")).await.unwrap().page;
        assert_eq!(page.text, "secure");
        let problem = get(format!("https://localhost:{port}/plain")).await.unwrap_err();
        assert!(problem.to_string().contains("from https:// to http://"), "{problem}");
        // The certificate is for a name and not for this address.
        let problem = get(format!("https://127.0.0.1:{port}/page")).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::Broken { .. }), "{problem}");
        return;
    }
    let plain = Server::start(|_| text("in the open")).await;
    let (port, vouching) = encrypted("localhost", plain.url("/")).await;
    // Nobody here vouches for it.
    let problem = Fixture::new().get(&format!("https://localhost:{port}/page")).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::Broken { .. }), "{problem}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ca.pem"), vouching).unwrap();
    let test = "secure::a_certificate_counts_and_encryption_is_not_given_up_on_the_way";
    let mut child = again(test, "believes");
    child.env("PORT", port.to_string()).env("SSL_CERT_FILE", folder.path().join("ca.pem"));
    child.env_remove("SSL_CERT_DIR");
    passes(child).await;
    assert_eq!(plain.connections(), 0);
}
