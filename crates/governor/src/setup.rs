//! A configuration that was checked: pools and routes, ready for decisions.

use std::{collections::HashMap, sync::Arc};

use tollgate_contract::Urgency;

use crate::{
    config::{
        DrawConfig, GovernorConfig, LARGEST_AMOUNT, OnExpiry, Per, PoolConfig, Settings,
        WindowConfig, duration, meant,
    },
    effect::Hint,
    intent::Expected,
    rules::{Position, RuleError, Rules},
    usage::in_dollars,
    window::Window,
};

/// Most pools that one piece of work draws on.
const MOST_DRAWS: usize = 16;

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SetupError {
    /// Where.
    pub field: String,
    /// What, and what to do.
    pub problem: String,
}

impl SetupError {
    fn of_rule(error: RuleError) -> Self {
        let RuleError { rule, id, field, position, problem } = error;
        let at = position.map_or_else(String::new, |Position { line, column }| {
            format!(", line {line}, column {column} of it")
        });
        Self::new(format!("rules[{rule}].{field}"), format!("(rule `{id}`{at}) {problem}"))
    }

    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// A limit, ready to be counted against.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// `provider:name`.
    pub id: Arc<str>,
    /// What is counted.
    pub unit: Arc<str>,
    /// How much of it, where that is not left to the provider.
    pub limit: Option<u64>,
    /// In which time.
    pub window: Window,
    /// For whom it is counted separately.
    pub per: Per,
    /// Is it never over?
    pub hard: bool,
    /// What 1,000,000 units cost, in millionths of a dollar.
    pub price: u64,
    /// Is a hold that nobody settles given back?
    pub releases: bool,
    /// May reports of clients give back?
    pub trust_usage: bool,
    /// How long an approval is valid.
    pub validity: i64,
    /// How long a provider's report is believed.
    pub stale_after: Option<i64>,
    /// The provider's own name for it.
    pub reported_as: Option<String>,
    /// How probable it may be that it is exhausted before it is full again.
    pub risk_limit: Option<f64>,
}

impl Pool {
    pub(crate) fn build(
        config: &PoolConfig,
        place: usize,
        now_ms: i64,
    ) -> Result<Self, SetupError> {
        let at = |what: &str| format!("pools[{place}].{what}");
        if !is_pool_id(&config.id) {
            let problem = format!(
                "`{}` is no name of a pool; write it as provider:name, in small letters, digits, `_`, `-`, `.` and `/`",
                config.id
            );
            return Err(SetupError::new(at("id"), problem));
        }
        if !is_unit(config.unit()) {
            let problem = "is one word in small letters, such as calls, tokens or usd_micros";
            return Err(SetupError::new(at("unit"), problem));
        }
        let (window, stale_after) = config
            .window
            .window(now_ms)
            .map_err(|problem| SetupError::new(at("window"), problem))?;
        match (config.limit, &window) {
            (None, Window::Provider { .. }) => {}
            (None, _) => {
                return Err(SetupError::new(
                    at("limit"),
                    "is missing; only the window `provider` can do without",
                ));
            }
            (Some(1..=LARGEST_AMOUNT), _) => {}
            (Some(_), _) => {
                let problem = format!("is from 1 to {LARGEST_AMOUNT}");
                return Err(SetupError::new(at("limit"), problem));
            }
        }
        if matches!(window, Window::Bucket { refill: 0 | LARGEST_AMOUNT.., .. }) {
            let problem = format!("is from 1 to {}", LARGEST_AMOUNT - 1);
            return Err(SetupError::new(at("window.refill"), problem));
        }
        if config.risk_limit.is_some_and(|limit| !(0.0..=1.0).contains(&limit)) {
            let problem = "is a probability, from 0 to 1, such as 0.2";
            return Err(SetupError::new(at("risk_limit"), problem));
        }
        if config.price > LARGEST_AMOUNT {
            return Err(SetupError::new(at("price"), "is too large"));
        }
        let limit = config.limit.unwrap_or(LARGEST_AMOUNT);
        let validity = match &config.valid_for {
            Some(text) => duration(text).map_err(|p| SetupError::new(at("valid_for"), p))?,
            None => window.usual_validity(limit),
        };
        let reported_as = match &config.window {
            WindowConfig::Provider { name, .. } => name.clone(),
            _ => None,
        };
        Ok(Self {
            id: config.id.as_str().into(),
            unit: config.unit().into(),
            limit: config.limit,
            releases: config.on_expiry == OnExpiry::Release || window == Window::Concurrency,
            window,
            per: config.per,
            hard: config.hard,
            price: config.price,
            trust_usage: config.trust_usage,
            validity,
            stale_after,
            reported_as,
            risk_limit: config.risk_limit,
        })
    }

