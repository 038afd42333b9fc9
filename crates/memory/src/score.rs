//! Scores and ranks.

use std::{cmp::Reverse, collections::HashMap};

/// What a rank is added to before it is divided by: the larger, the less the first places stand out. 60 is what the
/// method was published with.
const RANK_OFFSET: f64 = 60.0;

/// A score between 0 and 1 in thousandths: what is shown is what is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Score(u16);

impl Score {
    /// Rounds to thousandths. What is no number, or below 0, is 0.
    pub(crate) fn of(value: f64) -> Self {
        // A conversion of what is no number gives 0.
        Self((value.clamp(0.0, 1.0) * 1_000.0).round() as u16)
    }

    pub(crate) fn value(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

/// A record with its score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) place: i64,
    pub(crate) score: Score,
}

/// The best `most`, best first; of equals the one that was added last.
pub(crate) fn rank(mut all: Vec<Ranked>, most: usize) -> Vec<Ranked> {
    let key = |one: &Ranked| Reverse((one.score, one.place));
    if all.len() > most && most > 0 {
        all.select_nth_unstable_by_key(most - 1, key);
    }
    all.truncate(most);
    all.sort_unstable_by_key(key);
    all
}

/// How a record was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// By its words.
    Words,
    /// By the nearness of its vector.
    Meaning,
    /// By both.
    Both,
}

/// The best `most` of two rankings.
///
/// If one of them is empty, the other stays as it is. Otherwise a record gets 1 / (60 + its rank) from each
/// ranking that it is in, and the sum is divided by what the first of both would get: 1 is the first in both, 0.5 the
/// first in one and in the other not at all.
pub(crate) fn fuse(words: Vec<Ranked>, meaning: Vec<Ranked>, most: usize) -> Vec<(Ranked, By)> {
    let alone =
        |ranked: Vec<Ranked>, by| ranked.into_iter().take(most).map(|one| (one, by)).collect();
    if meaning.is_empty() {
        return alone(words, By::Words);
    }
    if words.is_empty() {
        return alone(meaning, By::Meaning);
    }
    let mut sums: HashMap<i64, (f64, By)> = HashMap::new();
    for (ranked, by) in [(words, By::Words), (meaning, By::Meaning)] {
        for (before, one) in ranked.iter().enumerate() {
            let share = 1.0 / (RANK_OFFSET + 1.0 + before as f64);
            sums.entry(one.place)
                .and_modify(|(sum, by)| (*sum, *by) = (*sum + share, By::Both))
                .or_insert((share, by));
        }
    }
    let most_of_all = 2.0 / (RANK_OFFSET + 1.0);
    let scored = sums
        .iter()
        .map(|(place, (sum, _))| Ranked { place: *place, score: Score::of(sum / most_of_all) });
    let ranked = rank(scored.collect(), most);
    ranked.into_iter().filter_map(|one| Some((one, sums.get(&one.place)?.1))).collect()
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
