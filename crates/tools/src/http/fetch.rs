//! The fetch itself: ask, look into the cache, resolve, connect, follow, read.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use reqwest::{
    Response, StatusCode,
    header::{
        ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION,
    },
};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tollgate_contract::text::Clean;
use tollgate_outbound::{Special, pinned_client, problem, resolve, special};

use super::{
    Host, HttpConfig, HttpProblem, Metadata, Page, Reach,
    cache::{Cache, Kept, Passed},
    decode::{ACCEPTED, Body, Coding, Room},
    readable::readable,
    target::Target,
};

/// What is asked for, in the order of preference.
const WANTED: &str = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,application/xml;q=0.8,*/*;q=0.5";

/// How many headers an answer may have, and how long they may be together.
const MOST_HEADERS: usize = 100;
const HEADERS: usize = 64 * 1024;

/// The most seconds that a configuration can give a fetch.
const LONGEST: u64 = 24 * 60 * 60;

/// The longest content type that is repeated.
const CONTENT_TYPE_LENGTH: usize = 200;

/// Decides how far a host may be reached.
pub type Reaches<'a> = &'a (dyn Fn(&Host) -> Reach + Sync);

/// One call of `http.get`.
pub struct Get<'a> {
    /// The address.
    pub url: &'a str,
    /// May an earlier answer be given, and this one be kept?
    pub use_cache: bool,
    /// Milliseconds since 1970, by the gate's clock.
    pub now_ms: i64,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Says when the caller has given up.
    pub cancel: &'a CancellationToken,
    /// Asked for the host of every address on the way.
    pub reach: Reaches<'a>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// What the agent gets.
    pub page: Page,
    /// The headers of the last answer, for what they say of the server's limits; none from the cache.
    pub headers: Vec<(String, String)>,
}

/// Fetches pages. Made once; certificates are read once for all fetches.
pub struct Fetcher {
    config: HttpConfig,
    cache: Option<Arc<Cache>>,
}

/// The way to an answer.
#[derive(Default)]
struct Way {
    passed: Vec<Passed>,
    redirects: Vec<String>,
    /// An answer on the way said that it is not to be kept, or not for long.
    keep_seconds: Option<u64>,
}

impl Fetcher {
    /// A fetcher whose cache is in the data folder. Opening it blocks for a moment.
    pub fn new(config: HttpConfig, data: &Path) -> Self {
        let wanted = config.cache_seconds > 0 && config.cache_bytes > 0;
        let cache = wanted.then(|| Arc::new(Cache::open(data, config.cache_bytes)));
        Self { config, cache }
    }

    /// Fetches a page.
    pub async fn fetch(&self, get: Get<'_>) -> Result<Fetched, HttpProblem> {
        let begun = Instant::now();
        let longest = begun + Duration::from_secs(self.config.timeout_seconds.min(LONGEST));
        let deadline = get.deadline.min(longest);
        tokio::select! {
            biased;
            () = get.cancel.cancelled() => Err(HttpProblem::Cancelled),
            done = timeout_at(deadline, self.within(&get, deadline)) => match done {
                Ok(done) => done,
                Err(_) => {
                    let after = begun.elapsed().as_millis();
                    Err(HttpProblem::TimedOut(u64::try_from(after).unwrap_or(u64::MAX)))
                }
            },
        }
    }

    async fn within(&self, get: &Get<'_>, deadline: Instant) -> Result<Fetched, HttpProblem> {
        let target = Target::parse(get.url)?;
        granted(&target.host, get.reach)?;
        let key = target.url.to_string();
        let cache = self.cache.as_ref().filter(|_| get.use_cache);
        if let Some(cache) = cache
            && let Some(page) = cached(cache, &key, get).await
        {
            return Ok(Fetched { page, headers: Vec::new() });
        }
        let mut way = Way::default();
        let (target, response) = self.followed(target, &mut way, get.reach, deadline).await?;
        way.heed(response.headers());
        let headers = headers(response.headers());
        let page = self.page(target, response, way.redirects, get.now_ms).await?;
        if let Some(cache) = cache
            && page.status == StatusCode::OK
        {
            let keep = way.keep_seconds.unwrap_or(u64::MAX).min(self.config.cache_seconds);
            let kept = Kept { page: page.clone(), hosts: way.passed };
            keep_for(keep, cache, key, kept, get.now_ms).await;
        }
        Ok(Fetched { page, headers })
    }

    /// Asks, and goes where the answers lead, until one is no redirect.
    async fn followed(
        &self,
        mut target: Target,
        way: &mut Way,
        reach: Reaches<'_>,
        deadline: Instant,
    ) -> Result<(Target, Response), HttpProblem> {
        loop {
            let granted = granted(&target.host, reach)?;
            let (addresses, named) = allowed(&target, &granted, deadline).await?;
            way.passed.push(Passed { url: target.url.to_string(), named });
            let response = ask(&target, addresses, deadline).await?;
            let Some(location) = redirect(&response) else {
                return Ok((target, response));
            };
            if way.redirects.len() >= self.config.redirects as usize {
                return Err(HttpProblem::TooManyRedirects(self.config.redirects));
            }
            way.heed(response.headers());
            let next = next(&target, &location)?;
            way.redirects.push(target.url.to_string());
            if way.redirects.iter().any(|seen| seen == next.url.as_str()) {
                return Err(not_followed(target.host, "in a circle"));
            }
            target = next;
        }
    }

    /// Reads an answer.
    async fn page(
        &self,
        target: Target,
        response: Response,
        redirects: Vec<String>,
        now_ms: i64,
    ) -> Result<Page, HttpProblem> {
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE).map(|value| {
            let text = Clean::new(&String::from_utf8_lossy(value.as_bytes()));
            text.as_str().chars().take(CONTENT_TYPE_LENGTH).collect::<String>()
        });
        let broken = |problem: String| broken(target.host.clone(), &problem);
        let (bytes, cut) = body(response, self.config.most_bytes).await.map_err(broken)?;
        let most = usize::try_from(self.config.most_characters).unwrap_or(usize::MAX);
        let (url, said) = (target.url.clone(), content_type.clone());
        let length = bytes.len() as u64;
        // A large page takes a while.
        let read =
            tokio::task::spawn_blocking(move || readable(&bytes, said.as_deref(), &url, most, cut));
        let read = read.await.map_err(internal)?;
        Ok(Page {
            url: target.url.to_string(),
            status,
            content_type,
            title: read.title,
            text: read.text,
            truncated: read.cut,
            bytes: length,
            note: read.note,
            redirects,
            metadata: metadata(false, now_ms, now_ms)?,
        })
    }
}

impl Way {
    /// Remembers the shortest time that an answer on the way may be kept.
    fn heed(&mut self, headers: &HeaderMap) {
        if let Some(seconds) = keep_seconds(headers) {
            self.keep_seconds = Some(self.keep_seconds.map_or(seconds, |known| known.min(seconds)));
        }
    }
}

/// How long an answer may be kept, if it says so. The cache serves everybody who may reach the host, so what is
/// private is not kept.
fn keep_seconds(headers: &HeaderMap) -> Option<u64> {
    let mut shortest: Option<u64> = None;
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    for word in values.flat_map(|value| value.split(',')) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let seconds = match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" | "private" => Some(0),
            "max-age" | "s-maxage" => value.trim().trim_matches('"').parse().ok(),
            _ => None,
        };
        if let Some(seconds) = seconds {
            shortest = Some(shortest.map_or(seconds, |known: u64| known.min(seconds)));
        }
    }
    shortest
}

/// May this host be reached at all?
fn granted(host: &Host, reach: Reaches<'_>) -> Result<Reach, HttpProblem> {
    match reach(host) {
        Reach::No(why) => {
            Err(HttpProblem::NotGranted { host: host.clone(), why: Clean::new(&why) })
        }
        granted => Ok(granted),
    }
}

/// A kept answer, if every host on the way to it may be reached now as it was then.
async fn cached(cache: &Arc<Cache>, key: &str, get: &Get<'_>) -> Option<Page> {
    let (cache, key, now_ms) = (Arc::clone(cache), key.to_owned(), get.now_ms);
    let found = tokio::task::spawn_blocking(move || cache.get(&key, now_ms)).await;
    let (kept, stored_ms) = found.ok()??;
    let may = |passed: &Passed| match Target::parse(&passed.url).map(|it| (get.reach)(&it.host)) {
        Ok(Reach::Named) => true,
        Ok(Reach::Public) => !passed.named,
        Ok(Reach::No(_)) | Err(_) => false,
    };
    if !kept.hosts.iter().all(may) {
        return None;
    }
    Some(Page { metadata: metadata(true, stored_ms, get.now_ms).ok()?, ..kept.page })
}

async fn keep_for(seconds: u64, cache: &Arc<Cache>, key: String, kept: Kept, now_ms: i64) {
    if seconds == 0 {
        return;
    }
    let until_ms = now_ms.saturating_add_unsigned(seconds.saturating_mul(1_000));
    let cache = Arc::clone(cache);
    // A page that could not be kept is still a page.
    _ = tokio::task::spawn_blocking(move || cache.put(&key, &kept, now_ms, until_ms)).await;
}

/// The addresses of a host that may be connected to, and whether one of them takes a grant of this very host.
async fn allowed(
    target: &Target,
    granted: &Reach,
    deadline: Instant,
) -> Result<(Vec<SocketAddr>, bool), HttpProblem> {
    let host = &target.host;
    let found = match host.ip() {
        Some(ip) => vec![SocketAddr::new(ip, target.port())],
        None => {
            let left = deadline.saturating_duration_since(Instant::now());
            let found = resolve(host.as_str(), target.port(), left).await;
            found.map_err(|problem| HttpProblem::Unresolved {
                host: host.clone(),
                problem: Clean::new(&problem),
            })?
        }
    };
    let mut refused = None;
    let mut named = false;
    let mut addresses = Vec::with_capacity(found.len());
    for address in found {
        let special = special(address.ip());
        let may = match special {
            None => true,
            Some(Special::Private(_)) => *granted == Reach::Named,
            Some(Special::Never(_)) => *granted == Reach::Named && host.ip().is_some(),
        };
        if may {
            named |= special.is_some();
            addresses.push(address);
        } else if let Some(special) = special {
            refused.get_or_insert(HttpProblem::NotPublic {
                host: host.clone(),
                address: address.ip(),
                what: special.what(),
                by_address: matches!(special, Special::Never(_)) && host.ip().is_none(),
            });
        }
    }
    match refused {
        Some(refused) if addresses.is_empty() => Err(refused),
        _ => Ok((addresses, named)),
    }
}

async fn ask(
    target: &Target,
    addresses: Vec<SocketAddr>,
    deadline: Instant,
) -> Result<Response, HttpProblem> {
    // Our own deadline comes first, and says what it is.
    let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(1);
    let unusable = |problem: String| broken(target.host.clone(), &problem);
    let client = pinned_client(target.is_https(), left, addresses)
        .map_err(unusable)?
        // Each fetch has its own connection: the next one may not go to this address.
        .pool_max_idle_per_host(0)
        .http1_max_headers(MOST_HEADERS)
        .build()
        .map_err(|error| unusable(problem(error)))?;
    let asked = client.get(target.url.clone()).header(ACCEPT, WANTED);
    let response = asked.header(ACCEPT_ENCODING, ACCEPTED).send().await;
    let response = response.map_err(|error| unusable(problem(error)))?;
    let length: usize =
        response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if length > HEADERS {
        return Err(unusable("its headers are too long".to_owned()));
    }
    Ok(response)
}

/// Where an answer sends us, if it does.
fn redirect(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?;
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    moved.then(|| String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// The address that a redirect leads to, if it may be followed.
fn next(target: &Target, location: &str) -> Result<Target, HttpProblem> {
    let host = || target.host.clone();
    let next = target.redirected(location).map_err(|problem| match problem {
        HttpProblem::Scheme(scheme) => {
            not_followed(host(), &format!("to an address with {scheme}"))
        }
        HttpProblem::Userinfo => not_followed(host(), "to an address with a user name"),
        _ => not_followed(host(), "to something that is no address"),
    })?;
    if target.is_downgraded_by(&next) {
        return Err(not_followed(host(), "from https:// to http://"));
    }
    Ok(next)
}

/// Reads a body as far as there is room, and says whether there was more.
async fn body(mut response: Response, most: u64) -> Result<(Vec<u8>, bool), String> {
    let encodings = response.headers().get_all(CONTENT_ENCODING).iter();
    let encodings: Vec<String> =
        encodings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let coding = Coding::read(encodings.iter().map(String::as_str))?;
    let mut body = Body::new(coding, most);
    while let Some(piece) = response.chunk().await.map_err(problem)? {
        if body.take(&piece)? == Room::Full {
            return body.finish(false);
        }
    }
    body.finish(true)
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(str::to_owned);
    let pairs = headers.iter();
    pairs.filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect()
}

fn metadata(cache_hit: bool, at_ms: i64, now_ms: i64) -> Result<Metadata, HttpProblem> {
    let at = Timestamp::from_millisecond(at_ms).map_err(internal)?;
    let age_s = u64::try_from(now_ms.saturating_sub(at_ms) / 1_000).unwrap_or(0);
    Ok(Metadata { cache_hit, fetched_at: format!("{at:.3}"), age_s })
}

fn not_followed(host: Host, to: &str) -> HttpProblem {
    HttpProblem::Redirect { host, to: Clean::already(to.to_owned()) }
}

fn broken(host: Host, problem: &str) -> HttpProblem {
    HttpProblem::Broken { host, problem: Clean::new(problem) }
}

fn internal(problem: impl ToString) -> HttpProblem {
    HttpProblem::Internal(Clean::new(&problem.to_string()))
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
