//! Samples that a condition is tried on before it is used: extremes on which none may fail.

use jiff::tz::TimeZone;

use super::{
    expression::{Expression, Failure, Source},
    facts::{Kind, Known, VARIABLES, local, place_of},
};

/// How many samples an expression is tried on at most.
const MOST_SAMPLES: usize = 400;

/// A value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
}

impl From<Known<'_>> for Value {
    fn from(known: Known<'_>) -> Self {
        match known {
            Known::Bool(value) => Self::Bool(value),
            Known::Int(value) => Self::Int(value),
            Known::Double(value) => Self::Double(value),
            Known::Text(value) => Self::Text(value.to_owned()),
        }
    }
}

/// A value for each name of the table; none where it is not known.
#[derive(Debug, Clone)]
pub(crate) struct Sample(Vec<Option<Value>>);

impl Source for Sample {
    fn value(&self, place: usize) -> Option<Known<'_>> {
        Some(match self.0.get(place)?.as_ref()? {
            Value::Bool(value) => Known::Bool(*value),
            Value::Int(value) => Known::Int(*value),
            Value::Double(value) => Known::Double(*value),
            Value::Text(value) => Known::Text(value),
        })
    }
}

impl Sample {
    /// A usual value for everything.
    pub(crate) fn usual() -> Self {
        Self(VARIABLES.iter().map(|variable| Some(variable.usual.into())).collect())
    }

    pub(crate) fn set(&mut self, place: usize, value: Option<Value>) {
        if let Some(slot) = self.0.get_mut(place) {
            *slot = value;
        }
    }

    pub(crate) fn put<'a>(&mut self, name: &str, value: impl Into<Option<Known<'a>>>) {
        if let Some(place) = place_of(name) {
            self.set(place, value.into().map(Value::from));
        }
    }

    pub(crate) fn int(&self, name: &str) -> Option<u64> {
        match self.value(place_of(name)?)? {
            Known::Int(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    pub(crate) fn double(&self, name: &str) -> Option<f64> {
        match self.value(place_of(name)?)? {
            Known::Double(value) => Some(value),
            _ => None,
        }
    }

    /// The text of this name.
    pub(crate) fn text(&self, name: &str) -> &str {
        match place_of(name).and_then(|place| self.value(place)) {
            Some(Known::Text(value)) => value,
            _ => "",
        }
    }

    /// The time, on the clocks of a zone.
    pub(crate) fn put_time(&mut self, now: i64, zone: &TimeZone) {
        let Some(time) = local(now, zone) else { return };
        let parts = [
            ("time.hour", i64::from(time.hour())),
            ("time.minute", time.minute().into()),
            ("time.weekday", time.weekday().to_monday_one_offset().into()),
            ("time.day", time.day().into()),
            ("time.month", time.month().into()),
            ("time.year", time.year().into()),
            ("time.unix", now.div_euclid(1000)),
        ];
        for (name, value) in parts {
            self.put(name, Known::Int(value));
        }
    }
}

/// Tries the expression on extremes: one name at a time, around several samples. It says what is wrong.
pub(crate) fn try_extremes(expression: &Expression) -> Result<(), String> {
    let mut tries = 0;
    for base in bases() {
        attempt(expression, &base)?;
        for place in expression.reads.places() {
            let Some(variable) = VARIABLES.get(place) else { continue };
            let numbers = expression.numbers.iter().take(8).filter_map(|n| match variable.kind {
                Kind::Int => n.checked_abs().map(Known::Int),
                #[expect(clippy::cast_precision_loss, reason = "a sample need not be exact")]
                Kind::Double => n.checked_abs().map(|n| Known::Double(n as f64)),
                Kind::Bool | Kind::Text => None,
            });
            for value in variable.extremes.iter().copied().chain(numbers) {
                tries += 1;
                if tries > MOST_SAMPLES {
                    return Ok(());
                }
                let mut sample = base.clone();
                sample.set(place, Some(value.into()));
                attempt(expression, &sample)?;
            }
            if variable.can_be_unknown {
                let mut sample = base.clone();
                sample.set(place, None);
                attempt(expression, &sample)?;
            }
        }
    }
    Ok(())
}

/// Usual values, all the least, all the most, and nothing known that need not be.
fn bases() -> [Sample; 4] {
    let with = |pick: fn(&[Known<'static>]) -> Option<Known<'static>>| {
        Sample(VARIABLES.iter().map(|v| pick(v.extremes).map(Value::from)).collect())
    };
    let mut unknown = Sample::usual();
    for (place, variable) in VARIABLES.iter().enumerate() {
        if variable.can_be_unknown {
            unknown.set(place, None);
        }
    }
    [
        Sample::usual(),
        with(|extremes| extremes.first().copied()),
        with(|extremes| extremes.last().copied()),
        unknown,
    ]
}

fn attempt(expression: &Expression, sample: &Sample) -> Result<(), String> {
    match expression.is_true(sample) {
        // Reading what is not known is an error by itself, and the rule's action says what that means.
        Ok(_) | Err(Failure::Unknown(_)) => Ok(()),
        Err(Failure::Wrong(problem)) => {
            let mut read = Vec::new();
            for place in expression.reads.places() {
                if let (Some(variable), Some(value)) = (VARIABLES.get(place), sample.value(place)) {
                    read.push(format!("{} is {}", variable.name, shown(value)));
                }
            }
            let place = if read.is_empty() {
                String::new()
            } else {
                format!(" where {}", read.join(" and "))
            };
            Err(format!("{problem}{place}; ask first, as in `pool.limit > 0 && …`"))
        }
    }
}

fn shown(value: Known<'_>) -> String {
    match value {
        Known::Bool(value) => value.to_string(),
        Known::Int(value) => value.to_string(),
        Known::Double(value) if value.is_infinite() => "infinite".to_owned(),
        Known::Double(value) => value.to_string(),
        Known::Text(value) => format!("'{value}'"),
    }
}