    /// Is it worth learning what work takes of it?
    pub(crate) fn learns_costs(&self) -> bool {
        !matches!(&*self.unit, "calls" | "slots")
    }

    /// Must the worst be held where nobody says what to expect? So it is where too much is real harm.
    pub(crate) fn holds_the_worst(&self) -> bool {
        self.hard && (self.is_money() || &*self.unit == "tokens")
    }

    /// Is money counted?
    pub fn is_money(&self) -> bool {
        &*self.unit == "usd_micros"
    }

    /// How much of the limit is kept free from this urgency.
    pub(crate) fn kept_free(limit: u64, percent: u32) -> u64 {
        let kept = (u128::from(limit) * u128::from(percent)).div_ceil(100);
        // Something is left even of the smallest limit.
        u64::try_from(kept).unwrap_or(u64::MAX).min(limit.saturating_sub(1))
    }
}

fn is_pool_id(id: &str) -> bool {
    let is_plain = |c: char| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | '/')
    };
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_plain);
    id.len() <= 100
        && id
            .split_once(':')
            .is_some_and(|(provider, name)| is_part(provider) && name.split(':').all(is_part))
}

fn is_unit(unit: &str) -> bool {
    (1..=32).contains(&unit.len()) && unit.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// A name, or the beginning of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pattern {
    Any,
    Is(Box<str>),
    Begins(Box<str>),
}

impl Pattern {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::Any) };
        match text.strip_suffix('*') {
            Some("") => Ok(Self::Any),
            Some(beginning) if !beginning.contains('*') => Ok(Self::Begins(beginning.into())),
            None if !text.is_empty() && !text.contains('*') => Ok(Self::Is(text.into())),
            _ => Err(format!("`{text}` is a name, or the beginning of one and then `*`")),
        }
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(text) => **text == *name,
            Self::Begins(text) => name.starts_with(&**text),
        }
    }
}

/// What a route takes from one pool.
#[derive(Debug, Clone, PartialEq)]
struct RouteDraw {
    pool: usize,
    least: u64,
    worst: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Route {
    agent: Pattern,
    identity: Pattern,
    scope: Pattern,
    draws: Vec<RouteDraw>,
    /// It is for some work, not for all.
    names_work: bool,
}

/// The routes, by the work that they are for.
#[derive(Debug, Clone, Default, PartialEq)]
struct Routes {
    all: Vec<Route>,
    by_name: HashMap<Box<str>, Vec<usize>>,
    by_beginning: HashMap<Box<str>, Vec<usize>>,
    /// The lengths of those beginnings.
    lengths: Vec<usize>,
}

impl Routes {
    fn add(&mut self, workload: Pattern, route: Route) {
        let place = self.all.len();
        self.all.push(route);
        match workload {
            Pattern::Is(name) => self.by_name.entry(name).or_default().push(place),
            Pattern::Any => self.by_beginning.entry("".into()).or_default().push(place),
            Pattern::Begins(text) => self.by_beginning.entry(text).or_default().push(place),
        }
    }

    /// Done with adding.
    fn finish(&mut self) {
        self.lengths = self.by_beginning.keys().map(|text| text.len()).collect();
        self.lengths.sort_unstable();
        self.lengths.dedup();
    }

    /// The routes for this work. However many there are, only those that can match are looked at.
    fn of<'a>(&'a self, work: &Work<'a>) -> impl Iterator<Item = &'a Route> {
        let Work { agent, identity, workload, scope } = *work;
        let beginnings = self
            .lengths
            .iter()
            .map_while(move |length| {
                workload.get(..*length).or_else(|| {
                    // In the middle of a letter there is no beginning, but a longer one may follow.
                    (*length < workload.len()).then_some("\u{0}")
                })
            })
            .filter_map(|beginning| self.by_beginning.get(beginning));
        self.by_name
            .get(workload)
            .into_iter()
            .chain(beginnings)
            .flatten()
            .filter_map(|place| self.all.get(*place))
            .filter(move |route| {
                route.agent.matches(agent)
                    && route.identity.matches(identity)
                    && route.scope.matches(scope)
            })
    }
}

/// Whose work it is, and where.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// Who does it.
    pub agent: &'a str,
    /// With whose credential.
    pub identity: &'a str,
    /// What it is.
    pub workload: &'a str,
    /// Where.
    pub scope: &'a str,
}

/// What is asked of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The pool's place.
    pub pool: usize,
    /// How much.
    pub amount: u64,
    /// What it takes at least and at most, where nobody said what to expect and it may be learned.
    pub(crate) learnable: Option<(u64, u64)>,
}

