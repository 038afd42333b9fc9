use proptest::prelude::*;

use super::*;
use crate::Profile;

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

#[test]
fn a_hold_that_crosses_a_reset_counts_in_both_windows() {
    let hourly = Window::Fixed { length: 3600, observed: false };
    assert_eq!(hourly.counts_until(3599, None), 3600);
    assert_eq!(hourly.counts_until(3600, None), 3600, "it may act until before the reset");
    assert_eq!(hourly.counts_until(3601, None), 7200);
    assert_eq!(Window::Sliding { length: 60 }.counts_until(10, None), 70);
    assert_eq!(Window::Concurrency.counts_until(10, None), 10);
}

#[test]
fn a_sliding_window_forgets_in_pieces_and_never_early() {
    let hour = Window::Sliding { length: 3_600_000 };
    for acts_until in [1, 56_249, 56_250, 56_251, 1_000_000] {
        let end = hour.counts_until(acts_until, None);
        assert!(end >= acts_until + 3_600_000, "{acts_until}");
        assert!(end <= acts_until + 3_600_000 + 56_250, "{acts_until}");
        assert_eq!(end % 56_250, 0);
    }
}

#[test]
fn a_learned_window_ends_when_its_provider_says_and_later_ones_a_length_behind_the_act() {
    let window = Window::Provider { length: 3600 };
    assert_eq!(window.counts_until(100, Some(500)), 500);
    assert_eq!(window.counts_until(501, Some(500)), 501 + 3600);
    assert_eq!(window.counts_until(100, None), 3700);
}

#[test]
fn days_weeks_and_months_follow_the_time_zone_and_its_summer_time() {
    let now = ms("2026-03-28T12:00:00Z");
    let berlin = |unit| Calendar::new(unit, "Europe/Berlin", now).unwrap();
    let day = berlin(CalendarUnit::Day);
    // The 29th of March 2026 has 23 hours there.
    assert_eq!(day.end_of(ms("2026-03-29T00:30:00Z")), ms("2026-03-29T22:00:00Z"));
    assert_eq!(day.end_of(ms("2026-03-28T22:59:59Z")), ms("2026-03-28T23:00:00Z"));
    assert_eq!(day.end_of(ms("2026-03-28T23:00:00Z")), ms("2026-03-29T22:00:00Z"));
    let week = berlin(CalendarUnit::Week);
    assert_eq!(week.end_of(now), ms("2026-03-29T22:00:00Z"));
    let month = berlin(CalendarUnit::Month);
    assert_eq!(month.end_of(now), ms("2026-03-31T22:00:00Z"));
    assert_eq!(month.end_of(ms("2026-12-31T22:59:59Z")), ms("2026-12-31T23:00:00Z"));
    assert!(Calendar::new(CalendarUnit::Day, "Europe/Atlantis", now).is_none());
    // Far from where it was made for, it is the same.
    for moment in [ms("1999-05-05T05:05:05Z"), ms("2080-05-05T05:05:05Z"), now] {
        assert_eq!(day.end_of(moment), day.work_out(moment));
    }
}

/// A kind of window whose real count can be told: how much was done at each moment.
fn windows() -> impl Strategy<Value = Window> {
    prop_oneof![
        (1..50_i64).prop_map(|length| Window::Fixed { length, observed: false }),
        (1..50_i64).prop_map(|length| Window::Sliding { length }),
    ]
}

fn real_peak(window: &Window, acts: &[(i64, u64)]) -> u64 {
    let sum = |is_in: &dyn Fn(i64) -> bool| {
        acts.iter().filter(|(at, _)| is_in(*at)).map(|(_, amount)| amount).sum::<u64>()
    };
    let sums: Vec<u64> = match window {
        Window::Fixed { length, .. } => (-60..400)
            .map(|moment| {
                let end = window_end(moment, *length, 0);
                sum(&|at| (end - length..end).contains(&at))
            })
            .collect(),
        Window::Sliding { length } => {
            (-60..400).map(|end| sum(&|at| (end - length + 1..=end).contains(&at))).collect()
        }
        _ => Vec::new(),
    };
    sums.into_iter().max().unwrap_or(0)
}

proptest! {
    /// The promise: whoever was given room acts at any moment of its hold, and no window is ever over.
    #[test]
    fn whenever_the_holders_act_no_window_is_over(
        window in windows(),
        limit in 1..40_u64,
        asks in prop::collection::vec((0..6_i64, 1..12_u64, 1..30_i64, 0.0..1.0_f64), 0..60),
        reach in 0..60_i64,
    ) {
        let (mut profile, mut now, mut acts) = (Profile::default(), 0, Vec::new());
        for (pause, amount, validity, when) in asks {
            now += pause;
            profile.advance(now);
            let until = |from: i64| window.counts_until(from + validity, None);
            if let Ok(from) = profile.earliest(now, now + reach, amount, limit, until) {
                profile.take(from, until(from), amount);
                #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
                let later = (when * validity as f64) as i64;
                acts.push((from + later.min(validity - 1), amount));
            }
        }
        prop_assert!(real_peak(&window, &acts) <= limit, "{:?} {:?}", window, acts);
    }
}
