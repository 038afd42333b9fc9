//! One rule: what it is about, when it matches, and how it is made from what was written.

use jiff::tz::TimeZone;
use tollgate_contract::Urgency;

use super::{
    action::{Action, Evaluated, Wait},
    config::{ExampleConfig, Expectation, RuleConfig},
    during::During,
    examples::{Unsaid, of_example},
    expression::{Expression, Live, Refusal, Source},
    facts::Facts,
    index::{Head, RuleHead},
    samples::try_extremes,
};
use crate::{config::duration, setup::Pattern};

/// How many examples a rule may have.
const MOST_EXAMPLES: usize = 100;

/// The longest justification, in characters.
const LONGEST_BECAUSE: usize = 500;

/// The zone where none is said.
static UTC: TimeZone = TimeZone::UTC;

/// A rule, checked and ready.
#[derive(Debug)]
pub struct Rule {
    id: Box<str>,
    pub(super) head: RuleHead,
    condition: Option<(Box<str>, Expression)>,
    during: Option<During>,
    action: Action,
    wait: Option<Wait>,
    because: Box<str>,
}

impl Rule {
    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it does.
    pub fn action(&self) -> Action {
        self.action
    }

    /// How long it makes wait, if that is what it does.
    pub fn wait(&self) -> Option<Wait> {
        self.wait
    }

    /// Why, in the words of whoever wrote it; empty where nothing is said.
    pub fn because(&self) -> &str {
        &self.because
    }

    /// Its condition as it is written.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_ref().map(|(source, _)| &**source)
    }

    /// Is it about this pool, as far as its head says?
    pub fn applies_to_pool(&self, id: &str) -> bool {
        self.head.pool.matches(id)
    }

    /// Does its condition read this name?
    pub fn reads(&self, name: &str) -> bool {
        self.any_read(|read| read == name)
    }

    /// Does its condition look at a pool, at the cost for it, or at what the agent holds in it?
    pub fn reads_pool(&self) -> bool {
        self.any_read(|name| name.starts_with("pool.") || matches!(name, "cost" | "agent.open"))
    }

    /// Does its condition look at a forecast?
    pub fn reads_forecast(&self) -> bool {
        self.any_read(|name| name.starts_with("forecast."))
    }

    /// Is it to be evaluated for each pool that is drawn on, and not once for the ask?
    pub fn is_per_pool(&self) -> bool {
        self.head.pool != Pattern::Any
            || self.wait == Some(Wait::Paced)
            || self.reads_pool()
            || self.reads_forecast()
    }

    fn any_read(&self, is: impl Fn(&str) -> bool) -> bool {
        self.condition.as_ref().is_some_and(|(_, condition)| condition.reads.any(is))
    }

    /// Does it match? Its head is not looked at again.
    pub fn evaluate(&self, facts: &Facts<'_>) -> Evaluated {
        self.evaluate_at(facts.now, &Live { facts, zone: self.zone() })
    }

    fn evaluate_at(&self, now: i64, source: &dyn Source) -> Evaluated {
        match self.during.as_ref().map(|during| during.holds(now)) {
            None | Some(Some(true)) => {}
            Some(Some(false)) => return Evaluated::DoesNot,
            Some(None) => return Evaluated::Failed("is asked at a time without a date".to_owned()),
        }
        match self.condition.as_ref().map(|(_, condition)| condition.is_true(source)) {
            None | Some(Ok(true)) => Evaluated::Matches,
            Some(Ok(false)) => Evaluated::DoesNot,
            Some(Err(failure)) => Evaluated::Failed(failure.to_string()),
        }
    }

    fn zone(&self) -> &TimeZone {
        self.during.as_ref().map_or(&UTC, |during| &during.zone)
    }

    /// Tries its examples; the place and field of one that comes out otherwise, and how.
    pub(super) fn try_examples(&self, examples: &[ExampleConfig]) -> Result<(), (String, String)> {
        if examples.len() > MOST_EXAMPLES {
            return Err(("expect".to_owned(), format!("has more than {MOST_EXAMPLES} examples")));
        }
        for (place, example) in examples.iter().enumerate() {
            let at = format!("expect[{place}]");
            let (sample, now) = of_example(example, &self.unsaid())
                .map_err(|(field, problem)| (format!("{at}.{field}"), problem))?;
            let head = Head {
                workload: sample.text("intent.workload_id"),
                agent: sample.text("intent.agent_id"),
                identity: sample.text("intent.identity_id"),
                scope: sample.text("intent.scope_id"),
                urgency: Urgency::parse(sample.text("intent.urgency")).ok_or_else(|| {
                    let problem = "is `high`, `normal` or `background`".to_owned();
                    (format!("{at}.intent.urgency"), problem)
                })?,
            };
            let is_meant = self.head.matches(&head) && self.applies_to_pool(sample.text("pool.id"));
            let (came, why) = match self.evaluate_at(now, &sample) {
                _ if !is_meant => (Expectation::NoMatch, ": its head does not match".to_owned()),
                Evaluated::Matches => (Expectation::Matches, String::new()),
                Evaluated::DoesNot => (Expectation::NoMatch, String::new()),
                Evaluated::Failed(why) => (Expectation::Error, format!(": it {why}")),
            };
            if came != example.outcome {
                let expected = example.outcome.as_str();
                let problem = format!(
                    "expected `{expected}`, and it came out as `{}`{why}; change the rule or the example",
                    came.as_str()
                );
                return Err((at, problem));
            }
        }
        Ok(())
    }

    /// What an example need not say: then it is such that the head and the times match.
    fn unsaid(&self) -> Unsaid<'_> {
        let name = |pattern: &Pattern, usual: &str| match pattern {
            Pattern::Any => usual.to_owned(),
            Pattern::Is(name) => name.to_string(),
            Pattern::Begins(text) => format!("{text}sample"),
        };
        let [background, normal, _] = self.head.urgencies;
        let urgency = match (normal, background) {
            (true, _) => Urgency::Normal,
            (false, true) => Urgency::Background,
            (false, false) => Urgency::High,
        };
        let noon = SAMPLE_TIME;
        Unsaid {
            names: [
                ("intent.workload_id", name(&self.head.workload, "workload")),
                ("intent.agent_id", name(&self.head.agent, "agent")),
                ("intent.identity_id", name(&self.head.identity, "identity")),
                ("intent.scope_id", name(&self.head.scope, "scope")),
                ("pool.id", name(&self.head.pool, "provider:name")),
                ("intent.urgency", urgency.as_str().to_owned()),
            ],
            at: self.during.as_ref().and_then(|during| during.next(noon)).unwrap_or(noon),
            zone: self.zone(),
        }
    }
}