/// Pools, routes and settings, checked.
#[derive(Debug, Clone)]
pub struct Setup {
    pools: Vec<Arc<Pool>>,
    by_id: HashMap<Arc<str>, usize>,
    routes: Routes,
    rules: Arc<Rules>,
    settings: Settings,
    longest_validity: i64,
}

impl Setup {
    pub(crate) fn build(config: &GovernorConfig, now_ms: i64) -> Result<Self, SetupError> {
        let mut pools = Vec::with_capacity(config.pools.len());
        let mut by_id = HashMap::with_capacity(config.pools.len());
        for (place, pool) in config.pools.iter().enumerate() {
            let pool = Arc::new(Pool::build(pool, place, now_ms)?);
            if by_id.insert(Arc::clone(&pool.id), place).is_some() {
                let problem = format!("there are two pools with the name `{}`", pool.id);
                return Err(SetupError::new(format!("pools[{place}].id"), problem));
            }
            pools.push(pool);
        }
        let settings = config.governor.clone();
        check_settings(&settings)?;
        let longest_validity = duration(&settings.longest_validity)
            .map_err(|problem| SetupError::new("governor.longest_validity", problem))?;
        let rules = Arc::new(Rules::build(&config.rules).map_err(SetupError::of_rule)?);
        for (place, rule) in config.rules.iter().enumerate() {
            // A rule that is misspelt so would never match, and nobody would notice.
            let Some(named) = &rule.pool else { continue };
            let pattern = Pattern::parse(Some(named)).unwrap_or(Pattern::Any);
            if !pools.iter().any(|pool: &Arc<Pool>| pattern.matches(&pool.id)) {
                let near = meant(named, pools.iter().map(|pool| &*pool.id));
                let problem = format!("there is no pool `{named}`{near}");
                return Err(SetupError::new(format!("rules[{place}].pool"), problem));
            }
        }
        let routes = Routes::default();
        let mut setup = Self { pools, by_id, routes, rules, settings, longest_validity };
        if !config.pools.is_empty() && config.routes.is_empty() {
            let problem = "there are pools, and no route says which work draws on them";
            return Err(SetupError::new("routes", problem));
        }
        for (place, route) in config.routes.iter().enumerate() {
            let at = |what: &str| format!("routes[{place}].{what}");
            let pattern = |what: &str, text: &Option<String>| {
                Pattern::parse(text.as_deref())
                    .map_err(|problem| SetupError::new(at(what), problem))
            };
            let draws = setup.draws(&route.pools, &at("pools"))?;
            let workload = pattern("workload", &route.workload)?;
            let route = Route {
                agent: pattern("agent", &route.agent)?,
                identity: pattern("identity", &route.identity)?,
                scope: pattern("scope", &route.scope)?,
                draws,
                names_work: workload != Pattern::Any,
            };
            setup.routes.add(workload, route);
        }
        setup.routes.finish();
        Ok(setup)
    }

    fn draws(&self, configured: &[DrawConfig], at: &str) -> Result<Vec<RouteDraw>, SetupError> {
        if configured.is_empty() || configured.len() > MOST_DRAWS {
            let problem = format!("a route draws on 1 to {MOST_DRAWS} pools");
            return Err(SetupError::new(at, problem));
        }
        let mut draws: Vec<RouteDraw> = Vec::with_capacity(configured.len());
        for (place, draw) in configured.iter().enumerate() {
            let wrong = |what: &str, problem: String| {
                Err(SetupError::new(format!("{at}[{place}].{what}"), problem))
            };
            let Some((index, pool)) = self
                .by_id
                .get(draw.id.as_str())
                .and_then(|index| self.pools.get(*index).map(|pool| (*index, pool)))
            else {
                let known = self.pools.iter().map(|pool| &*pool.id);
                return wrong(
                    "id",
                    format!("there is no pool `{}`{}", draw.id, meant(&draw.id, known)),
                );
            };
            if draws.iter().any(|before| before.pool == index) {
                return wrong("id", format!("`{}` is there twice", draw.id));
            }
            let most = draw.cost.max(draw.worst).unwrap_or(0);
            if pool.limit.is_some_and(|limit| most > limit) || most > LARGEST_AMOUNT {
                return wrong(
                    "cost",
                    "is more than the pool holds, so that it never fits".to_owned(),
                );
            }
            if draw.worst.is_some_and(|worst| draw.cost.is_some_and(|cost| worst < cost)) {
                return wrong("worst", "is less than `cost`".to_owned());
            }
            let is_priced = || {
                let priced =
                    |before: &RouteDraw| self.pools.get(before.pool).is_some_and(|p| p.price > 0);
                pool.is_money() && draws.iter().any(priced)
            };
            let known = match &*pool.unit {
                "calls" | "slots" => true,
                "tokens" | "usd_micros" => draw.worst.is_some() || is_priced(),
                _ => draw.worst.is_some() || draw.cost.is_some(),
            };
            if !known {
                let problem = format!(
                    "is missing: what one piece of work takes at most, in {}, is held where nobody says what to expect",
                    pool.unit
                );
                return wrong("worst", problem);
            }
            let usual = u64::from(matches!(&*pool.unit, "calls" | "slots"));
            draws.push(RouteDraw {
                pool: index,
                least: draw.cost.unwrap_or(usual),
                worst: draw.worst,
            });
        }
        Ok(draws)
    }

