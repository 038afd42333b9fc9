//! One walk over what was taken of a pool: how full it was at every moment, and by how much it was over.

use std::collections::BTreeMap;

use tollgate_governor::GovernorConfig;

use crate::{gauge::Gauge, observed::Observed, scenario::ProviderPlan};

/// Into how many pieces the time of a run is cut for the picture.
pub(crate) const PIECES: usize = 340;

/// What became of one pool.
#[derive(Debug)]
pub(crate) struct Series {
    /// By take: by how much the window was over its limit then.
    pub(crate) over: Vec<u64>,
    /// By piece of time: the most that was taken, in parts of the limit.
    pub(crate) curve: Vec<f64>,
    /// What our own agents got, over what there was.
    pub(crate) utilization: f64,
}

/// All pools of a run.
pub(crate) fn all(
    observed: &Observed,
    config: &GovernorConfig,
    providers: &[ProviderPlan],
) -> Vec<Series> {
    let each = config.pools.iter().enumerate().map(|(place, pool)| {
        let provider = providers.iter().find(|plan| plan.pool == place);
        walk(observed, place, &Gauge::new(&pool.window, provider), provider.is_some())
    });
    each.collect()
}

/// Walks over what was taken of a pool, in the order in which it happened.
fn walk(observed: &Observed, pool: usize, fresh: &Gauge, has_provider: bool) -> Series {
    let takes = observed.takes.get(pool).map_or(&[][..], Vec::as_slice);
    let back =
        fresh.reach().saturating_add(if has_provider { 0 } else { promised(observed, pool) });
    let mut gauges: BTreeMap<u32, Gauge> = BTreeMap::new();
    let mut over = Vec::with_capacity(takes.len());
    let mut curve = vec![0.0_f64; PIECES];
    let piece = ((observed.ends_at - observed.starts_at) / PIECES as i64).max(1);
    let place = |at: i64| usize::try_from((at - observed.starts_at) / piece).unwrap_or(0);
    let share = |taken: u64, limit: u64| taken as f64 / limit.max(1) as f64;
    let mut reached = 0;
    for take in takes {
        while reached < place(take.at) {
            reached += 1;
            let at = observed.starts_at + reached as i64 * piece;
            level(&mut gauges, at, observed.limit(pool, at), curve.get_mut(reached));
        }
        let gauge = gauges.entry(take.key).or_insert_with(|| fresh.clone());
        gauge.take(take.at, take.ends, take.amount);
        let limit = observed.highest(pool, take.at.saturating_sub(back), take.at);
        over.push(gauge.taken().saturating_sub(limit));
        if let Some(point) = curve.get_mut(place(take.at)) {
            *point = point.max(share(gauge.taken(), observed.limit(pool, take.at)));
        }
    }
    for after in reached + 1..PIECES {
        let at = observed.starts_at + after as i64 * piece;
        level(&mut gauges, at, observed.limit(pool, at), curve.get_mut(after));
    }
    Series { over, curve, utilization: utilization(observed, pool, fresh, gauges.len()) }
}

/// The fullest of a pool's keys at a moment.
fn level(gauges: &mut BTreeMap<u32, Gauge>, at: i64, limit: u64, point: Option<&mut f64>) {
    let mut most = 0;
    for gauge in gauges.values_mut() {
        gauge.advance(at);
        most = most.max(gauge.taken());
    }
    point.into_iter().for_each(|point| *point = most as f64 / limit.max(1) as f64);
}

/// How long before an act it was allowed, at most: under the limit that was in force then.
fn promised(observed: &Observed, pool: usize) -> i64 {
    let takes = observed.takes.get(pool).into_iter().flatten();
    let acts = takes.filter_map(|take| {
        let act = observed.acts.get(take.act?)?;
        Some(take.ends.saturating_sub(act.decided))
    });
    acts.max().unwrap_or(0)
}

fn utilization(observed: &Observed, pool: usize, gauge: &Gauge, keys: usize) -> f64 {
    let takes = observed.takes.get(pool).map_or(&[][..], Vec::as_slice);
    let own = takes.iter().filter(|take| take.act.is_some() && !take.refused);
    let used: f64 = own
        .map(|take| match gauge {
            Gauge::Running { .. } => {
                take.amount as f64 * (take.ends.min(observed.ends_at) - take.at) as f64
            }
            _ => take.amount as f64,
        })
        .sum();
    let limit = observed.mean_limit(pool);
    let there = gauge.capacity(observed.starts_at, observed.ends_at, limit) * keys.max(1) as f64;
    used / there.max(1.0)
}
