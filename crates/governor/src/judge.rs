//! Rules and risk, within a decision: what a person has written down, and what the forecast says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_contract::{Reason, Urgency};

use crate::{
    decide::{Deciding, Line, No},
    forecast::Forecast,
    meter::{Meter, Reading},
    rules::{
        Action, AgentFacts, Evaluated, Facts, ForecastFacts, Head, IdentityFacts, IntentFacts,
        Matched, PoolFacts, Rule, Wait, strictest,
    },
    state::Governor,
};

/// When it may be worth asking again where nobody knows better.
const SOME_TIME: i64 = 60_000;

/// A rule that matched, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleMatch {
    /// The rule.
    pub id: Arc<str>,
    /// What it wants.
    pub action: Action,
    /// The pool that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// It could not be evaluated, and counts all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<str>>,
}

/// What all the rules that matched come to.
#[derive(Debug, Default)]
pub(crate) struct Ruled {
    /// All of them, in the order of the file.
    pub(crate) matches: Vec<RuleMatch>,
    /// What those that only warn have to say.
    pub(crate) warnings: Vec<String>,
    /// The strictest.
    pub(crate) verdict: RuleVerdict,
}

/// What the strictest rule wants.
#[derive(Debug, Default)]
pub(crate) enum RuleVerdict {
    /// No rule has matched that decides anything.
    #[default]
    Nothing,
    /// Not at all, or not now.
    No(No),
    /// Not before this moment, and why.
    NotBefore(i64, No),
    /// With another credential, if that is possible.
    Switch,
    /// Whatever the forecast says.
    WithoutRisk,
}

/// What was found out about a pool on the way.
#[derive(Default)]
struct Looked {
    reading: Option<Reading>,
    forecast: Option<Option<Forecast>>,
}

impl Governor {
    /// Evaluates the rules that can match.
    pub(crate) fn ruled(
        &self,
        deciding: &mut Deciding<'_>,
        lines: &[Line],
        identity: &str,
    ) -> Ruled {
        let setup = Arc::clone(self.setup());
        let rules = setup.rules();
        if rules.is_empty() {
            return Ruled::default();
        }
        let intent = deciding.ask.intent;
        let head = Head {
            workload: &intent.workload_id,
            agent: &intent.agent_id,
            identity,
            scope: &intent.scope_id,
            urgency: deciding.urgency,
        };
        let candidates = rules.candidates(&head, lines.iter().map(|line| &*line.pool.id));
        let mut matched = Vec::new();
        // Each pool is looked at once, however many rules read it.
        let mut looked: Vec<Looked> = lines.iter().map(|_| Looked::default()).collect();
        for place in candidates {
            let Some(rule) = rules.get(place) else { continue };
            if rule.is_per_pool() {
                let meant = lines.iter().zip(&mut looked).enumerate();
                for (pool, (line, looked)) in
                    meant.filter(|(_, (line, _))| rule.applies_to_pool(&line.pool.id))
                {
                    let found = self.evaluated(deciding, rule, Some((line, looked)), identity);
                    matched.extend(counted(rule, found, place, Some(pool)));
                }
            } else {
                let found = self.evaluated(deciding, rule, None, identity);
                matched.extend(counted(rule, found, place, None));
            }
        }
        self.summed_up(deciding, lines, &matched)
    }

