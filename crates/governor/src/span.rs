//! Over which span of time a hold counts, for each kind of window.

/// A kind of window whose limit is a sum at every moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Windows of equal length, one behind the other, aligned to `offset`. What is spent in one counts until
    /// it ends.
    Fixed {
        /// How long one is.
        length: i64,
        /// When one begins.
        offset: i64,
    },
    /// What is spent counts for a length of time from the moment it is spent.
    Sliding {
        /// For how long.
        length: i64,
    },
    /// What runs at the same time. It counts until it ends.
    Concurrency,
}

impl Span {
    /// The moment until which a hold counts that may act at any moment until `acts_until`. The holder may act
    /// at the very end, and what it does then must still fit: in a fixed window it counts in every window
    /// that it touches, in a sliding one a whole length beyond its end.
    pub fn counts_until(self, acts_until: i64) -> i64 {
        match self {
            Self::Fixed { length, offset } => {
                window_end(acts_until.saturating_sub(1), length, offset)
            }
            Self::Sliding { length } => acts_until.saturating_add(length.max(1)),
            Self::Concurrency => acts_until,
        }
    }

    /// When everything that is spent at `now` is forgotten.
    pub fn forgotten_at(self, now: i64) -> i64 {
        self.counts_until(now.saturating_add(1))
    }
}

/// The end of the window that holds `moment`.
fn window_end(moment: i64, length: i64, offset: i64) -> i64 {
    let length = length.max(1);
    let into = moment.saturating_sub(offset).rem_euclid(length);
    moment.saturating_sub(into).saturating_add(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Profile;

    #[test]
    fn a_hold_that_crosses_a_reset_counts_in_both_windows() {
        let hourly = Span::Fixed { length: 3600, offset: 0 };
        assert_eq!(hourly.counts_until(3599), 3600);
        assert_eq!(hourly.counts_until(3600), 3600, "it may act until before the reset");
        assert_eq!(hourly.counts_until(3601), 7200);
        let shifted = Span::Fixed { length: 60, offset: 45 };
        assert_eq!((shifted.counts_until(40), shifted.counts_until(46)), (45, 105));
        assert_eq!(Span::Sliding { length: 60 }.counts_until(10), 70);
        assert_eq!(Span::Concurrency.counts_until(10), 10);
    }

    /// A kind of window, and what its real count is: how much was done at each moment.
    fn spans() -> impl Strategy<Value = Span> {
        prop_oneof![
            (1..50_i64, 0..50_i64).prop_map(|(length, offset)| Span::Fixed { length, offset }),
            (1..50_i64).prop_map(|length| Span::Sliding { length }),
        ]
    }

    fn real_peak(span: Span, acts: &[(i64, u64)]) -> u64 {
        let sum = |is_in: &dyn Fn(i64) -> bool| {
            acts.iter().filter(|(at, _)| is_in(*at)).map(|(_, amount)| amount).sum::<u64>()
        };
        let windows: Vec<u64> = match span {
            Span::Fixed { length, offset } => (-60..400)
                .map(|moment| {
                    let end = window_end(moment, length, offset);
                    sum(&|at| (end - length..end).contains(&at))
                })
                .collect(),
            Span::Sliding { length } => {
                (-60..400).map(|end| sum(&|at| (end - length + 1..=end).contains(&at))).collect()
            }
            Span::Concurrency => Vec::new(),
        };
        windows.into_iter().max().unwrap_or(0)
    }

    proptest! {
        /// The promise: whoever was given room acts at any moment of its hold, and no window is ever over.
        #[test]
        fn whenever_the_holders_act_no_window_is_over(
            span in spans(),
            limit in 1..40_u64,
            asks in prop::collection::vec((0..6_i64, 1..12_u64, 1..30_i64, 0.0..1.0_f64), 0..60),
            reach in 0..60_i64,
        ) {
            let (mut profile, mut now, mut acts) = (Profile::default(), 0, Vec::new());
            for (pause, amount, validity, when) in asks {
                now += pause;
                profile.advance(now);
                let until = |from: i64| span.counts_until(from + validity);
                if let Ok(from) = profile.earliest(now, now + reach, amount, limit, until) {
                    profile.take(from, until(from), amount);
                    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
                    let later = (when * validity as f64) as i64;
                    acts.push((from + later.min(validity - 1), amount));
                }
            }
            prop_assert!(real_peak(span, &acts) <= limit, "{:?} {:?}", span, acts);
        }
    }
}
