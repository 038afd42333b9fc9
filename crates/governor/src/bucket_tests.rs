use proptest::prelude::*;

use super::*;

#[test]
fn a_bucket_refills_without_losing_parts_of_a_token() {
    let mut bucket = Bucket::new(10, 1, 3, 0);
    bucket.hold(10);
    bucket.settle(10, 10);
    for now in 1..=30 {
        bucket.advance(now);
    }
    assert_eq!(bucket.left(), 10);
    bucket.advance(1000);
    assert_eq!(bucket.left(), 10);
}

#[test]
fn a_wait_is_as_long_as_it_takes_to_refill() {
    let mut bucket = Bucket::new(10, 2, 100, 0);
    bucket.hold(10);
    bucket.settle(10, 10);
    assert_eq!(bucket.earliest(1), Some(50));
    assert_eq!(bucket.earliest(10), Some(500));
    assert_eq!(bucket.earliest(11), None);
    bucket.advance(500);
    assert_eq!(bucket.earliest(10), Some(500));
}

proptest! {
    /// Whoever holds acts at the end of its hold, and still no stretch of time sees more than the bucket and
    /// what came in during it.
    #[test]
    fn no_stretch_of_time_sees_more_than_the_bucket_and_its_refill(
        capacity in 1..30_u64,
        refill in 1..10_u64,
        per in 1..20_i64,
        asks in prop::collection::vec((0..6_i64, 1..12_u64, 1..20_i64, any::<bool>()), 1..60),
    ) {
        let mut bucket = Bucket::new(capacity, refill, per, 0);
        let (mut now, mut acts, mut open) = (0, Vec::new(), Vec::new());
        for (pause, amount, validity, acts_late) in asks {
            now += pause;
            // Holds are settled when they end.
            open.sort_by_key(|(end, _, _)| *end);
            while let Some((end, amount, acted)) = open.first().copied().filter(|(end, _, _)| *end <= now) {
                bucket.advance(end);
                bucket.settle(amount, amount);
                acts.push((acted, amount));
                open.remove(0);
            }
            bucket.advance(now);
            if bucket.earliest(amount) == Some(now) {
                bucket.hold(amount);
                let acted = if acts_late { now + validity - 1 } else { now };
                open.push((now + validity, amount, acted));
            }
        }
        acts.extend(open.iter().map(|(_, amount, acted)| (*acted, *amount)));
        for from in 0..=now + 20 {
            for to in from..=now + 20 {
                let done: u64 = acts.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, amount)| amount).sum();
                let came_in = u64::try_from((to - from + 1) * i64::try_from(refill).unwrap() / per).unwrap() + 1;
                prop_assert!(done <= capacity + came_in, "{} from {} to {}", done, from, to);
            }
        }
    }
}
