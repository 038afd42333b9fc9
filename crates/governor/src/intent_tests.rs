use proptest::prelude::*;

use super::*;

#[test]
fn an_expected_cost_is_a_number_or_amounts_with_units() {
    let said = Expected::parse("1 call, 5_000 tokens").unwrap();
    assert_eq!((said.of("calls", true), said.of("tokens", false)), (Some(1), Some(5000)));
    assert_eq!(said.of("points", true), None);
    assert_eq!(Expected::parse("100 points").unwrap().of("points", false), Some(100));
    // Without a unit it is meant for the first pool of a route.
    let plain = Expected::number(1.2).unwrap();
    assert_eq!((plain.of("tokens", true), plain.of("tokens", false)), (Some(2), None));
    for text in ["", "points", "1 2 3", "-1 call", "nan", "1e300 calls", "1 call,", "inf"] {
        assert_eq!(Expected::parse(text), None, "{text}");
    }
    for number in [-0.5, f64::NAN, f64::INFINITY, 1e16] {
        assert_eq!(Expected::number(number), None, "{number}");
    }
}

#[test]
fn a_claim_may_end_in_a_star() {
    let claims = ["crawler-*".to_owned(), "ci".to_owned()];
    assert!(covers(&claims, "crawler-01") && covers(&claims, "ci"));
    assert!(!covers(&claims, "ci-2") && !covers(&claims, "crawl"));
    assert!(!covers(&[], "anyone"));
}

proptest! {
    #[test]
    fn no_text_makes_an_amount_that_is_too_large(text in "[0-9a-z., _-]{0,40}") {
        if let Some(said) = Expected::parse(&text) {
            prop_assert!(said.0.iter().all(|(_, amount)| *amount <= LARGEST_AMOUNT));
        }
    }
}
