//! What goes wrong, read from a file. Doing it is the world's work.

use std::sync::Arc;

use tollgate_governor::{Target, duration};

use crate::{
    check::Known,
    error::{ScenarioError, unknown},
    file_world::{Crash, SabotageFile, Source, TargetFile},
    scenario::{Sabotage, Trouble},
};

/// How a trouble is told, and how long it is by itself.
struct Found {
    trouble: Trouble,
    label: String,
    lasts: Option<i64>,
    /// May the file say how long it lasts?
    may_last: bool,
}

/// Checks one entry of `[[sabotage]]`.
pub(crate) fn check(
    known: &Known<'_>,
    place: usize,
    file: SabotageFile,
    run: i64,
) -> Result<Sabotage, ScenarioError> {
    let at = format!("sabotage[{place}]");
    if file.at.0 >= run {
        let problem = "is when the scenario is over already";
        return Err(ScenarioError::new(format!("{at}.at"), problem));
    }
    let mut all = found(known, &at, &file)?;
    let (Some(one), true) = (all.pop(), all.is_empty()) else {
        let problem = "say exactly one of `crash`, `clock_jump`, `provider_drops`, `provider_silent`, `provider_slow`, `storm`, `halt`, `resume`, `reload` and `reports_stop`";
        return Err(ScenarioError::new(at, problem));
    };
    if file.lasts.is_some() && !one.may_last {
        let problem = "does not go with this; it is over at once, or says itself how long it is";
        return Err(ScenarioError::new(format!("{at}.lasts"), problem));
    }
    let is_of_provider = matches!(
        one.trouble,
        Trouble::Drops { .. } | Trouble::Silent { .. } | Trouble::Slow { .. }
    );
    if file.pool.is_some() && !is_of_provider {
        let problem = "says which provider is meant, and this is nothing of a provider's";
        return Err(ScenarioError::new(format!("{at}.pool"), problem));
    }
    let begins = known.starts_at.saturating_add(file.at.0);
    let lasts = one.lasts.or(file.lasts.map(|length| length.0)).unwrap_or(0);
    let ends = begins.saturating_add(lasts);
    Ok(Sabotage { at: begins, ends, trouble: one.trouble, label: one.label })
}

fn found(known: &Known<'_>, at: &str, file: &SabotageFile) -> Result<Vec<Found>, ScenarioError> {
    let mut all = Vec::new();
    let mut add = |trouble, label: String, lasts, may_last| {
        all.push(Found { trouble, label, lasts, may_last });
    };
    match file.crash {
        Some(Crash::At(from)) => add(Trouble::Crash(from), crash(from), None, false),
        Some(Crash::Away(crashed)) => {
            let away = crashed.away.0;
            add(Trouble::Crash(crashed.from), crash(crashed.from), Some(away), false);
        }
        None => {}
    }
    if let Some(text) = &file.clock_jump {
        let by = jump(text).map_err(|p| ScenarioError::new(format!("{at}.clock_jump"), p))?;
        add(Trouble::ClockJump(by), format!("clock jumps {text}"), None, true);
    }
    if let Some(limit) = file.provider_drops {
        let provider = provider(known, at, file)?;
        add(Trouble::Drops { provider, limit }, format!("provider drops to {limit}"), None, true);
    }
    if let Some(length) = file.provider_silent {
        let provider = provider(known, at, file)?;
        let label = "provider is silent".to_owned();
        add(Trouble::Silent { provider }, label, Some(length.0), false);
    }
    if let Some(length) = file.provider_slow {
        let provider = provider(known, at, file)?;
        let label = "provider is slow".to_owned();
        add(Trouble::Slow { provider, by: length.0 }, label, None, true);
    }
    if let Some(storm) = &file.storm {
        let group = known.group(&format!("{at}.storm.agents"), &storm.agents)?;
        let label = format!("storm of {} x{}", storm.agents, storm.times);
        let times = storm.times.clamp(1, 1000);
        add(Trouble::Storm { group, times }, label, Some(storm.lasts.0), false);
    }
    if let Some(target) = &file.halt {
        let (targets, label) = targets(known, &format!("{at}.halt"), target)?;
        add(Trouble::Halt(targets), format!("halt of {label}"), None, true);
    }
    if let Some(target) = &file.resume {
        let (targets, label) = targets(known, &format!("{at}.resume"), target)?;
        add(Trouble::Resume(targets), format!("{label} resumes"), None, false);
    }
    if let Some(reload) = &file.reload {
        let pool = known.pool(&format!("{at}.reload.pool"), &reload.pool)?;
        let limit = reload.limit;
        if limit == 0 {
            let problem = "is at least 1";
            return Err(ScenarioError::new(format!("{at}.reload.limit"), problem));
        }
        add(Trouble::Reload { pool, limit }, format!("limit becomes {limit}"), None, true);
    }
    if let Some(name) = &file.reports_stop {
        let groups = match name.as_str() {
            "all" => (0..known.groups.len()).collect(),
            name => vec![known.group(&format!("{at}.reports_stop"), name)?],
        };
        add(Trouble::ReportsStop(groups), "reports stop".to_owned(), None, true);
    }
    Ok(all)
}

fn crash(from: Source) -> String {
    match from {
        Source::Events => "crash".to_owned(),
        Source::Snapshot => "crash, back from a snapshot".to_owned(),
    }
}

/// A length of time with a sign.
fn jump(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(back) => duration(back).map(|by| -by),
        None => duration(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// The provider that is meant: by its pool, or the only one.
fn provider(known: &Known<'_>, at: &str, file: &SabotageFile) -> Result<usize, ScenarioError> {
    let field = format!("{at}.pool");
    let pools = known.providers.iter().filter_map(|plan| known.config.pools.get(plan.pool));
    let ids = pools.map(|pool| pool.id.as_str());
    match (&file.pool, known.providers.len()) {
        (None, 1) => Ok(0),
        (None, 0) => Err(ScenarioError::new(at, "there is no provider; add one as [[providers]]")),
        (None, _) => {
            let problem = "is missing: there are several providers; say which by its pool";
            Err(ScenarioError::new(field, problem))
        }
        (Some(name), _) => {
            let found = ids.clone().position(|id| id == name);
            found.ok_or_else(|| ScenarioError::new(field, unknown("provider of", name, ids)))
        }
    }
}

fn targets(
    known: &Known<'_>,
    field: &str,
    target: &TargetFile,
) -> Result<(Vec<Target>, String), ScenarioError> {
    let named = |name: &String| Arc::<str>::from(name.as_str());
    Ok(match target {
        TargetFile::All => (vec![Target::All], "everything".to_owned()),
        TargetFile::Agents(name) => {
            let group = known.groups.get(known.group(field, name)?);
            let agents = group.into_iter().flat_map(|group| {
                (1..=group.count).map(|number| Target::Agent(group.agent(number).into()))
            });
            (agents.collect(), name.clone())
        }
        TargetFile::Workload(name) => (vec![Target::Workload(named(name))], name.clone()),
        TargetFile::Scope(name) => (vec![Target::Scope(named(name))], name.clone()),
        TargetFile::Identity(name) => {
            (vec![Target::Identity(crate::agent::pseudonym(name))], name.clone())
        }
        TargetFile::Pool(name) => {
            known.pool(field, name)?;
            (vec![Target::Pool(named(name))], name.clone())
        }
    })
}
