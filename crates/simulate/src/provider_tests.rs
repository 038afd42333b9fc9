use super::*;

fn provider(hidden_per_second: f64) -> Provider {
    let plan = ProviderPlan {
        pool: 0,
        limit: 10,
        every: 1000,
        begins: 500,
        hidden_per_second,
        answers: true,
        polled: None,
        latency: 0,
    };
    Provider::new(&plan, Random::of(1, "p", 0))
}

#[test]
fn it_refuses_what_is_too_much_and_begins_anew_with_its_window() {
    let mut provider = provider(0.0);
    assert!(provider.serve(0, 7, 600));
    assert!(!provider.serve(0, 4, 700), "three are left");
    assert!(provider.serve(1, 10, 700), "another key is counted by itself");
    assert_eq!(provider.left(0, 700), 3);
    assert_eq!(provider.resets_at(700), 1500);
    assert!(provider.serve(0, 10, 1500), "the window is over");
    provider.limit = 4;
    assert_eq!(provider.left(0, 1600), 0, "a limit that falls leaves nothing");
    let said = provider.answers(0, true, 1600).unwrap();
    assert_eq!(
        (said.remaining, said.reset_at, said.closed_until),
        (Some(0), Some(2500), Some(2500))
    );
    assert_eq!(provider.answers(0, false, 1600).unwrap().closed_until, None);
}

#[test]
fn others_take_what_they_should_on_average_and_never_more_than_there_is() {
    let mut provider = provider(2.5);
    let taken: u64 = (0..4000).map(|second| provider.others(0, 500 + second * 1000)).sum();
    assert!((9_600..10_400).contains(&taken), "{taken}");
    provider.limit = 1;
    assert!((0..50).all(|_| provider.others(0, 100) <= 1));
}

#[test]
fn one_that_tells_little_still_says_when_to_come_back() {
    let mut provider = provider(0.0);
    provider.plan.answers = false;
    assert_eq!(provider.answers(0, false, 600), None);
    let said = provider.answers(0, true, 600).unwrap();
    assert_eq!((said.remaining, said.closed_until), (None, Some(1500)));
    provider.is_silent = true;
    assert_eq!(provider.answers(0, true, 600), None);
}
