//! Vectors: what is accepted, what is found by them, and that both ways of finding are put together.

#![cfg(test)]

mod common;

use common::{Place, id, record, tagged};
use tollgate_memory::{By, LONGEST_VECTOR, Limits, Memory, MemoryError, Query};

const MODEL: &str = "embedder-1";

fn near<'a>(vector: &'a [f32], text: &'a str) -> Query<'a> {
    Query { session: Some("s"), text, vector: Some((MODEL, vector)), limit: 10, ..Query::default() }
}

fn shown(memory: &Memory, query: &Query<'_>) -> Vec<(u64, f64, By)> {
    let found = memory.search(query).unwrap();
    found.iter().map(|found| (found.turn, found.score, found.by)).collect()
}

/// Records with these texts and vectors, numbered from one.
fn filled(records: &[(&str, [f32; 2])]) -> Place {
    let place = Place::new();
    for (number, (text, vector)) in (1..).zip(records) {
        place.add("s", number, &[text]);
        assert_eq!(place.memory.set_vectors(MODEL, &[(id(number), vector.to_vec())]), Ok(1));
    }
    place
}

#[test]
fn records_are_found_by_the_nearness_of_their_vectors() {
    let place = filled(&[("up", [0.0, 2.0]), ("right", [9.0, 0.0]), ("left", [-1.0, 0.0])]);
    let expected = [(1, 0.8, By::Meaning), (2, 0.6, By::Meaning)];
    assert_eq!(shown(&place.memory, &near(&[0.6, 0.8], "")), expected);
    // Neither the opposite nor what stands upright on it is near.
    assert_eq!(shown(&place.memory, &near(&[0.0, -1.0], "")), []);
    let excerpt = &place.memory.search(&near(&[1.0, 0.0], "")).unwrap()[0].excerpt;
    assert_eq!(excerpt, "right");
}

#[test]
fn words_and_meaning_are_fused_by_rank() {
    let place = filled(&[
        ("the zebra crosses", [1.0, 0.0]),
        ("a zebra zebra zebra zebra", [0.0, 1.0]),
        ("a horse", [0.9, 0.4]),
    ]);
    // By words 2 is first and 1 second; by meaning 1, 3. Of equals the newest is first.
    let expected = [(1, 0.992, By::Both), (2, 0.5, By::Words), (3, 0.492, By::Meaning)];
    assert_eq!(shown(&place.memory, &near(&[1.0, 0.0], "zebra")), expected);
    // Where only one of them finds something, its own scores stand.
    let expected = [(1, 1.0, By::Meaning), (3, 0.914, By::Meaning)];
    assert_eq!(shown(&place.memory, &near(&[1.0, 0.0], "unheard")), expected);
    let by_words = shown(&place.memory, &near(&[-1.0, -1.0], "zebra"));
    assert_eq!(
        by_words.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>(),
        [(2, By::Words), (1, By::Words)]
    );
}

#[test]
fn a_vector_of_a_model_that_is_not_known_finds_by_words_alone() {
    let place = filled(&[("zebra", [1.0, 0.0])]);
    let query = Query { vector: Some(("another", &[1.0, 2.0, 3.0])), ..near(&[], "zebra") };
    assert_eq!(shown(&place.memory, &query)[0].2, By::Words);
}

