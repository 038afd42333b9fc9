use proptest::prelude::*;

use super::*;

fn minute() -> Meter {
    Meter::windows(10, Span::Fixed { length: 60, offset: 0 })
}

#[test]
fn a_hold_that_is_settled_lower_gives_the_rest_back() {
    let mut meter = minute();
    let hold = Hold { from: 0, until: 30, amount: 8 };
    meter.hold(hold);
    assert_eq!(meter.earliest(5, 59, 3, 10, 0), Err(NoRoom::WithinReach));
    meter.settle(hold, 2, 5);
    assert_eq!((meter.taken(5), meter.earliest(5, 59, 8, 10, 0)), (2, Ok(5)));
    // What was spent is forgotten with its window.
    meter.advance(60);
    assert_eq!(meter.taken(60), 0);
}

#[test]
fn a_hold_that_nobody_settles_counts_as_spent() {
    let mut meter = minute();
    meter.hold(Hold { from: 0, until: 30, amount: 10 });
    meter.advance(45);
    assert_eq!(meter.earliest(45, 59, 1, 5, 0), Err(NoRoom::WithinReach));
    assert_eq!(meter.earliest(45, 100, 1, 5, 0), Ok(60));
}

#[test]
fn what_runs_at_the_same_time_is_free_again_when_it_ends() {
    let mut meter = Meter::windows(2, Span::Concurrency);
    let hold = Hold { from: 0, until: 100, amount: 2 };
    meter.hold(hold);
    assert_eq!(meter.earliest(10, 20, 1, 50, 0), Err(NoRoom::WithinReach));
    meter.settle(hold, 2, 10);
    assert_eq!((meter.taken(10), meter.earliest(10, 20, 2, 50, 0)), (0, Ok(10)));
}

#[test]
fn a_booking_is_kept_whatever_comes_later() {
    let mut meter = minute();
    meter.hold(Hold { from: 0, until: 30, amount: 10 });
    let from = meter.earliest(1, 100, 4, 30, 0).unwrap();
    assert_eq!(from, 60);
    meter.hold(Hold { from, until: from + 30, amount: 4 });
    // Whoever asks for more than is left beside it waits longer, whenever he asks.
    assert_eq!(meter.earliest(2, 119, 7, 30, 0), Err(NoRoom::WithinReach));
    assert_eq!(meter.earliest(2, 200, 7, 30, 0), Ok(120));
    assert_eq!(meter.earliest(2, 200, 6, 30, 0), Ok(60));
}

#[test]
fn what_is_kept_free_is_for_others() {
    let meter = minute();
    assert_eq!(meter.earliest(0, 50, 8, 10, 2), Ok(0));
    assert_eq!(meter.earliest(0, 50, 9, 10, 2), Err(NoRoom::WithinReach));
    assert_eq!(meter.earliest(0, 50, 11, 10, 0), Err(NoRoom::Never));
}

fn meters() -> impl Strategy<Value = Meter> {
    let windows = |span: Span| move |limit: u64| Meter::windows(limit, span);
    prop_oneof![
        ((5..30_u64), (5..40_i64), (0..40_i64)).prop_map(move |(limit, length, offset)| windows(
            Span::Fixed { length, offset }
        )(
            limit
        )),
        ((5..30_u64), (5..40_i64))
            .prop_map(move |(limit, length)| windows(Span::Sliding { length })(limit)),
        (5..30_u64).prop_map(windows(Span::Concurrency)),
        ((5..30_u64), (1..5_u64), (1..20_i64))
            .prop_map(|(limit, refill, per)| Meter::bucket(limit, refill, per, 0)),
    ]
}

proptest! {
    /// All or nothing, and the earliest moment for all of them: checked against trying every moment.
    #[test]
    fn several_meters_are_met_at_the_first_moment_that_suits_all(
        meters in prop::collection::vec(meters(), 1..4),
        earlier in prop::collection::vec((0..4_usize, 0..40_i64, 1..8_u64), 0..20),
        amounts in prop::collection::vec(1..12_u64, 4),
        validity in 1..30_i64,
        reach in 0..120_i64,
    ) {
        let mut meters = meters;
        for (which, from, amount) in earlier {
            let count = meters.len();
            let meter = &mut meters[which % count];
            if meter.earliest(from, from, amount, validity, 0) == Ok(from) {
                meter.hold(Hold { from, until: from + validity, amount });
            }
        }
        let draws: Vec<(&Meter, Draw)> =
            meters.iter().zip(&amounts).map(|(meter, amount)| (meter, Draw { amount: *amount, kept_free: 0 })).collect();
        let fits = |at: i64| draws.iter().all(|(meter, draw)| meter.earliest(at, at, draw.amount, validity, 0) == Ok(at));
        let expected = (0..=reach).find(|at| fits(*at));
        prop_assert_eq!(earliest_for_all(&draws, 0, reach, validity).ok(), expected);
    }
}
