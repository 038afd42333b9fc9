use super::*;

fn ranked(all: &[(i64, f64)]) -> Vec<Ranked> {
    all.iter().map(|(place, score)| Ranked { place: *place, score: Score::of(*score) }).collect()
}

fn shown(fused: &[(Ranked, By)]) -> Vec<(i64, f64, By)> {
    fused.iter().map(|(one, by)| (one.place, one.score.value(), *by)).collect()
}

#[test]
fn a_score_is_rounded_and_kept_between_0_and_1() {
    let cases = [(0.4124, 0.412), (0.4125, 0.413), (1.7, 1.0), (-0.1, 0.0), (f64::NAN, 0.0)];
    for (given, expected) in cases {
        assert_eq!(Score::of(given).value(), expected);
    }
}

#[test]
fn of_equals_the_last_added_is_first() {
    let all = ranked(&[(1, 0.5), (3, 0.5004), (2, 0.4996), (4, 0.1), (5, 0.9)]);
    let order = |most| rank(all.clone(), most).iter().map(|one| one.place).collect::<Vec<_>>();
    assert_eq!(order(10), [5, 3, 2, 1, 4]);
    for most in 0..=5 {
        assert_eq!(order(most), [5, 3, 2, 1, 4][..most], "fewer are the first of more");
    }
}

#[test]
fn two_rankings_are_fused_by_their_ranks() {
    use By::{Both, Meaning, Words};
    let words = ranked(&[(1, 0.9), (2, 0.2), (3, 0.1)]);
    let meaning = ranked(&[(2, 0.99), (1, 0.5), (4, 0.4)]);
    let fused = fuse(words.clone(), meaning.clone(), 10);
    // 1 and 2 are first in one and second in the other: (1/61 + 1/62) / (2/61); 3 and 4 are third in one.
    let expected = [(2, 0.992, Both), (1, 0.992, Both), (4, 0.484, Meaning), (3, 0.484, Words)];
    assert_eq!(shown(&fused), expected);
    let first_in_both = fuse(ranked(&[(7, 0.1)]), ranked(&[(7, 0.1), (8, 0.1)]), 1);
    assert_eq!(shown(&first_in_both), [(7, 1.0, Both)]);
    assert_eq!(shown(&fuse(words, Vec::new(), 2)), [(1, 0.9, Words), (2, 0.2, Words)]);
    assert_eq!(shown(&fuse(Vec::new(), meaning, 1)), [(2, 0.99, Meaning)]);
    assert!(fuse(Vec::new(), Vec::new(), 9).is_empty());
}
