//! Watching forecasts: whoever is about to exhaust a pool is told of before it happens, once, and once more
//! when the danger is over.

use std::{collections::HashSet, sync::Arc};

use crate::{
    effect::{About, Crossed, Effect, Event, Hint},
    forecast::Basis,
    state::Governor,
};

/// How many meters are looked at in one go: everybody waits meanwhile.
const MOST_LOOKED_AT: usize = 128;

/// Whose forecast is worth a look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    /// Meters that were drawn on since the last look, some of them where they are very many.
    touched: HashSet<(Arc<str>, Arc<str>)>,
    /// Meters that were told of.
    alerted: HashSet<(Arc<str>, Arc<str>)>,
}

impl Watched {
    pub(crate) fn touch(&mut self, pool: &Arc<str>, key: &Arc<str>) {
        // Under load it is full most of the time, and then this costs nothing.
        if self.touched.len() < MOST_LOOKED_AT {
            self.touched.insert((Arc::clone(pool), Arc::clone(key)));
        }
    }

    pub(crate) fn alert(&mut self, pool: &Arc<str>, key: &Arc<str>, rises: bool) {
        let meter = (Arc::clone(pool), Arc::clone(key));
        if rises {
            self.alerted.insert(meter);
        } else {
            self.alerted.remove(&meter);
        }
    }
}

impl Governor {
    /// Is there anything to be looked at?
    pub fn has_to_watch(&self) -> bool {
        !self.watched.touched.is_empty() || !self.watched.alerted.is_empty()
    }

    /// Looks at the forecasts of what was drawn on lately, and of what was told of. Gives the events, which have
    /// been applied.
    pub fn watch(&mut self, now: i64) -> Vec<Event> {
        let now = self.advance(now);
        let touched = std::mem::take(&mut self.watched.touched);
        let again = self.watched.alerted.iter().take(MOST_LOOKED_AT).cloned();
        let mut meters: Vec<(Arc<str>, Arc<str>)> = touched.into_iter().chain(again).collect();
        meters.sort();
        meters.dedup();
        let crossed: Vec<Crossed> =
            meters.iter().filter_map(|(pool, key)| self.crosses(pool, key, now)).collect();
        let event =
            |crossed| Event { ts: now, about: About::default(), effect: Effect::Crossed(crossed) };
        let events: Vec<Event> = crossed.into_iter().map(event).collect();
        events.iter().for_each(|event| self.apply(event));
        events
    }

    fn crosses(&mut self, pool: &Arc<str>, key: &Arc<str>, now: i64) -> Option<Crossed> {
        let threshold = self.setup.settings().forecast_alert;
        let (pool, meter) = self.meter(pool, key, Hint::default())?;
        let forecast = meter.forecast(pool, now, 0)?;
        let p = forecast.p_exhaust;
        let rises = !meter.is_alerted;
        // Not told again and again while it goes up and down around the threshold.
        let is_crossed = if rises {
            // What is used up already needs no data to be believed.
            let is_gone = meter.read(pool, now).left == Some(0);
            threshold > 0.0 && p >= threshold && (is_gone || forecast.basis == Basis::Enough)
        } else {
            p < threshold / 2.0 || threshold <= 0.0
        };
        let [half, ..] = forecast.exhausted_in;
        is_crossed.then(|| Crossed {
            pool: Arc::clone(&pool.id),
            key: Arc::clone(key),
            rises,
            p_exhaust_percent: percent(p),
            exhausted_at: half.filter(|_| rises).map(|ms| now.saturating_add(ms)),
            reset_at: meter.read(pool, now).reset_at,
        })
    }

    pub(crate) fn crossed(&mut self, crossed: &Crossed) {
        if let Some((_, meter)) = self.meter(&crossed.pool, &crossed.key, Hint::default()) {
            meter.is_alerted = crossed.rises;
            self.watched.alert(&crossed.pool, &crossed.key, crossed.rises);
        }
    }
}

fn percent(part: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    {
        (part.clamp(0.0, 1.0) * 100.0).round() as u32
    }
}
