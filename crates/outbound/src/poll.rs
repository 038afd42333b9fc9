//! Asking one provider again and again how much is left.

use std::{
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, HeaderName, HeaderValue},
};
use tokio_util::sync::CancellationToken;
use tollgate_contract::{Quoted, Secret};
use tollgate_governor::{Learned, ProviderReport, from_headers};

use crate::{
    answer,
    backoff::Backoff,
    http,
    source::{BadSource, PollSource},
    token,
};

/// Says what time it is, in milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The largest answer that is read.
const LARGEST_ANSWER: usize = 1024 * 1024;

/// How one poll ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollResult {
    /// The name of the source in the configuration.
    pub source: String,
    /// When the poll began. What was used since then is not yet in the reports.
    pub began_at: Instant,
    /// The same by the clock that was passed in, in milliseconds since 1970.
    pub began_at_ms: i64,
    /// What the provider said about its limits. A refusal can say something, too.
    pub reports: Vec<ProviderReport>,
    /// What went wrong, if something did.
    pub failed: Option<PollFailed>,
    /// How long until the next poll.
    pub next_in: Duration,
}

/// Why a poll failed, for the operator. It holds no token and no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PollFailed {
    /// What went wrong.
    pub problem: String,
}

/// How often to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// From the end of one poll to the next.
    pub every: Duration,
    /// After failures.
    pub retry: Backoff,
    /// The longest pause that a provider can ask for.
    pub longest_pause: Duration,
}

impl Pace {
    /// The pace for asking this often when all is well.
    pub fn every(every: Duration) -> Self {
        let longest = Duration::from_secs(5 * 60);
        let retry = Backoff { first: Duration::from_secs(5), longest };
        Self { every, retry, longest_pause: Duration::from_secs(60 * 60) }
    }
}

/// Asks one provider.
pub struct Poller {
    name: String,
    source: PollSource,
    url: Url,
    client: Client,
    clock: Clock,
    pace: Pace,
}

/// What came of one request.
struct Answered {
    reports: Vec<ProviderReport>,
    problem: Option<String>,
    /// When the provider wants to be asked again, at the earliest.
    not_before_ms: Option<i64>,
}

impl Poller {
    /// A poller of `source`, which the configuration calls `name`.
    pub fn new(name: String, source: PollSource, clock: Clock) -> Result<Self, BadSource> {
        source.check()?;
        let url = Url::parse(source.url()).map_err(|_| BadSource::Url)?;
        let client = http::builder(url.scheme() == "https", source.timeout())
            .and_then(|builder| builder.build().map_err(http::problem))
            .map_err(BadSource::Client)?;
        if url.scheme() == "http" && source.token() != (None, None) && !is_this_machine(&url) {
            tracing::warn!(source = %Quoted::new(&name), "the token of this poll is sent unencrypted; use https");
        }
        let pace = Pace::every(source.every());
        Ok(Self { name, source, url, client, clock, pace })
    }