#[test]
fn what_is_no_vector_is_refused_and_nothing_is_stored() {
    let place = filled(&[("one", [1.0, 0.0])]);
    place.add("s", 2, &["two"]);
    let set = |vector: &[f32]| {
        place.memory.set_vectors(MODEL, &[(id(2), vec![1.0, 1.0]), (id(1), vector.to_vec())])
    };
    let dimension = MemoryError::Dimension { model: MODEL.into(), given: 3, known: 2 };
    assert_eq!(set(&[1.0, 2.0, 3.0]), Err(dimension.clone()));
    assert_eq!(set(&[]), Err(MemoryError::Length { given: 0, most: LONGEST_VECTOR }));
    assert_eq!(set(&[0.0, 0.0]), Err(MemoryError::Zero));
    assert_eq!(set(&[0.0, f32::NAN]), Err(MemoryError::NotFinite { at: 1 }));
    assert_eq!(set(&[f32::INFINITY, 0.0]), Err(MemoryError::NotFinite { at: 0 }));
    let first = place.memory.set_vectors(MODEL, &[(id(2), vec![1.0; 3])]);
    assert_eq!(first, Err(dimension.clone()));
    assert_eq!(place.memory.without_vector(None, MODEL, 10).unwrap(), [(id(2), "two".to_owned())]);
    // The same of a question.
    let ask = |vector: &[f32]| place.memory.search(&near(vector, "one")).err();
    assert_eq!(ask(&[1.0, 2.0, 3.0]), Some(dimension));
    assert_eq!(ask(&[0.0, 0.0]), Some(MemoryError::Zero));
    assert_eq!(ask(&[f32::NAN, 0.0]), Some(MemoryError::NotFinite { at: 0 }));
    // A model that is refused with its first vector is not known afterwards.
    let long = vec![1.0; LONGEST_VECTOR + 1];
    assert!(place.memory.set_vectors("new", &[(id(1), long)]).is_err());
    assert_eq!(place.memory.set_vectors("new", &[(id(1), vec![1.0; 5])]), Ok(1));
    assert!(matches!(place.memory.set_vectors("", &[]), Err(MemoryError::Model(_))));
}

#[test]
fn records_wait_for_their_vector_until_they_have_one() {
    let place = Place::new();
    place.add("s", 1, &["one", "two", "three"]);
    place.add("t", 4, &["four"]);
    let waiting = |model, limit| -> Vec<String> {
        let waiting = place.memory.without_vector(None, model, limit).unwrap();
        waiting.into_iter().map(|(_, text)| text).collect()
    };
    assert_eq!(waiting(MODEL, 10), ["four", "three", "two", "one"]);
    assert_eq!(waiting(MODEL, 1), ["four"]);
    let vectors = [(id(3), vec![1.0]), (id(99), vec![1.0]), (id(1), vec![2.0])];
    assert_eq!(place.memory.set_vectors(MODEL, &vectors), Ok(2), "99 is not there");
    assert_eq!(waiting(MODEL, 10), ["four", "two"]);
    assert_eq!(place.memory.set_vectors(MODEL, &vectors), Ok(2), "the same again");
    assert_eq!(waiting(MODEL, 10), ["four", "two"]);
    assert!(place.memory.forget_one(id(3)).unwrap());
    assert_eq!(waiting(MODEL, 10), ["four", "two"]);
    assert_eq!(waiting("another", 10), ["four", "two", "one"]);
    place.memory.set_vectors(MODEL, &[(id(2), vec![1.0]), (id(4), vec![1.0])]).unwrap();
    assert_eq!(waiting(MODEL, 10), [""; 0]);
}

#[test]
fn sessions_tags_and_models_are_walls_for_vectors_too() {
    let place = Place::new();
    place.memory.add("s", &[tagged(1, "one", &["x"]), record(2, "two")]).unwrap();
    place.memory.add("t", &[tagged(3, "three", &["x"])]).unwrap();
    for number in 1..=3 {
        place.memory.set_vectors(MODEL, &[(id(number), vec![1.0, number as f32])]).unwrap();
    }
    place.memory.set_vectors("other", &[(id(2), vec![1.0])]).unwrap();
    let turns = |query: &Query<'_>| -> Vec<u64> {
        place.memory.search(query).unwrap().iter().map(|found| found.turn).collect()
    };
    let vector = [1.0, 0.0];
    assert_eq!(turns(&near(&vector, "")), [1, 2]);
    assert_eq!(turns(&Query { session: Some("t"), ..near(&vector, "") }), [3]);
    assert_eq!(turns(&Query { session: None, ..near(&vector, "") }), [1, 2, 3]);
    assert_eq!(turns(&Query { tags: &["x"], ..near(&vector, "") }), [1]);
    assert_eq!(turns(&Query { tags: &["x"], session: None, ..near(&vector, "") }), [1, 3]);
    let other = [1.0];
    assert_eq!(turns(&Query { vector: Some(("other", &other)), ..near(&vector, "") }), [2]);
}