    /// The pools.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The pool at this place.
    pub fn pool(&self, place: usize) -> Option<&Arc<Pool>> {
        self.pools.get(place)
    }

    /// The place of the pool of this name.
    pub(crate) fn place_of(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The same, looked for first where it probably is.
    pub(crate) fn place_near(&self, id: &Arc<str>, hint: Hint) -> Option<usize> {
        match self.pools.get(hint.0) {
            Some(pool) if Arc::ptr_eq(&pool.id, id) => Some(hint.0),
            _ => self.place_of(id),
        }
    }

    /// The pool of this name.
    pub fn by_id(&self, id: &str) -> Option<&Arc<Pool>> {
        self.pools.get(*self.by_id.get(id)?)
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Must every commit wait for the disk? So it is where real money is at stake.
    pub fn needs_full_sync(&self) -> bool {
        self.pools.iter().any(|pool| pool.hard && pool.is_money())
    }

    pub(crate) fn longest_validity(&self) -> i64 {
        self.longest_validity
    }

    /// How far ahead this urgency may book, in milliseconds.
    pub(crate) fn horizon(&self, urgency: Urgency) -> i64 {
        i64::from(self.settings.horizon_seconds.of(urgency)) * 1000
    }

    /// What this work draws on, all routes together; nothing if no route maps it.
    pub fn draws_of(&self, work: &Work<'_>, expected: &Expected, named_only: bool) -> Vec<Draw> {
        let mut draws: Vec<Draw> = Vec::with_capacity(4);
        for route in self.routes.of(work).filter(|route| route.names_work || !named_only) {
            let mut money = 0_u128;
            let first = route.draws.first().and_then(|draw| self.pools.get(draw.pool));
            for drawn in &route.draws {
                let Some(pool) = self.pools.get(drawn.pool) else { continue };
                let is_first_unit = first.is_some_and(|first| first.unit == pool.unit);
                let said = expected.of(&pool.unit, is_first_unit);
                let mut amount = match said {
                    Some(said) => said.max(drawn.least),
                    None => drawn.worst.unwrap_or(0).max(drawn.least),
                };
                if pool.is_money() {
                    amount = amount.max(in_dollars(money));
                }
                money += u128::from(amount) * u128::from(pool.price);
                let is_learnable = said.is_none() && pool.learns_costs() && !pool.holds_the_worst();
                let most = drawn.worst.unwrap_or(LARGEST_AMOUNT);
                let learnable = is_learnable.then_some((drawn.least.max(1), most));
                match draws.iter_mut().find(|draw| draw.pool == drawn.pool) {
                    Some(draw) => {
                        draw.amount = draw.amount.max(amount);
                        draw.learnable = draw.learnable.max(learnable);
                    }
                    None => draws.push(Draw { pool: drawn.pool, amount, learnable }),
                }
            }
        }
        draws
    }
}

fn check_settings(settings: &Settings) -> Result<(), SetupError> {
    let percent = &settings.headroom_percent;
    if [percent.high, percent.normal, percent.background].iter().any(|percent| *percent > 90) {
        return Err(SetupError::new("governor.headroom_percent", "is at most 90"));
    }
    if !(0.0..=1.0).contains(&settings.forecast_alert) {
        let problem = "is a probability, from 0 to 1; 0 tells nothing";
        return Err(SetupError::new("governor.forecast_alert", problem));
    }
    let horizon = &settings.horizon_seconds;
    if [horizon.high, horizon.normal, horizon.background].iter().any(|s| *s > 86_400) {
        return Err(SetupError::new("governor.horizon_seconds", "is at most 86400"));
    }
    if settings.sin_bin.minutes == 0 || settings.sin_bin.minutes > 1440 {
        return Err(SetupError::new("governor.sin_bin.minutes", "is from 1 to 1440"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
