//! What providers say of their own count: asked directly, or in the headers that agents hand over.

#![cfg(test)]

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use common::{
    asking::{intent, is_approved, ms, now_ms, with},
    daemon::{Daemon, tollgate},
    receiver::Receiver,
};
use serde_json::{Value, json};

/// Pools as the example for GitHub has them.
fn pools(more: &str) -> String {
    format!(
        r#"
[[pools]]
id = "github:core"
limit = 5000
window = {{ kind = "provider", every = "1h", name = "core", stale_after = "15m" }}
per = "identity"
trust_usage = true

[[pools]]
id = "github:search"
limit = 30
window = {{ kind = "provider", every = "1m", name = "search", stale_after = "15m" }}
per = "identity"

[[routes]]
workload = "repo_*"
pools = [{{ id = "github:core" }}]

[[routes]]
workload = "search"
pools = [{{ id = "github:search" }}]
{more}"#
    )
}

fn in_seconds(seconds: i64) -> i64 {
    now_ms() / 1000 + seconds
}

/// An approval, and then a report with what the provider's answer said.
fn done(daemon: &Daemon, workload: &str, headers: &Value) {
    let decision = daemon.ask(&intent("a", workload));
    assert!(is_approved(&decision), "{decision}");
    let report = json!({"intent_id": decision["intent_id"], "response_headers": headers});
    let told = daemon.report(&report);
    assert_eq!(told.status, 200, "{told:?}");
}

#[test]
fn github_is_asked_for_its_own_count_and_believed() {
    let left = Arc::new(AtomicI64::new(4321));
    let (says, reset) = (Arc::clone(&left), in_seconds(1800));
    let github = Receiver::start(move |_| {
        let core = json!({"limit": 5000, "remaining": says.load(Ordering::SeqCst), "reset": reset, "used": 679});
        let search = json!({"limit": 30, "remaining": 30, "reset": reset, "used": 0});
        (200, json!({"resources": {"core": core, "search": search}, "rate": core}).to_string())
    });
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let poll = format!(
        "\n[[polls]]\npools = [\"github:core\", \"github:search\"]\nidentity = \"pat:one\"\nsource = {{ kind = \"github\", url = \"{}\", token_env = \"TEST_TOKEN\", every_seconds = 5 }}\n",
        github.url("/rate_limit")
    );
    std::fs::write(folder.path().join("tollgate.toml"), pools(&poll)).unwrap();
    let token = "gho_".to_owned() + &"k2J9".repeat(9);
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("TEST_TOKEN", &token);
    let daemon = Daemon::spawned(folder, command);
    daemon.until("GitHub's count is known", || {
        daemon.get("/v1/pools", Some(&daemon.admin())).body.contains("4321")
    });
    let core = daemon.pool("github:core", Some("pat:one"));
    assert_eq!((&core["limit"], &core["left"]), (&json!(5000), &json!(4321)));
    assert_eq!(ms(&core["reset_at"]), reset * 1000);
    assert!(core["reported_at"].is_string());
    let shown = daemon.cli(&["pools", "github:core"]);
    assert!(shown.out.contains("4,321") && shown.out.contains("pat:one"), "{}", shown.out);
    assert_eq!(daemon.pool("github:search", Some("pat:one"))["left"], 30);
    let (asked, _) = github.came().first().unwrap().clone();
    assert!(asked.head.starts_with("GET /rate_limit "), "{}", asked.head);
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {token}").as_str()));
    // Somebody uses the same credential and asks nobody: the next poll shows it, and the record tells.
    daemon.ask(&intent("a", "repo_scan"));
    left.store(1000, Ordering::SeqCst);
    daemon.until("the next poll is heard", || {
        daemon.pool("github:core", Some("pat:one"))["left"].as_u64().unwrap() <= 1000
    });
    daemon.until("the drift is stored", || !daemon.events_of("drift_detected").is_empty());
    let drift = daemon.events_of("drift_detected");
    assert_eq!(drift[0]["payload"]["pool"], "github:core", "{drift:?}");
    assert!(drift[0]["payload"]["ours"].as_i64() > drift[0]["payload"]["theirs"].as_i64());
    assert!(!daemon.events_of("provider_observed").is_empty());
    assert!(!daemon.events_of("reset_observed").is_empty());
    let export = daemon.cli(&["ledger", "export", "--data", ".tollgate"]).out;
    assert!(!export.contains(&token) && !daemon.logged().contains(&token));
}