#[test]
fn vectors_survive_a_restart_and_are_seen_by_other_handles() {
    let place = filled(&[("one", [1.0, 0.0]), ("two", [0.0, 1.0])]);
    let reader = Memory::open_to_read(&place.file()).unwrap();
    let before = shown(&place.memory, &near(&[0.8, 0.6], ""));
    assert_eq!(shown(&reader, &near(&[0.8, 0.6], "")), before);
    place.add("s", 3, &["three"]);
    place.memory.set_vectors(MODEL, &[(id(3), vec![0.8, 0.6])]).unwrap();
    assert!(place.memory.forget_one(id(1)).unwrap());
    for memory in [&place.memory, &reader, &Memory::open(&place.file()).unwrap()] {
        let turns: Vec<u64> =
            shown(memory, &near(&[0.8, 0.6], "")).iter().map(|one| one.0).collect();
        assert_eq!(turns, [3, 2]);
    }
}

#[test]
fn dropped_records_take_their_vectors_with_them() {
    let place = Place::with(Limits { records_per_session: 50, ..Limits::default() });
    for number in 0..200_u64 {
        place.add("s", number, &[&format!("text {number}")]);
        let (up, right) = (0.3 + number as f32 * 0.005).sin_cos();
        place.memory.set_vectors(MODEL, &[(id(number), vec![right, up])]).unwrap();
        // The plane is kept up to date in every one of these searches.
        let found = shown(&place.memory, &near(&[1.0, 0.0], ""));
        assert_eq!(found[0].0, (number + 1).saturating_sub(50));
        assert_eq!(found.len(), usize::try_from(number + 1).unwrap().min(10));
    }
}

#[test]
fn the_search_finds_what_a_full_scan_finds() {
    // Numbers that are the same every time.
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    let groups: Vec<Vec<f32>> = (0..30).map(|_| (0..48).map(|_| random()).collect()).collect();
    let mut member =
        |group: usize| groups[group % 30].iter().map(|number| number + random()).collect();
    let place = Place::new();
    let vectors: Vec<Vec<f32>> = (0..6_000).map(&mut member).collect();
    for (first, part) in (0..).step_by(1_000).zip(vectors.chunks(1_000)) {
        let records: Vec<_> =
            (first..first + 1_000).map(|number| record(number, &format!("r {number}"))).collect();
        place.memory.add("s", &records).unwrap();
        let part: Vec<_> = (first..).map(id).zip(part.iter().cloned()).collect();
        place.memory.set_vectors(MODEL, &part).unwrap();
    }
    let length = |v: &[f32]| v.iter().map(|n| f64::from(*n).powi(2)).sum::<f64>().sqrt();
    let mut right = 0;
    for group in 0..30 {
        let question: Vec<f32> = member(group);
        let mut exact: Vec<(f64, u64)> = vectors
            .iter()
            .zip(0..)
            .map(|(vector, number)| {
                let product = vector.iter().zip(&question);
                let product: f64 = product.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                (product / length(vector) / length(&question), number)
            })
            .collect();
        exact.sort_by(|one, other| other.0.total_cmp(&one.0));
        let found = shown(&place.memory, &near(&question, ""));
        assert!((found[0].1 - exact[0].0).abs() < 0.001);
        right += exact[..10].iter().filter(|one| found.iter().any(|it| it.0 == one.1)).count();
    }
    assert!(right >= 290, "{right} of 300");
}
