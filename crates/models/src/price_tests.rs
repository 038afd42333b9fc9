use super::*;

fn price(input: f64, output: f64, cached_input: Option<f64>) -> Price {
    Price { input, output, cached_input }
}

fn usage(input_tokens: u64, output_tokens: u64, cached_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, cached_tokens }
}

#[test]
fn dollars_for_a_million_are_millionths_for_one() {
    assert_eq!(price(3.0, 15.0, None).cost(&usage(1_000, 100, 0)), 4_500);
    assert_eq!(price(3.0, 15.0, Some(0.3)).cost(&usage(1_000, 100, 400)), 1_800 + 120 + 1_500);
    assert_eq!(price(3.0, 15.0, None).cost(&usage(1_000, 0, 400)), 3_000);
}

#[test]
fn what_is_not_whole_is_rounded_up_and_decimals_are_what_they_say() {
    assert_eq!(price(0.15, 0.6, None).cost(&usage(1, 0, 0)), 1);
    // 0.1 and 0.2 together are 0.3 here.
    assert_eq!(price(0.1, 0.2, None).cost(&usage(10, 10, 0)), 3);
    assert_eq!(price(0.075, 0.0, None).cost(&usage(40, 0, 0)), 3);
    assert_eq!(price(0.0, 0.0, None).cost(&usage(1_000_000, 1_000_000, 0)), 0);
    assert_eq!(price(2.5, 10.0, None).cost(&usage(0, 0, 0)), 0);
}

#[test]
fn absurd_amounts_do_not_wrap() {
    let most = price(1_000_000.0, 1_000_000.0, None);
    assert_eq!(most.cost(&usage(u64::MAX, u64::MAX, 0)), u64::MAX);
    assert_eq!(price(1.0, 1.0, None).cost(&usage(5, 0, u64::MAX)), 5);
}

#[test]
fn the_most_holds_whatever_the_server_has_at_hand() {
    assert_eq!(price(1.0, 2.0, Some(0.1)).most(100, 10), 120);
    assert_eq!(price(1.0, 2.0, Some(5.0)).most(100, 10), 520);
}

#[test]
fn prices_are_checked() {
    assert_eq!(price(0.0, 1_000_000.0, None).check(), Ok(()));
    for (price, name) in [
        (price(-1.0, 0.0, None), "price.input"),
        (price(0.0, f64::NAN, None), "price.output"),
        (price(0.0, 0.0, Some(f64::INFINITY)), "price.cached_input"),
    ] {
        assert_eq!(price.check().unwrap_err().0, name);
    }
}