#[test]
fn headers_that_agents_hand_over_are_learned_from() {
    let mut daemon = Daemon::configured(&pools(""));
    let reset = in_seconds(1200);
    let headers = |left: u64| {
        json!({"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": left.to_string(),
               "X-RateLimit-Reset": reset.to_string(), "X-RateLimit-Resource": "core", "Date": "ignored"})
    };
    done(&daemon, "repo_scan", &headers(4000));
    let core = daemon.pool("github:core", Some("pat:one"));
    assert_eq!((&core["left"], &core["used"]), (&json!(4000), &json!(1000)), "{core}");
    assert_eq!(ms(&core["reset_at"]), reset * 1000);
    // Asks count down from there, and a restart forgets nothing.
    daemon.ask(&intent("a", "repo_scan"));
    daemon.kill();
    let daemon = daemon.again();
    let core = daemon.pool("github:core", Some("pat:one"));
    assert_eq!((&core["left"], &core["held"]), (&json!(3999), &json!(1)));
    // A count that went up is not believed within the same window: requests overtake each other.
    done(&daemon, "repo_scan", &headers(4999));
    let left = daemon.pool("github:core", Some("pat:one"))["left"].as_u64().unwrap();
    assert!(left <= 3999, "{left}");
    // What is about another limit says nothing of this one.
    let search = json!({"x-ratelimit-limit": "30", "x-ratelimit-remaining": "0",
                        "x-ratelimit-reset": reset.to_string(), "x-ratelimit-resource": "search"});
    done(&daemon, "repo_scan", &search);
    assert!(daemon.pool("github:core", Some("pat:one"))["left"].as_u64().unwrap() > 3900);
}

#[test]
fn a_client_that_is_not_trusted_can_take_away_but_give_nothing() {
    let daemon = Daemon::configured(&pools(""));
    let reset = in_seconds(55);
    let headers = |limit: u64, left: u64| {
        json!({"x-ratelimit-limit": limit.to_string(), "x-ratelimit-remaining": left.to_string(),
               "x-ratelimit-reset": reset.to_string(), "x-ratelimit-resource": "search"})
    };
    done(&daemon, "search", &headers(1_000_000, 999_999));
    let pool = daemon.pool("github:search", Some("pat:one"));
    assert_eq!((&pool["limit"], &pool["left"]), (&json!(30), &json!(29)), "{pool}");
    done(&daemon, "search", &headers(30, 7));
    let pool = daemon.pool("github:search", Some("pat:one"));
    assert_eq!(pool["left"], 7, "{pool}");
}

#[test]
fn a_provider_that_says_come_back_later_is_left_alone_until_then() {
    let daemon = Daemon::configured(&pools(""));
    let before = now_ms();
    done(&daemon, "repo_scan", &json!({"Retry-After": "120"}));
    for urgency in ["high", "normal", "background"] {
        let denied = daemon.ask(&with(intent("b", "repo_scan"), &json!({"urgency": urgency})));
        assert_eq!(
            (&denied["status"], &denied["reason"]),
            (&json!("deny_with_reason"), &json!("defer_until_reset")),
            "{denied}"
        );
        let wait = ms(&denied["retry_at"]) - before;
        assert!((119_000..=180_000).contains(&wait), "{denied}");
    }
    // Only this credential, and only this pool.
    let other = with(intent("b", "repo_scan"), &json!({"identity_id": "pat:two"}));
    assert!(is_approved(&daemon.ask(&other)));
    assert!(is_approved(&daemon.ask(&intent("b", "search"))));
    let mut daemon = daemon;
    daemon.kill();
    let daemon = daemon.again();
    assert!(!is_approved(&daemon.ask(&intent("b", "repo_scan"))), "a restart opens nothing");
}

#[test]
fn a_client_that_is_not_trusted_closes_a_pool_for_no_longer_than_its_window() {
    let reset = in_seconds(30);
    let github = Receiver::start(move |_| {
        let search = json!({"limit": 30, "remaining": 30, "reset": reset, "used": 0});
        (200, json!({"resources": {"search": search}}).to_string())
    });
    let poll = format!(
        "\n[[polls]]\npools = [\"github:search\"]\nidentity = \"pat:one\"\nsource = {{ kind = \"github\", url = \"{}\", every_seconds = 600 }}\n",
        github.url("/rate_limit")
    );
    let daemon = Daemon::configured(&pools(&poll));
    daemon.until("GitHub's count is known", || {
        daemon.get("/v1/pools", Some(&daemon.admin())).body.contains("reported_at")
    });
    let far = in_seconds(40 * 365 * 86_400);
    let headers = json!({"Retry-After": "1000000000", "x-ratelimit-limit": "30", "x-ratelimit-remaining": "0",
                         "x-ratelimit-reset": far.to_string(), "x-ratelimit-resource": "search"});
    done(&daemon, "search", &headers);
    let denied = daemon.ask(&intent("b", "search"));
    assert!(!is_approved(&denied), "{denied}");
    assert!(ms(&denied["retry_at"]) <= now_ms() + 120_000, "{denied}");
    let pool = daemon.pool("github:search", Some("pat:one"));
    assert!(ms(&pool["reset_at"]) <= now_ms() + 60_000, "{pool}");
}

#[test]
fn a_provider_that_cannot_be_asked_is_no_trouble() {
    let broken = Receiver::start(|_| (500, "{}".to_owned()));
    let poll = format!(
        "\n[[polls]]\npools = [\"github:core\"]\nidentity = \"pat:one\"\nsource = {{ kind = \"github\", url = \"{}\", every_seconds = 5 }}\n",
        broken.url("/rate_limit")
    );
    let mut daemon = Daemon::configured(&pools(&poll));
    daemon.until("it was asked", || !broken.came().is_empty());
    // What is declared holds.
    let decision = daemon.ask(&intent("a", "repo_scan"));
    assert_eq!(decision["status"], "approve");
    assert_eq!(decision["pools"][0]["remaining"], 4999);
    assert_eq!(daemon.stop().code(), Some(0));
}
