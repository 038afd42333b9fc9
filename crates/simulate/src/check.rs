//! From a file to a scenario: every name is looked up, every number has a meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use tollgate_governor::{GovernorConfig, Setup, Work};
use toml::Spanned;

use crate::{
    error::{ScenarioError, unknown},
    fields::{OnlyOwn, fields_of},
    file::{AgentsFile, Behaviour, Length, ScenarioFile, Takes},
    file_world::{InvariantFile, ProviderFile},
    metric::Metric,
    outcome::Bound,
    sabotage,
    scenario::{Group, Invariant, Of, ProviderPlan, Scenario},
};

/// When a scenario begins that does not say it: a Monday at nine.
const USUAL_START: &str = "2026-01-05T09:00:00Z";

/// Most agents in one scenario.
const MOST_AGENTS: u32 = 100_000;

/// How long after the start something is that never comes.
const NEVER: i64 = i64::MAX / 4;

/// What is known while a scenario is checked.
pub(crate) struct Known<'a> {
    pub(crate) text: &'a str,
    pub(crate) config: &'a GovernorConfig,
    pub(crate) groups: &'a [Group],
    pub(crate) providers: &'a [ProviderPlan],
    pub(crate) starts_at: i64,
}

impl Known<'_> {
    pub(crate) fn pool(&self, field: &str, name: &str) -> Result<usize, ScenarioError> {
        let ids = self.config.pools.iter().map(|pool| pool.id.as_str());
        let found = ids.clone().position(|id| id == name);
        found.ok_or_else(|| ScenarioError::new(field, unknown("pool", name, ids)))
    }

    pub(crate) fn group(&self, field: &str, name: &str) -> Result<usize, ScenarioError> {
        let names = self.groups.iter().map(|group| group.name.as_str());
        let found = names.clone().position(|known| known == name);
        found.ok_or_else(|| ScenarioError::new(field, unknown("group of agents", name, names)))
    }
}

/// Reads and checks a scenario file.
pub(crate) fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    sections(text)?;
    let file: ScenarioFile = read(text, |reader| {
        serde_path_to_error::deserialize(reader)
            .map_err(|error| (error.path().to_string(), error.into_inner()))
    })?;
    let config: GovernorConfig = read(text, |reader| {
        serde_path_to_error::deserialize(OnlyOwn(reader))
            .map_err(|error| (error.path().to_string(), error.into_inner()))
    })?;
    let config = config.or_usual();
    let starts_at = starts_at(text, file.starts_at.as_ref())?;
    let setup =
        config.build(starts_at).map_err(|error| ScenarioError::new(error.field, error.problem))?;
    let ends_at = starts_at.saturating_add(file.lasts.0);
    let groups = groups(text, file.agents, &setup)?;
    let mut known = Known { text, config: &config, groups: &groups, providers: &[], starts_at };
    let providers = providers(&known, file.providers)?;
    known.providers = &providers;
    let mut troubles = Vec::with_capacity(file.sabotage.len());
    for (place, one) in file.sabotage.into_iter().enumerate() {
        let span = one.span();
        let checked = sabotage::check(&known, place, one.into_inner(), file.lasts.0);
        troubles.push(checked.map_err(|error| error.at(text, &span))?);
    }
    let mut invariants = Vec::with_capacity(file.invariants.len());
    for (place, one) in file.invariants.into_iter().enumerate() {
        let span = one.span();
        let checked = invariant(&known, place, one.into_inner());
        invariants.push(checked.map_err(|error| error.at(text, &span))?);
    }
    let (name, about, seed) = (file.name, file.about, file.seed);
    let sabotage = troubles;
    Ok(Scenario {
        name,
        about,
        seed,
        starts_at,
        ends_at,
        config,
        groups,
        providers,
        sabotage,
        invariants,
    })
}

fn read<'a, T>(
    text: &'a str,
    with: impl FnOnce(toml::Deserializer<'a>) -> Result<T, (String, toml::de::Error)>,
) -> Result<T, ScenarioError> {
    let reader =
        toml::Deserializer::parse(text).map_err(|error| ScenarioError::shape(text, "", &error))?;
    with(reader).map_err(|(path, error)| ScenarioError::shape(text, &path, &error))
}

