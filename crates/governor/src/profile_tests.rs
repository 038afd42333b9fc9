use proptest::prelude::*;

use super::*;

/// What the profile must agree with: every span that was taken, summed up anew each time.
#[derive(Debug, Clone, Default)]
struct Naive(Vec<(i64, i64, u64)>);

impl Naive {
    fn at(&self, moment: i64) -> u64 {
        self.0
            .iter()
            .filter(|(from, to, _)| (*from..*to).contains(&moment))
            .map(|(_, _, amount)| amount)
            .sum()
    }

    fn peak(&self, from: i64, to: i64) -> u64 {
        (from..to.max(from + 1)).map(|moment| self.at(moment)).max().unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take(i64, i64, u64),
    GiveBack(prop::sample::Index),
    Advance(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..60_i64, 1..40_i64, 0..20_u64).prop_map(|(from, length, amount)| Step::Take(from, length, amount)),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => (0..8_i64).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn it_is_the_sum_of_what_was_taken_whatever_the_order(steps in steps()) {
        let (mut profile, mut naive, mut now) = (Profile::default(), Naive::default(), 0);
        for step in steps {
            match step {
                Step::Take(from, length, amount) => {
                    let from = now + from;
                    profile.take(from, from + length, amount);
                    naive.0.push((from, from + length, amount));
                }
                Step::GiveBack(index) if !naive.0.is_empty() => {
                    let (from, to, amount) = naive.0.swap_remove(index.index(naive.0.len()));
                    profile.give_back(from, to, amount);
                }
                Step::GiveBack(_) => {}
                Step::Advance(by) => {
                    now += by;
                    profile.advance(now);
                }
            }
            for moment in now..now + 100 {
                prop_assert_eq!(profile.taken(moment), naive.at(moment), "at {}", moment);
            }
            for (from, to) in [(now, now + 1), (now, now + 100), (now + 5, now + 20), (now + 30, now + 30)] {
                prop_assert_eq!(profile.peak(from, to), naive.peak(from, to), "from {} to {}", from, to);
            }
        }
    }

    #[test]
    fn the_earliest_moment_fits_and_none_before_it_does(
        spans in prop::collection::vec((0..60_i64, 1..40_i64, 1..20_u64), 0..20),
        amount in 1..30_u64,
        limit in 1..60_u64,
        length in 1..30_i64,
        reach in 0..80_i64,
    ) {
        let (mut profile, mut naive) = (Profile::default(), Naive::default());
        for (from, span, amount) in spans {
            profile.take(from, from + span, amount);
            naive.0.push((from, from + span, amount));
        }
        let fits = |from: i64| amount <= limit && naive.peak(from, from + length) <= limit - amount;
        let found = profile.earliest(0, reach, amount, limit, |from| from + length);
        let expected = (0..=reach).find(|from| fits(*from));
        match (found, expected) {
            (Ok(found), Some(expected)) => prop_assert_eq!(found, expected),
            (Err(NoRoom::Never), None) => prop_assert!(amount > limit),
            (Err(NoRoom::WithinReach), None) => prop_assert!(amount <= limit),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn what_is_over_is_forgotten() {
    let mut profile = Profile::default();
    for number in 0..1000 {
        profile.take(number, number + 10, 1);
        profile.advance(number);
    }
    assert!(profile.moments() <= 11, "{}", profile.moments());
    assert_eq!(profile.taken(999), 10);
    profile.advance(5000);
    assert_eq!((profile.taken(5000), profile.moments()), (0, 0));
    // Time does not go back.
    profile.advance(10);
    profile.take(0, 6000, 3);
    assert_eq!(profile.taken(5000), 3);
}