    fn evaluated(
        &self,
        deciding: &Deciding<'_>,
        rule: &Rule,
        line: Option<(&Line, &mut Looked)>,
        identity: &str,
    ) -> Evaluated {
        let (intent, now) = (deciding.ask.intent, deciding.now);
        let named = self.identities().by_name(identity);
        let (mut reading, mut forecast, mut open) = (None, None, None);
        let line = line.map(|(line, looked)| {
            let fresh;
            let meter = match self.meter_at(line) {
                Some(meter) => meter,
                None => {
                    fresh = Meter::new(&line.pool, now);
                    &fresh
                }
            };
            open = Some(meter.open_of(deciding.who));
            reading = Some(*looked.reading.get_or_insert_with(|| meter.read(&line.pool, now)));
            if rule.reads_forecast() {
                let ahead = || meter.forecast(&line.pool, now, line.asked.amount);
                forecast = *looked.forecast.get_or_insert_with(ahead);
            }
            line
        });
        let facts = Facts {
            intent: IntentFacts {
                agent_id: &intent.agent_id,
                identity_id: identity,
                workload_id: &intent.workload_id,
                scope_id: &intent.scope_id,
                urgency: deciding.urgency,
                duration_ms: intent.duration_ms,
                can_switch: intent.can_switch,
            },
            identity: IdentityFacts {
                name: identity,
                kind: named.and_then(|named| named.kind.as_deref()),
                group: named.and_then(|named| named.group.as_deref()),
            },
            agent: AgentFacts {
                name: &intent.agent_id,
                demoted: deciding.demotion.is_some(),
                open,
            },
            pool: line.zip(reading).map(|(line, reading)| PoolFacts {
                id: &line.pool.id,
                unit: &line.pool.unit,
                limit: reading.limit,
                used: Some(reading.used),
                held: Some(reading.held),
                booked: Some(reading.booked),
                remaining: reading.left,
                reset_in_ms: reading.reset_at.map(|reset| reset.saturating_sub(now)),
            }),
            forecast: forecast.map(|forecast| facts_of(&forecast)),
            cost: line.map(|line| line.asked.amount),
            now,
        };
        rule.evaluate(&facts)
    }

    /// What matched, told step by step, and what the strictest of it comes to.
    fn summed_up(&self, deciding: &mut Deciding<'_>, lines: &[Line], matched: &[Matched]) -> Ruled {
        let setup = Arc::clone(self.setup());
        let mut ruled = Ruled::default();
        for one in matched {
            let Some(rule) = setup.rules().get(one.rule) else { continue };
            let because = because(rule, one);
            deciding.rule_step(one.rule, rule.id(), one.action.as_str(), || {
                (rule.condition().unwrap_or("it is about this work").to_owned(), because.clone())
            });
            if one.action == Action::Warn {
                ruled.warnings.push(format!("{}: {because}", rule.id()));
            }
            ruled.matches.push(RuleMatch {
                id: rule.id().into(),
                action: one.action,
                pool: one.pool.and_then(|pool| Some(Arc::clone(&lines.get(pool)?.pool.id))),
                failed: one.failed.as_deref().map(Into::into),
            });
        }
        if let Some(one) = strictest(matched)
            && let Some(rule) = setup.rules().get(one.rule)
        {
            ruled.verdict = self.verdict(deciding, lines, rule, one);
        }
        ruled
    }

    fn verdict(
        &self,
        deciding: &Deciding<'_>,
        lines: &[Line],
        rule: &Rule,
        one: &Matched,
    ) -> RuleVerdict {
        let now = deciding.now;
        let line = one.pool.and_then(|pool| lines.get(pool));
        let no = |reason, retry_at| No {
            reason,
            pool: line.map(|line| Arc::clone(&line.pool.id)),
            retry_at,
            why: format!("the rule {} says no: {}", rule.id(), because(rule, one)),
        };
        match one.action {
            Action::Warn => RuleVerdict::Nothing,
            Action::Approve => RuleVerdict::WithoutRisk,
            Action::Switch => RuleVerdict::Switch,
            Action::Deny => RuleVerdict::No(no(Reason::PolicyViolation, None)),
            Action::Defer => {
                // Where it is about no pool, the last of all pools to be full again.
                let resets = lines.iter().filter(|l| line.is_none_or(|own| own.place == l.place));
                let reset = resets.filter_map(|line| self.full_again(line, now)).max();
                let at = reset.unwrap_or(now.saturating_add(SOME_TIME));
                RuleVerdict::No(no(Reason::DeferUntilReset, Some(at)))
            }
            Action::Wait => {
                let reading = line.or(lines.first()).map(|line| {
                    let fresh = || Meter::new(&line.pool, now).read(&line.pool, now);
                    let meter = self.meter_at(line);
                    (line, meter.map_or_else(fresh, |meter| meter.read(&line.pool, now)))
                });
                let (cost, left, reset_in) = reading.map_or((1, None, None), |(line, reading)| {
                    let reset_in = reading.reset_at.map(|reset| reset.saturating_sub(now));
                    (line.asked.amount, reading.left, reset_in)
                });
                let at = match rule.wait() {
                    Some(Wait::Fixed(ms)) => now.saturating_add(ms),
                    // One behind the other: what was booked before has its own time.
                    Some(Wait::Paced) => {
                        let pace = line
                            .or(lines.first())
                            .map_or(Some(0), |line| line.pool.window.pace(cost, line.pool.limit));
                        let pace = pace.or_else(|| Wait::Paced.ms(cost, left, reset_in));
                        let meter = line.or(lines.first()).and_then(|line| self.meter_at(line));
                        let last = meter.and_then(Meter::last_booked).unwrap_or(now).max(now);
                        last.saturating_add(pace.unwrap_or(0))
                    }
                    None => now.saturating_add(SOME_TIME),
                };
                if at <= now {
                    return RuleVerdict::Nothing;
                }
                RuleVerdict::NotBefore(at, no(Reason::DeferUntilReset, Some(at)))
            }
        }
    }

