use super::*;

fn learned(amounts: impl IntoIterator<Item = u64>) -> Costs {
    let mut costs = Costs::default();
    for amount in amounts {
        costs.note(&"chat".into(), &"llm:tokens".into(), amount);
    }
    costs
}

#[test]
fn a_cost_is_what_nearly_all_of_it_takes() {
    assert_eq!(learned(1..=19).of("chat", "llm:tokens"), None, "too few to say anything");
    let cost = learned((1..=1000).map(|n| n * 10)).of("chat", "llm:tokens").unwrap();
    assert!((9300..=9700).contains(&cost), "{cost}");
    assert_eq!(learned([5; 30]).of("other", "llm:tokens"), None);
}

#[test]
fn what_was_long_ago_is_forgotten() {
    let before = std::iter::repeat_n(100_000, 500);
    let since = |count: usize| std::iter::repeat_n(1000, count);
    let cost = |amounts: &Costs| amounts.of("chat", "llm:tokens").unwrap();
    assert!(cost(&learned(before.clone().chain(since(1000)))) > 90_000, "it still counts");
    assert!(cost(&learned(before.chain(since(2600)))) < 1100);
}

#[test]
fn it_is_written_down_and_read_again() {
    let costs = learned((0..1500).map(|n| n % 700));
    let text = serde_json::to_string(&costs).unwrap();
    let read: Costs = serde_json::from_str(&text).unwrap();
    assert_eq!(read, costs);
    assert_eq!(read.shown(), costs.shown());
    assert!(text.len() < 20_000, "{}", text.len());
    assert!(
        serde_json::from_str::<Costs>(&text.replace("\"later\":\"", "\"later\":\"zz")).is_err()
    );
}

#[test]
fn names_that_are_made_up_do_not_fill_the_memory() {
    let mut costs = Costs::default();
    for number in 0..5000 {
        costs.note(&format!("work-{number}").into(), &"llm:tokens".into(), 1);
    }
    assert_eq!(costs.shown().len(), MOST_PAIRS);
}