/// Every section is the scenario's or the governor's.
fn sections(text: &str) -> Result<(), ScenarioError> {
    let found: BTreeMap<Spanned<String>, IgnoredAny> = read(text, |reader| {
        Deserialize::deserialize(reader).map_err(|error| (String::new(), error))
    })?;
    let own = fields_of::<ScenarioFile>().iter();
    let names = own.chain(fields_of::<GovernorConfig>()).copied();
    match found.keys().find(|key| !names.clone().any(|name| name == key.get_ref().as_str())) {
        None => Ok(()),
        Some(key) => {
            let problem = unknown("section or field", key.get_ref(), names);
            Err(ScenarioError::new("", problem).at(text, &key.span()))
        }
    }
}

fn starts_at(text: &str, said: Option<&Spanned<String>>) -> Result<i64, ScenarioError> {
    let moment = said.map_or(USUAL_START, |said| said.get_ref());
    moment.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond).map_err(|_| {
        let problem =
            format!("`{moment}` is no moment; write it as {USUAL_START}, with its offset from UTC");
        let error = ScenarioError::new("starts_at", problem);
        said.map_or(error.clone(), |said| error.at(text, &said.span()))
    })
}

fn groups(text: &str, files: Vec<AgentsFile>, setup: &Setup) -> Result<Vec<Group>, ScenarioError> {
    let mut groups: Vec<Group> = Vec::with_capacity(files.len());
    let mut agents = 0_u32;
    for (place, file) in files.into_iter().enumerate() {
        let (name_span, work_span) = (file.name.span(), file.workload.span());
        let at = |field: &str| format!("agents[{place}].{field}");
        let wrong = |field: &str, problem: String| {
            Err(ScenarioError::new(at(field), problem).at(text, &name_span))
        };
        agents = agents.saturating_add(file.count);
        if file.count == 0 || agents > MOST_AGENTS {
            let problem = format!("there are 1 to {MOST_AGENTS} agents in all");
            return wrong("count", problem);
        }
        if groups.iter().any(|group| group.name == *file.name.get_ref()) {
            let problem = format!("there are two groups named `{}`", file.name.get_ref());
            return wrong("name", problem);
        }
        if let Err((field, problem)) = sensible(&file) {
            return wrong(field, problem);
        }
        let group = group(file);
        if draws_nothing(&group, setup) {
            let problem = format!(
                "no route says which pools `{}` draws on; add one under [[routes]]",
                group.workload
            );
            return Err(ScenarioError::new(at("workload"), problem).at(text, &work_span));
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Numbers that mean something.
fn sensible(file: &AgentsFile) -> Result<(), (&'static str, String)> {
    match file.takes {
        Takes::Between(range) if range.min > range.max => {
            return Err(("takes", "`min` is more than `max`".to_owned()));
        }
        Takes::About(about) if !(about.mean > 0.0 && about.mean <= 1e12) => {
            return Err(("takes", "`mean` is above 0, and at most 1e12".to_owned()));
        }
        _ => {}
    }
    let wrong = match file.behaviour {
        Behaviour::Periodic { jitter, .. } if !(0.0..=1.0).contains(&jitter) => {
            "`jitter` is a share of `every`, from 0 to 1"
        }
        Behaviour::Poisson { per_second } if !(1e-6..=1000.0).contains(&per_second) => {
            "`per_second` is above 0, and at most 1000"
        }
        Behaviour::Bursty { burst, every, within } if burst == 0 || within.0 > every.0 => {
            "`burst` is at least 1, and `within` is not longer than `every`"
        }
        _ => return Ok(()),
    };
    Err(("behaviour", wrong.to_owned()))
}

fn group(file: AgentsFile) -> Group {
    let name = file.name.into_inner();
    let identity = match file.identity {
        Some(each) if each == "each" => None,
        Some(shared) => Some(shared),
        None => Some(format!("pat:{name}")),
    };
    let length = |length: Option<Length>, usual| length.map_or(usual, |l| l.0);
    Group {
        identity,
        count: file.count,
        workload: file.workload.into_inner(),
        scope: file.scope,
        account: file.account.unwrap_or_else(|| tollgate_governor::LOCAL.to_owned()),
        urgency: file.urgency,
        vouched: file.vouched,
        expected: file.expected_cost.map_or(tollgate_governor::Expected::UNKNOWN, |cost| cost.0),
        takes: file.takes,
        reports: file.reports,
        obeys: file.obeys,
        starts: length(file.starts, 0),
        stops: length(file.stops, NEVER),
        acts_within: length(file.acts_within, 0),
        runs: length(file.runs, 0),
        behaviour: file.behaviour,
        retries: file.retries,
        gives_up: length(file.gives_up, NEVER),
        name,
    }
}

fn draws_nothing(group: &Group, setup: &Setup) -> bool {
    let (agent, identity) = (group.agent(1), group.identity.clone().unwrap_or_default());
    let (workload, scope) = (group.workload.as_str(), group.scope.as_str());
    let work = Work { agent: &agent, identity: &identity, workload, scope };
    setup.draws_of(&work, &group.expected, false).is_empty()
}

fn providers(
    known: &Known<'_>,
    files: Vec<ProviderFile>,
) -> Result<Vec<ProviderPlan>, ScenarioError> {
    let mut plans: Vec<ProviderPlan> = Vec::with_capacity(files.len());
    for (place, file) in files.into_iter().enumerate() {
        let span = file.pool.span();
        let field = format!("providers[{place}].pool");
        let wrong = |problem: &str| {
            Err(ScenarioError::new(format!("providers[{place}]"), problem).at(known.text, &span))
        };
        let pool =
            known.pool(&field, file.pool.get_ref()).map_err(|error| error.at(known.text, &span))?;
        if plans.iter().any(|plan| plan.pool == pool) {
            return wrong("there are two providers behind this pool");
        }
        if file.limit == 0 || !(0.0..=1e9).contains(&file.hidden_per_second) {
            return wrong("`limit` is at least 1, and `hidden_per_second` from 0 to 1e9");
        }
        let first = file.resets_after.map_or(file.every.0, |length| length.0);
        plans.push(ProviderPlan {
            pool,
            limit: file.limit,
            every: file.every.0,
            begins: known.starts_at.saturating_add(first),
            hidden_per_second: file.hidden_per_second,
            answers: file.answers,
            polled: file.polled.map(|length| length.0),
            latency: file.latency.map_or(0, |length| length.0),
        });
    }
    Ok(plans)
}

fn invariant(
    known: &Known<'_>,
    place: usize,
    file: InvariantFile,
) -> Result<Invariant, ScenarioError> {
    let at = |field: &str| format!("invariants[{place}].{field}");
    let metric = Metric::named(&file.metric).ok_or_else(|| {
        let names = Metric::ALL.iter().map(|metric| metric.name());
        ScenarioError::new(at("metric"), unknown("metric", &file.metric, names))
    })?;
    let bound = match (file.at_most, file.at_least, file.equals) {
        (Some(most), None, None) => Bound::AtMost(most),
        (None, Some(least), None) => Bound::AtLeast(least),
        (None, None, Some(exactly)) => Bound::Equals(exactly),
        _ => {
            let problem = "say exactly one of `at_most`, `at_least` and `equals`";
            return Err(ScenarioError::new(at("at_most"), problem));
        }
    };
    let (Bound::AtMost(number) | Bound::AtLeast(number) | Bound::Equals(number)) = bound;
    if !number.is_finite() {
        return Err(ScenarioError::new(at("metric"), "its bound is no number"));
    }
    let moment = |length: Option<Length>, usual| {
        length.map_or(usual, |length| known.starts_at.saturating_add(length.0))
    };
    let of = Of {
        pool: file.pool.map(|name| known.pool(&at("pool"), &name)).transpose()?,
        group: file.agents.map(|name| known.group(&at("agents"), &name)).transpose()?,
        urgency: file.urgency,
        from: moment(file.from, i64::MIN),
        until: moment(file.until, i64::MAX),
    };
    if of.from >= of.until {
        let problem = "is not after `from`, so that nothing could be measured";
        return Err(ScenarioError::new(at("until"), problem));
    }
    metric
        .takes(&of, known.config.pools.len())
        .map_err(|(field, problem)| ScenarioError::new(at(field), problem))?;
    Ok(Invariant { metric, of, bound, because: file.because })
}
