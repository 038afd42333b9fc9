use super::*;
use crate::vector::{cosine, unit};

/// Numbers that are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    fn vector(&mut self, dimension: usize, near: Option<&[f32]>) -> Vec<f32> {
        let vector: Vec<f32> = match near {
            Some(near) => near.iter().map(|number| number + self.next() * 0.1).collect(),
            None => (0..dimension).map(|_| self.next()).collect(),
        };
        unit(&vector).unwrap()
    }
}

/// The ten nearest by looking at all of them in full.
fn exact(vectors: &[Vec<f32>], question: &[f32]) -> Vec<i64> {
    let mut near: Vec<(f64, i64)> =
        vectors.iter().zip(0..).map(|(vector, at)| (cosine(vector, question), at)).collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.iter().take(10).map(|(_, at)| *at).collect()
}

#[test]
fn the_nearest_are_among_those_that_look_nearest() {
    let mut random = Random(42);
    for dimension in [16, 100, 384] {
        let groups: Vec<Vec<f32>> = (0..40).map(|_| random.vector(dimension, None)).collect();
        let vectors: Vec<Vec<f32>> = (0..8_000)
            .map(|number| random.vector(dimension, Some(&groups[number % groups.len()])))
            .collect();
        let mut plane = Plane::new(dimension, 0);
        vectors.iter().zip(0..).for_each(|(vector, at)| plane.push(at, at * 10, vector));
        let (mut within_100, mut within_10) = (0, 0);
        for group in &groups {
            let question = random.vector(dimension, Some(group));
            let exact = exact(&vectors, &question);
            let near = plane.nearest(&question, 100, None);
            assert_eq!(near.len(), 100);
            within_100 += exact.iter().filter(|at| near.contains(at)).count();
            within_10 += exact.iter().filter(|at| near[..10].contains(at)).count();
        }
        // With the best hundred read in full, as a search does, this is the recall at ten.
        assert!(within_100 >= 396, "{dimension} numbers: {within_100} of 400");
        assert!(within_10 >= 300, "{dimension} numbers: {within_10} of 400");
    }
}

#[test]
fn only_what_is_allowed_is_near() {
    let mut plane = Plane::new(2, 0);
    for number in 0..10 {
        plane.push(number, number * 10, &unit(&[1.0, number as f32]).unwrap());
    }
    let question = unit(&[1.0, 0.0]).unwrap();
    assert_eq!(plane.nearest(&question, 3, None), [0, 1, 2]);
    let allowed: HashSet<i64> = [30, 70, 80, 1_000].into();
    assert_eq!(plane.nearest(&question, 2, Some(&allowed)), [3, 7]);
    assert_eq!(plane.nearest(&question, 100, Some(&HashSet::new())), [0_i64; 0]);
    assert_eq!(plane.nearest(&question, 0, None), [0_i64; 0]);
    assert_eq!(plane.last(), Some(9));
}

#[test]
fn of_equals_the_newest_is_first() {
    let mut plane = Plane::new(3, 0);
    (0..50).for_each(|number| plane.push(number, number, &[0.0, 1.0, 0.0]));
    assert_eq!(plane.nearest(&[0.0, 1.0, 0.0], 3, None), [49, 48, 47]);
}

#[test]
fn it_takes_about_a_quarter_of_what_is_stored_and_no_more_than_expected() {
    let mut plane = Plane::new(384, 0);
    for number in 0..3_000_i64 {
        plane.push(number, number, &[0.05; 384]);
        assert!(plane.bytes() <= Plane::expected_bytes(plane.len(), 384), "{number}");
    }
    let stored = 3_000 * 384 * 4;
    assert!((stored / 4..stored / 3).contains(&plane.bytes()), "{}", plane.bytes());
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    for dimension in [1, 384, crate::vector::LONGEST_VECTOR] {
        let mut plane = Plane::new(dimension, 0);
        let even = unit(&vec![1.0; dimension]).unwrap();
        let odd: Vec<f32> = even.iter().map(|number| -number).collect();
        plane.push(1, 1, &even);
        plane.push(2, 2, &odd);
        assert_eq!(plane.nearest(&even, 2, None), [1, 2]);
        assert_eq!(plane.nearest(&odd, 2, None), [2, 1]);
    }
}