    /// The same at another pace.
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Asks until it is stopped, and hands over how each poll ended.
    pub async fn run(self, sink: impl Fn(PollResult) + Send + Sync, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                result = self.poll(&mut failures) => result,
            };
            let next_in = result.next_in;
            if let Some(failed) = &result.failed {
                tracing::warn!(source = %Quoted::new(&self.name), failures, "poll failed: {failed}");
            }
            sink(result);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(next_in) => {}
            }
        }
    }

    /// Asks once.
    async fn poll(&self, failures: &mut u32) -> PollResult {
        let (began_at, began_at_ms) = (Instant::now(), (self.clock)());
        let asked = tokio::time::timeout(self.source.timeout(), self.ask());
        let answered = match asked.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(problem)) => Answered::failed(problem),
            Err(_) => Answered::failed("no answer came in time".to_owned()),
        };
        let next_in = match &answered.problem {
            None => {
                *failures = 0;
                self.pace.every
            }
            Some(_) => {
                *failures = failures.saturating_add(1);
                self.pace.retry.wait(*failures)
            }
        };
        PollResult {
            source: self.name.clone(),
            began_at,
            began_at_ms,
            reports: answered.reports,
            failed: answered.problem.map(|problem| PollFailed { problem }),
            next_in: next_in.max(self.pause(answered.not_before_ms)),
        }
    }

    /// How long a provider wants to be left alone, as far as it can ask for that.
    fn pause(&self, not_before_ms: Option<i64>) -> Duration {
        let left = not_before_ms.map_or(0, |at| at.saturating_sub((self.clock)()));
        Duration::from_millis(u64::try_from(left).unwrap_or(0)).min(self.pace.longest_pause)
    }

    async fn ask(&self) -> Result<Answered, String> {
        let token = self.token().await?;
        let mut request = self.client.get(self.url.clone()).header(ACCEPT, "application/json");
        if let Some(token) = &token {
            let (header, value) = self.credential(token)?;
            request = request.header(header, value);
        }
        let response = request.send().await.map_err(http::problem)?;
        let mut answered = self.answered(response).await?;
        if let Some(token) = &token {
            // Names come from the provider, and are shown and kept.
            let shows = |name: &String| name.contains(token.expose());
            answered.reports.retain(|report| !report.name.as_ref().is_some_and(shows));
        }
        Ok(answered)
    }

    async fn answered(&self, response: Response) -> Result<Answered, String> {
        let now_ms = (self.clock)();
        let said = headers(&response, now_ms);
        if let Some(problem) = refusal(response.status()) {
            let not_before_ms = not_before(response.status(), &said);
            return Ok(Answered { reports: said.reports, problem: Some(problem), not_before_ms });
        }
        let body = http::body(response, LARGEST_ANSWER).await?;
        let reports = answer::reports(&self.source, &body, now_ms)?;
        Ok(Answered { reports, problem: None, not_before_ms: said.retry_at_ms })
    }

    /// The token, if there is one. It is read anew each time, since some are replaced often.
    async fn token(&self) -> Result<Option<Secret>, String> {
        match self.source.token() {
            (Some(name), _) => token::from_environment(name).map(Some),
            (None, Some(path)) => token::from_file(path.clone()).await.map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The header that says who asks.
    fn credential(&self, token: &Secret) -> Result<(HeaderName, HeaderValue), String> {
        let (header, scheme) = self.source.header();
        let text = Secret::new(match scheme {
            "" => token.expose().to_owned(),
            scheme => format!("{scheme} {}", token.expose()),
        });
        let header = header.parse().map_err(|_| "`header` is no name of a header")?;
        let mut value = HeaderValue::from_str(text.expose())
            .map_err(|_| "the token holds characters that a header cannot carry")?;
        value.set_sensitive(true);
        Ok((header, value))
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Answered {
    fn failed(problem: String) -> Self {
        Self { reports: Vec::new(), problem: Some(problem), not_before_ms: None }
    }
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// What the headers of an answer say about limits.
fn headers(response: &Response, now_ms: i64) -> Learned {
    let headers = response.headers().iter();
    let readable = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    from_headers(readable, now_ms)
}

/// When a provider that refuses wants to be asked again, at the earliest: when it says so, or when the limit
/// that is used up is full again.
fn not_before(status: StatusCode, said: &Learned) -> Option<i64> {
    let limited = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::FORBIDDEN);
    let spent = said.reports.iter().filter(|report| limited && report.remaining == Some(0));
    said.retry_at_ms.max(spent.filter_map(|report| report.reset_at_ms).max())
}

/// What a status says is wrong.
fn refusal(status: StatusCode) -> Option<String> {
    let advice = match status {
        status if status.is_success() => return None,
        status if status.is_redirection() => {
            "redirects are not followed; set `url` to where it leads"
        }
        StatusCode::UNAUTHORIZED => "check the token",
        StatusCode::FORBIDDEN => "check what the token may do, and whether its limit is used up",
        StatusCode::NOT_FOUND => "check `url`",
        StatusCode::TOO_MANY_REQUESTS => "it is asked too often",
        _ => "it is asked again later",
    };
    Some(format!("the provider answered {}; {advice}", status.as_u16()))
}
