//! The one way in which requests leave: TLS with ring, no proxy, no redirect, bounded time and size.

use std::{
    error::Error,
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{
    ClientBuilder, Response,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use tollgate_contract::text::Clean;

/// How we name ourselves.
pub(crate) const USER_AGENT: &str = concat!("tollgate/", env!("CARGO_PKG_VERSION"));

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// What a client is built from that speaks plain HTTP alone, such as one that talks to the gate itself.
///
/// `reqwest` is compiled once for all of its users, here with TLS but without a choice of how to encrypt, and a
/// client that is built without that choice ends the process. This makes the choice, and does not spend time on
/// reading certificates that nobody needs.
pub fn plain_client() -> Result<ClientBuilder, String> {
    Ok(reqwest::Client::builder().tls_backend_preconfigured(tls(false)?))
}

/// What a client is built from. `https` says whether certificates will be needed. Where it connects to is not looked
/// at: this is for addresses that the operator chose.
pub fn builder(https: bool, timeout: Duration) -> Result<ClientBuilder, String> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls(https)?)
        .user_agent(USER_AGENT)
        // A proxy of the environment would see tokens, and would reach what we are not to reach.
        .no_proxy()
        // A redirect leads where nobody checked, and takes the body along.
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT.min(timeout))
        .timeout(timeout))
}

/// What a client is built from that connects to these addresses and nowhere else, whatever name it is given: it
/// has no other way to resolve one. An IP address in place of a name is connected to as it stands.
pub fn pinned_client(
    https: bool,
    timeout: Duration,
    addresses: Vec<SocketAddr>,
) -> Result<ClientBuilder, String> {
    Ok(builder(https, timeout)?.dns_resolver(Pinned(addresses)))
}

/// Resolves every name to what was checked before.
struct Pinned(Vec<SocketAddr>);

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// How to encrypt, and whose certificates to believe: those that the system believes. Reading them takes
/// a while, so it is done once.
fn tls(https: bool) -> Result<ClientConfig, String> {
    static TLS: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    static PLAIN: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    if https {
        TLS.get_or_init(|| believing_the_system().map_err(|error| {
            format!("the root certificates of this machine cannot be used ({error}); install its package of them, often called ca-certificates")
        })).clone()
    } else {
        // A machine without certificates can still be used where none are needed.
        PLAIN.get_or_init(|| believing_nobody().map_err(|error| error.to_string())).clone()
    }
}

fn believing_the_system() -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_platform_verifier()?;
    Ok(config.with_no_client_auth())
}

fn believing_nobody() -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The body of an answer, if it is no larger than `most`.
pub(crate) async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(problem)? {
        if bytes.len() + piece.len() > most {
            return Err(format!("the answer is larger than {most} bytes"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// What went wrong, down to the cause, without the address: it may hold a token.
pub fn problem(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer came in time".to_owned();
    }
    let error = error.without_url();
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors say what their cause says.
        if !sentence.ends_with(&text) {
            sentence = format!("{sentence}: {text}");
        }
        cause = error.source();
    }
    Clean::new(&sentence).to_string()
}