    /// When a pool is full again.
    fn full_again(&self, line: &Line, now: i64) -> Option<i64> {
        self.meter_at(line)?.read(&line.pool, now).reset_at.filter(|reset| *reset > now)
    }

    /// Refuses what would probably exhaust a pool before it is full again, where the pool says so. What is
    /// urgent passes: it is what the rest is kept for.
    pub(crate) fn risk(&self, deciding: &mut Deciding<'_>, lines: &[Line]) -> Result<(), No> {
        if deciding.urgency == Urgency::High {
            return Ok(());
        }
        for line in lines {
            let Some(most) = line.pool.risk_limit else { continue };
            let Some(meter) = self.meter_at(line) else { continue };
            let Some(forecast) = meter.forecast(&line.pool, deciding.now, line.asked.amount) else {
                continue;
            };
            let risk = forecast.p_exhaust_with;
            let result = if risk > most { "deny" } else { "pass" };
            deciding.step(&line.pool.id, result, || {
                let condition = format!("its risk is at most {:.0}%", most * 100.0);
                (condition, format!("{:.0}%", risk * 100.0))
            });
            if risk > most {
                let why = format!(
                    "with a probability of {:.0}% it would be exhausted before it is full again, and {:.0}% is accepted",
                    risk * 100.0,
                    most * 100.0
                );
                let retry = self.full_again(line, deciding.now);
                return Err(No::by(&line.pool, Reason::RiskTooHigh, retry, why));
            }
        }
        Ok(())
    }
}

fn counted(rule: &Rule, found: Evaluated, place: usize, pool: Option<usize>) -> Option<Matched> {
    let action = rule.action();
    if !found.counts_for(action) {
        return None;
    }
    let failed = match found {
        Evaluated::Failed(why) => Some(why),
        Evaluated::Matches | Evaluated::DoesNot => None,
    };
    Some(Matched { rule: place, pool, action, failed })
}

/// What whoever is refused is told.
fn because(rule: &Rule, one: &Matched) -> String {
    match &one.failed {
        Some(why) => format!("{} (it could not be evaluated: {why})", rule.because()),
        None => rule.because().to_owned(),
    }
}

fn facts_of(forecast: &Forecast) -> ForecastFacts {
    let [half, most, almost] =
        forecast.exhausted_in.map(|ms| Some(ms.map_or(f64::INFINITY, |ms| ms as f64 / 1000.0)));
    ForecastFacts {
        p_exhaust: Some(forecast.p_exhaust),
        p_exhaust_with: Some(forecast.p_exhaust_with),
        tte_p50: half,
        tte_p90: most,
        tte_p99: almost,
        burn_rate: Some(forecast.burn_per_second),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