/// 2026-06-17 12:30 UTC, a Wednesday.
const SAMPLE_TIME: i64 = 1_781_699_400_000;

/// Checks everything about a rule but its examples; the field that is wrong, and what about it.
pub(super) fn build(config: &RuleConfig) -> Result<Rule, (String, Refusal)> {
    let wrong = |field: &str, problem: &str| (field.to_owned(), (None, problem.to_owned()));
    let is_plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if !(1..=64).contains(&config.id.len()) || !config.id.chars().all(is_plain) {
        let problem = "is 1 to 64 small letters, digits, `-`, `_` and `.`";
        return Err(wrong("id", problem));
    }
    let during = config
        .during
        .as_ref()
        .map(During::build)
        .transpose()
        .map_err(|(field, problem)| (format!("during.{field}"), (None, problem)))?;
    let condition = match &config.when {
        Some(source) => {
            let refused = |refusal| ("when".to_owned(), refusal);
            let condition = Expression::parse(source).map_err(refused)?;
            try_extremes(&condition).map_err(|problem| refused((None, problem)))?;
            Some((source.as_str().into(), condition))
        }
        None => None,
    };
    let because = config.because.as_deref().unwrap_or_default().trim();
    if config.action.restricts() && because.is_empty() {
        let problem = "is missing; whoever is kept back is told why";
        return Err(wrong("because", problem));
    }
    if because.chars().any(char::is_control) {
        return Err(wrong("because", "is one line of text, without control characters"));
    }
    if because.chars().count() > LONGEST_BECAUSE {
        return Err(wrong("because", &format!("has at most {LONGEST_BECAUSE} characters")));
    }
    Ok(Rule {
        id: config.id.as_str().into(),
        head: head(config)?,
        condition,
        during,
        action: config.action,
        wait: wait(config).map_err(|problem| wrong("wait", &problem))?,
        because: because.into(),
    })
}

fn head(config: &RuleConfig) -> Result<RuleHead, (String, Refusal)> {
    let pattern = |field: &str, text: &Option<String>| {
        Pattern::parse(text.as_deref()).map_err(|problem| (field.to_owned(), (None, problem)))
    };
    let urgencies = match &config.urgency {
        None => [true; 3],
        Some(urgencies) => {
            let urgencies = urgencies.as_slice();
            if urgencies.is_empty() {
                let problem = "names none; leave it out for all".to_owned();
                return Err(("urgency".to_owned(), (None, problem)));
            }
            [Urgency::Background, Urgency::Normal, Urgency::High]
                .map(|one| urgencies.contains(&one))
        }
    };
    Ok(RuleHead {
        workload: pattern("workload", &config.workload)?,
        agent: pattern("agent", &config.agent)?,
        identity: pattern("identity", &config.identity)?,
        scope: pattern("scope", &config.scope)?,
        pool: pattern("pool", &config.pool)?,
        urgencies,
    })
}

fn wait(config: &RuleConfig) -> Result<Option<Wait>, String> {
    match (config.action, config.wait.as_deref()) {
        (Action::Wait, None) => {
            Err("is missing: a length of time such as 30s, or `paced`".to_owned())
        }
        (Action::Wait, Some("paced")) => Ok(Some(Wait::Paced)),
        (Action::Wait, Some(text)) => Ok(Some(Wait::Fixed(duration(text)?))),
        (_, None) => Ok(None),
        (_, Some(_)) => Err("is only for the action `wait`; leave it out".to_owned()),
    }
}
