//! Who asks, and may they ask from there.
//!
//! A web page must not reach a local gate: Host and Origin are checked, and a page may bring a
//! short-lived token but never a key. A key in a URL is refused, because URLs are written down.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Method, Uri, header, request};
use tollgate_contract::{Error, Quoted, Secret, error::InvalidRequest, text::Clean};
use tollgate_gate::{Gate, Principal};

use crate::app::Settings;

/// How a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Over TCP.
    Tcp {
        /// Where we listen.
        bound: SocketAddr,
        /// Does it come from this machine?
        is_local: bool,
    },
    /// Over a Unix socket.
    Unix,
}

impl Transport {
    /// How a request came in. One that does not say is treated as if it came from far away.
    pub(crate) fn of(parts: &request::Parts) -> Self {
        let far_away = Self::Tcp { bound: SocketAddr::from(([0, 0, 0, 0], 0)), is_local: false };
        parts.extensions.get().copied().unwrap_or(far_away)
    }
}

/// Finds out who asks; refuses what no page and no proxy should send.
pub(crate) fn principal(
    parts: &request::Parts,
    transport: Transport,
    gate: &Gate,
    settings: &Settings,
) -> Result<Principal, Error> {
    check_uri(&parts.uri)?;
    if let Transport::Tcp { bound, .. } = transport {
        check_host(&parts.headers, bound, settings)?;
    }
    let has_origin = check_origin(&parts.headers, settings)?;
    let presented = bearer(&parts.headers)?;
    let principal = match (transport, &presented) {
        // Whoever may open the socket is the owner of this gate, and no page can.
        (Transport::Unix, None) if !has_origin => gate.owner(),
        _ => gate.identify(presented.as_ref()),
    };
    if has_origin && principal.has_long_lived_key() {
        return Err(refuse(
            "a web page may not hold a key; make a short-lived token with POST /v1/tokens and send that",
        ));
    }
    Ok(principal)
}

/// Without a key, from another machine, only the health can be asked.
pub(crate) fn is_from_elsewhere(transport: Transport) -> bool {
    matches!(transport, Transport::Tcp { is_local: false, .. })
}

fn check_uri(uri: &Uri) -> Result<(), Error> {
    // All of it, as a proxy or a log would write it, and as it is meant.
    let prefixes = ["tg_key_", "tg_tok_"];
    let holds = |text: &str| prefixes.iter().any(|prefix| text.contains(prefix));
    let holds_key = match uri.path_and_query() {
        // A plain path is itself, and most are.
        Some(plain) if uri.scheme().is_none() && !plain.as_str().contains(['%', '_']) => false,
        _ => {
            let text = uri.to_string();
            holds(&text) || holds(&decoded(&text))
        }
    };
    if holds_key {
        return Err(refuse(
            "a key in a URL ends up in logs; send it as `Authorization: Bearer …`, and rotate this one",
        ));
    }
    Ok(())
}

/// A path or query without its percent signs, for looking at.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'%').then(|| after.split_at_checked(2)).flatten();
        let byte = digits
            .and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (byte, digits) {
            (Some(byte), Some((_, after))) => {
                bytes.push(byte);
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A page of another site that resolves its own name to this machine sends that name.
fn check_host(headers: &HeaderMap, bound: SocketAddr, settings: &Settings) -> Result<(), Error> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        _ => return Err(refuse("a request names exactly one Host")),
    };
    let name = without_port(host);
    let is_this_machine = name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback() || ip == bound.ip());
    let is_allowed =
        |allowed: &String| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name);
    if is_this_machine || settings.allowed_hosts.iter().any(is_allowed) {
        return Ok(());
    }
    Err(refuse(&format!(
        "the Host {} is not this gate; use 127.0.0.1 or localhost, or name it in `allowed_hosts`",
        Quoted::new(host)
    )))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => {
            name
        }
        _ => host,
    }
}

/// Says whether the request comes from a page, and refuses pages of other sites.
fn check_origin(headers: &HeaderMap, settings: &Settings) -> Result<bool, Error> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(false) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = origin.strip_prefix("http://").is_some_and(|own| !host.is_empty() && own == host);
    let is_allowed = settings.allowed_origins.iter().any(|allowed| allowed == origin);
    if origins.next().is_none() && (is_own || is_allowed) {
        return Ok(true);
    }
    Err(refuse(&format!(
        "the Origin {} may not use this gate; name it in `allowed_origins` if it should",
        Quoted::new(origin)
    )))
}

/// The key or token that came with the request.
fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, Error> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(refuse("a request has one Authorization header"));
    }
    let text = value.to_str().unwrap_or_default();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        // Another scheme is no key of ours, and is treated as one that is malformed.
        _ => "",
    };
    Ok(Some(Secret::new(token.to_owned())))
}

/// A request with a body says that it is JSON: a form of a web page cannot.
pub(crate) fn check_content_type(method: &Method, headers: &HeaderMap) -> Result<(), Error> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = value.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    if is_json {
        return Ok(());
    }
    Err(refuse(&format!("a {method} needs `Content-Type: application/json`")))
}

pub(crate) fn refuse(problem: &str) -> Error {
    InvalidRequest::new(Clean::already(problem.to_owned()), Vec::new()).into()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
