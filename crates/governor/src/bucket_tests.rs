use proptest::prelude::*;

use super::*;

/// A bucket that was emptied.
fn empty(capacity: u64, refill: u64, per: i64) -> Bucket {
    let mut bucket = Bucket::new(capacity, refill, per, 0);
    bucket.hold(0, capacity);
    bucket.settle(0, capacity, capacity);
    bucket
}

#[test]
fn a_bucket_refills_without_losing_parts_of_a_token() {
    let mut bucket = empty(10, 1, 3);
    for now in 1..=30 {
        bucket.advance(now);
    }
    assert_eq!(bucket.left(), 10);
    bucket.advance(1000);
    assert_eq!(bucket.left(), 10);
}

#[test]
fn a_wait_is_as_long_as_it_takes_to_refill() {
    let mut bucket = empty(10, 2, 100);
    assert_eq!(bucket.earliest(0, 1, 0), Some(50));
    assert_eq!(bucket.earliest(0, 10, 0), Some(500));
    assert_eq!(bucket.earliest(0, 11, 0), None);
    bucket.advance(500);
    assert_eq!(bucket.earliest(500, 10, 0), Some(500));
}

#[test]
fn bookings_leave_free_what_was_kept_free_for_others() {
    // Ten tokens, one a second. Background work books as far ahead as it can, and keeps one free.
    let mut bucket = empty(10, 1, 1000);
    let mut slots = Vec::new();
    while let Some(slot) = bucket.earliest(0, 1, 1).filter(|slot| *slot <= 300_000) {
        bucket.hold(slot, 1);
        slots.push(slot);
    }
    assert_eq!(slots, [2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000]);
    // Whoever needs none to be kept free is served before all of them.
    assert_eq!(bucket.earliest(0, 1, 0), Some(1000));
    bucket.hold(1000, 1);
    assert_eq!(bucket.earliest(0, 1, 0), None, "everything is held");
    bucket.advance(2000);
    bucket.settle(1000, 1, 1);
    // What was booked is still possible at its time.
    for slot in slots {
        bucket.advance(slot);
        assert!(bucket.level >= 0, "at {slot}");
        bucket.settle(slot, 1, 1);
    }
}

#[test]
fn a_booking_that_is_given_up_leaves_no_trace() {
    let mut bucket = empty(10, 1, 1000);
    let before = bucket.clone();
    bucket.hold(5000, 3);
    bucket.settle(5000, 3, 0);
    assert_eq!(bucket, before);
}

proptest! {
    /// Whoever holds acts at the end of its hold, and still no stretch of time sees more than the bucket and
    /// what came in during it.
    #[test]
    fn no_stretch_of_time_sees_more_than_the_bucket_and_its_refill(
        capacity in 1..30_u64,
        refill in 1..10_u64,
        per in 1..20_i64,
        reach in 0..40_i64,
        asks in prop::collection::vec((0..6_i64, 1..12_u64, 1..20_i64, any::<bool>(), 0..3_u64), 1..60),
    ) {
        let mut bucket = Bucket::new(capacity, refill, per, 0);
        let (mut now, mut acts, mut open) = (0, Vec::new(), Vec::new());
        for (pause, amount, validity, acts_late, kept_free) in asks {
            now += pause;
            // Holds are settled when they end.
            open.sort_by_key(|(end, _, _, _)| *end);
            while let Some((end, from, amount, acted)) = open.first().copied().filter(|(end, _, _, _)| *end <= now) {
                bucket.advance(end);
                bucket.settle(from, amount, amount);
                acts.push((acted, amount));
                open.remove(0);
            }
            bucket.advance(now);
            if let Some(from) = bucket.earliest(now, amount, kept_free).filter(|from| *from <= now + reach) {
                bucket.hold(from, amount);
                let acted = if acts_late { from + validity - 1 } else { from };
                open.push((from + validity, from, amount, acted));
            }
        }
        acts.extend(open.iter().map(|(_, _, amount, acted)| (*acted, *amount)));
        for from in 0..=now + 60 {
            for to in from..=now + 60 {
                let done: u64 = acts.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, amount)| amount).sum();
                let came_in = u64::try_from((to - from + 1) * i64::try_from(refill).unwrap() / per).unwrap() + 1;
                prop_assert!(done <= capacity + came_in, "{} from {} to {}", done, from, to);
            }
        }
    }
}
