use super::*;

fn tokens(amount: u64) -> Vec<(String, u64)> {
    vec![("tokens".to_owned(), amount)]
}

fn of_tokens(most: u64) -> Arc<Allowance> {
    Allowance::new([("tokens".to_owned(), most, 0)])
}

#[test]
fn what_is_set_aside_is_not_there_for_others_and_what_was_used_counts() {
    let allowance = of_tokens(100);
    let first = Allowance::take(&allowance, &tokens(60), true).ok().unwrap();
    let no = Allowance::take(&allowance, &tokens(41), true).err().unwrap();
    assert_eq!(no.unit, "tokens");
    assert_eq!(no.why, "the run may use 100 tokens, has used 60, and this call could take 41");
    first.settle(&tokens(10));
    drop(first);
    assert_eq!(allowance.left("tokens"), Some(Left { most: 100, spent: 10 }));
    assert!(Allowance::take(&allowance, &tokens(90), true).is_ok());
}

#[test]
fn what_never_ran_costs_nothing_and_what_says_nothing_costs_what_was_held() {
    let allowance = of_tokens(100);
    drop(Allowance::take(&allowance, &tokens(100), true).ok().unwrap());
    assert_eq!(allowance.left("tokens").unwrap().left(), 100);
    Allowance::take(&allowance, &tokens(70), true).ok().unwrap().settle(&[]);
    assert_eq!(allowance.left("tokens").unwrap().left(), 30);
}

#[test]
fn a_cost_that_nobody_knows_has_no_room_in_a_limit() {
    let allowance = Allowance::new([("usd_micros".to_owned(), 5, 0)]);
    let no = Allowance::take(&allowance, &tokens(1), true).err().unwrap();
    assert!(no.why.contains("nobody knows what this call costs"), "{}", no.why);
    // What costs nothing of that kind needs no room.
    assert!(Allowance::take(&allowance, &[], false).is_ok());
}

#[test]
fn a_call_that_used_more_than_it_said_leaves_nothing() {
    let allowance = of_tokens(10);
    Allowance::take(&allowance, &tokens(5), true).ok().unwrap().settle(&tokens(50));
    assert_eq!(allowance.left("tokens").unwrap().left(), 0);
    assert!(Allowance::take(&allowance, &tokens(1), true).is_err());
}
