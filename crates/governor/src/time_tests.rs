use proptest::prelude::*;

use super::*;

#[test]
fn a_jump_ahead_counts_only_once_it_has_lasted() {
    let mut time = SteadyTime::new(1_000_000, 0, 0);
    assert_eq!(time.read(1_000_500, 500), 1_000_500);
    // An hour ahead, all at once.
    assert_eq!(time.read(4_601_000, 1000), 1_001_000);
    assert!(time.is_waiting());
    assert_eq!(time.read(4_650_000, 50_000), 1_050_000);
    // It went back: it never happened.
    assert_eq!(time.read(1_051_000, 51_000), 1_051_000);
    assert_eq!(time.read(4_652_000, 52_000), 1_052_000);
    assert_eq!(time.read(4_711_999, 111_999), 1_111_999);
    assert_eq!(time.read(4_712_000, 112_000), 4_712_000);
    assert!(!time.is_waiting());
}

#[test]
fn a_clock_that_is_set_back_slows_time_until_both_agree() {
    let mut time = SteadyTime::new(1_000_000, 0, 0);
    // Ten seconds back. Read every millisecond, time goes at half its pace.
    for counted in 1..=10_000 {
        time.read(990_000 + counted, counted);
    }
    assert_eq!(time.now(), 1_005_000);
    assert_eq!(time.read(1_020_000, 30_000), 1_020_000);
}

#[test]
fn a_start_goes_on_where_the_record_ends() {
    assert_eq!(SteadyTime::new(500, 0, 900).now(), 900);
    assert_eq!(SteadyTime::new(1_000_000, 0, 900).now(), 1_000_000);
}

proptest! {
    #[test]
    fn whatever_the_wall_says_time_goes_on_and_not_faster_than_it_may(
        steps in prop::collection::vec((0..5000_i64, -20_000..20_000_i64), 1..200),
    ) {
        let (mut wall, mut counted) = (1_000_000, 0);
        let mut time = SteadyTime::new(wall, counted, 0);
        let mut before = time.now();
        for (passed, step) in steps {
            counted += passed;
            wall += passed + if step.abs() > 15_000 { step } else { 0 };
            let now = time.read(wall, counted);
            prop_assert!(now >= before);
            // Beyond what was counted it runs ahead only by what is tolerated, or a jump that has lasted.
            prop_assert!(now <= before + passed + TOLERANCE || now == wall);
            before = now;
        }
    }
}
