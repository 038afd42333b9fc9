//! The agent contract, section by section: each obligation, through the binary or through a client that
//! follows the documented protocol and nothing else.

#![cfg(test)]

mod common;

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use common::{
    Ran,
    asking::{Kept, intent, is_approved, ms, now_ms, with},
    daemon::{Daemon, finish, tollgate},
};
use serde_json::{Value, json};

/// A client as the protocol's own SDKs are: all eight fields are sent, the answer is read as they read it,
/// a wait is slept, and anything but 200 is a no.
const CLIENT: &str = r#"
import json, sys, time, urllib.request, urllib.error

class Client:
    def __init__(self, base, timeout):
        self.base, self.timeout = base, timeout

    def ask(self, agent_id, identity_id, workload_id, scope_id, urgency="normal",
            expected_cost=1.0, duration_hint=None, client_context=None):
        payload = {"agent_id": agent_id, "identity_id": identity_id, "workload_id": workload_id,
                   "scope_id": scope_id, "urgency": urgency, "expected_cost": expected_cost,
                   "duration_hint": duration_hint, "client_context": client_context or {}}
        request = urllib.request.Request(self.base + "/v1/intent", json.dumps(payload).encode(),
                                         {"Content-Type": "application/json"}, method="POST")
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=self.timeout) as response:
                if response.status != 200:
                    return self.fail("upstream_error")
                data = json.loads(response.read())
        except (urllib.error.URLError, TimeoutError, OSError, ValueError) as error:
            print("client_error:", error, file=sys.stderr)
            return self.fail("daemon_unreachable")
        wait = data.get("modifications", {}).get("wait_seconds", 0.0)
        allowed = data["status"] in ("approve", "approve_with_modifications")
        if allowed and wait > 0:
            time.sleep(wait)
        return {"allowed": allowed, "intent_id": data["intent_id"], "status": data["status"],
                "reason": data.get("reason", ""), "waited": wait, "acted_at": time.time()}

    def fail(self, reason):
        return {"allowed": False, "intent_id": "", "status": "deny_with_reason",
                "reason": reason, "waited": 0.0, "acted_at": time.time()}

client = Client(sys.argv[1], float(sys.argv[2]))
for line in sys.stdin:
    print(json.dumps(client.ask(**json.loads(line))), flush=True)
"#;

/// Lets such a client ask for all of these, one after the other.
fn client(base: &str, timeout: &str, asks: &[Value]) -> (Vec<Value>, String) {
    let mut command = Command::new("python3");
    command.args(["-c", CLIENT, base, timeout]);
    let lines: String = asks.iter().map(|ask| format!("{ask}\n")).collect();
    let Ran { code, out, err } = finish(command, lines.as_bytes());
    assert_eq!(code, 0, "{err}");
    (out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), err)
}

/// One a second, three in all, and a hundred.
const POOLS: &str = r#"
[[pools]]
id = "api:calls"
limit = 1
window = { kind = "fixed", every = "1s" }
valid_for = "300ms"

[[pools]]
id = "api:yearly"
limit = 3
window = { kind = "fixed", every = "300d" }

[[pools]]
id = "api:core"
limit = 100
window = { kind = "fixed", every = "300d" }

[[routes]]
workload = "call"
pools = [{ id = "api:calls" }]

[[routes]]
workload = "search"
pools = [{ id = "api:yearly" }, { id = "api:core" }]

[[routes]]
workload = "core"
pools = [{ id = "api:core" }]
"#;

#[test]
fn s1_a_client_that_knows_only_the_protocol_asks_waits_and_acts() {
    let daemon = Daemon::configured(POOLS);
    let mut asks = vec![intent("py", "call"); 4];
    asks.push(intent("py", "unknown"));
    let (answers, _) = client(&daemon.url, "30", &asks);
    let words: Vec<&str> = answers.iter().map(|a| a["status"].as_str().unwrap()).collect();
    assert_eq!(words.first(), Some(&"approve"));
    assert!(words.contains(&"approve_with_modifications"), "{words:?}");
    assert_eq!(words.last(), Some(&"deny_with_reason"));
    assert_eq!(answers.last().unwrap()["reason"], "unmapped_workload");
    // Whatever it was told, when it acted it was within its hold.
    let decided = daemon.events_of("intent_decided");
    for answer in answers.iter().filter(|answer| answer["allowed"] == true) {
        let event = decided.iter().find(|e| e["intent_id"] == answer["intent_id"]);
        let event = event.unwrap_or_else(|| panic!("{answer} is not among {:?}", decided.first()));
        let acted = answer["acted_at"].as_f64().unwrap() * 1000.0;
        let (from, until) = (&event["payload"]["from"], &event["payload"]["until"]);
        assert!(acted >= from.as_f64().unwrap() - 1.0, "{answer} {event}");
        assert!(acted <= until.as_f64().unwrap() + 1.0, "{answer} {event}");
    }
}

#[test]
fn s1_no_act_without_an_intent_that_is_on_record() {
    let daemon = Daemon::configured(POOLS);
    let decision = daemon.ask(&with(intent("a", "core"), &json!({"urgency": "high"})));
    let events = daemon.events_of("intent_decided");
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event["intent_id"], decision["intent_id"]);
    assert_eq!(event["agent_id"], "a");
    assert_eq!(event["workload_id"], "core");
    assert_eq!(event["scope_id"], "repo:o/n");
    assert_eq!(event["payload"]["urgency"], "high");
    assert_eq!(event["payload"]["decision"], "approve");
    assert!(!event.to_string().contains("pat:one"), "events name credentials by pseudonym");
    let done = daemon.report(&json!({"intent_id": decision["intent_id"]}));
    assert_eq!(done.status, 200);
    assert_eq!(daemon.events_of("usage_observed")[0]["intent_id"], decision["intent_id"]);
}

#[test]
fn s2_1_the_required_fields_are_required_and_the_optional_ones_are_used() {
    let daemon = Daemon::configured(POOLS);
    for field in ["agent_id", "identity_id", "workload_id", "scope_id"] {
        let mut body = intent("a", "core");
        body.as_object_mut().unwrap().remove(field);
        let answer = daemon.post("/v1/intent", None, &body.to_string());
        assert_eq!(answer.status, 400);
        let missing = &answer.json()["error"]["details"]["missing_required_fields"];
        assert_eq!(*missing, json!([field]));
    }
    for urgency in ["high", "normal", "background"] {
        let asked = with(intent("a", "core"), &json!({"urgency": urgency}));
        assert_eq!(daemon.ask(&asked)["status"], "approve");
    }
    let costly = daemon.ask(&with(intent("a", "core"), &json!({"expected_cost": "20 calls"})));
    assert_eq!(costly["pools"][0]["amount"], 20);
    let short = daemon.ask(&intent("a", "core"));
    let long = daemon.ask(&with(intent("a", "core"), &json!({"duration_hint": "30m"})));
    let valid = |decision: &Value| ms(&decision["valid_until"]) - now_ms();
    assert!(valid(&short) <= 60_000 && valid(&long) > 29 * 60_000, "{short} {long}");
    assert!(valid(&long) <= 30 * 60_000);
}

#[test]
fn s2_2_the_three_verdicts_say_what_to_do() {
    let daemon = Daemon::configured(POOLS);
    let mut kept = Kept::to(&daemon);
    assert_eq!(daemon.ask(&intent("a", "core"))["status"], "approve");
    let mut wait = Value::Null;
    daemon.until("there is something to wait for", || {
        wait = kept.ask(&intent("a", "call")).unwrap();
        wait["status"] == "approve_with_modifications"
    });
    let seconds = wait["modifications"]["wait_seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && ms(&wait["valid_until"]) > now_ms(), "{wait}");
    let deny = daemon.ask(&with(intent("a", "call"), &json!({"expected_cost": 2})));
    assert_eq!(
        (&deny["status"], &deny["reason"]),
        (&json!("deny_with_reason"), &json!("hard_limit_reached"))
    );
    assert_eq!(deny["retryable"], false, "it never fits");
    // The command says the same, and scripts can tell by its exit code.
    let ask = |cost: &str| {
        let args = ["ask", "--agent", "b", "--identity", "pat:one", "--workload", "core"];
        daemon.cli(&[&args[..], &["--scope", "repo:o/n", "--cost", cost]].concat())
    };
    let ran = ask("1");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("approve: act now"), "{}", ran.out);
    let ran = ask("101");
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.out.contains("deny: hard_limit_reached"), "{}", ran.out);
}

#[test]
fn s2_2_a_denial_says_whether_and_when_to_ask_again() {
    let daemon = Daemon::configured(POOLS);
    daemon.ask(&with(intent("a", "search"), &json!({"expected_cost": 3})));
    let later = daemon.ask(&intent("a", "search"));
    assert_eq!((&later["status"], &later["retryable"]), (&json!("deny_with_reason"), &json!(true)));
    assert!(ms(&later["retry_at"]) > now_ms());
    let never = daemon.ask(&intent("a", "unknown"));
    assert_eq!(
        (&never["reason"], &never["retryable"]),
        (&json!("unmapped_workload"), &json!(false))
    );
    assert!(!never.as_object().unwrap().contains_key("retry_at"));
}

#[test]
fn s3_1_whoever_calls_everything_urgent_is_demoted_for_a_time() {
    let daemon = Daemon::start();
    let urgent = |agent: &str| with(intent(agent, "w"), &json!({"urgency": "high"}));
    let summary =
        |decision: &Value| decision["evaluation"]["risk_summary"].as_str().unwrap().to_owned();
    let mut kept = Kept::to(&daemon);
    let told: Vec<String> = (0..30).map(|_| summary(&kept.ask(&urgent("wolf")).unwrap())).collect();
    assert!(!told.first().unwrap().contains("demoted"), "{told:?}");
    assert!(told.last().unwrap().contains("demoted to background"), "{told:?}");
    // Others are not touched, nor is whoever is urgent now and then.
    let mixed = (0..60).map(|number| {
        let asked = if number % 5 == 0 { urgent("fair") } else { intent("fair", "w") };
        summary(&kept.ask(&asked).unwrap())
    });
    assert!(mixed.into_iter().all(|said| !said.contains("demoted")));
    let events = daemon.events_of("intent_decided");
    assert!(events.iter().any(|event| event["payload"]["demoted_until"].is_number()));
    // It stays so over a restart.
    let mut daemon = daemon;
    daemon.kill();
    let daemon = daemon.again();
    assert!(summary(&daemon.ask(&urgent("wolf"))).contains("demoted"));
}

#[test]
fn s3_2_a_wait_is_a_number_of_seconds_that_a_client_can_sleep() {
    let daemon = Daemon::configured(POOLS);
    let mut kept = Kept::to(&daemon);
    let mut waits = Vec::new();
    while waits.len() < 5 {
        let decision = kept.ask(&intent("a", "call")).unwrap();
        if let Some(modifications) = decision.get("modifications") {
            let wait = modifications["wait_seconds"].as_f64().unwrap();
            assert!(wait > 0.0 && wait <= 30.0, "no longer than normal urgency may book ahead");
            let valid = ms(&decision["valid_until"]) - ms(&decision["evaluation"]["as_of_ts"]);
            assert!(wait * 1000.0 < valid as f64, "{decision}");
            waits.push(wait);
        }
    }
}

#[test]
fn s3_3_health_says_when_to_hold_back() {
    let daemon = Daemon::start();
    let status = || daemon.get("/v1/health", None).json()["status"].clone();
    let health = daemon.get("/health", None).json();
    assert_eq!(health["status"], "ok");
    assert!(health["version"].is_string() && health["uptime_seconds"].is_u64());
    assert_eq!(daemon.cli(&["halt", "--reason", "stop all"]).code, 0);
    assert_eq!(status(), "halted");
    assert_eq!(daemon.ask(&intent("a", "w"))["reason"], "halted");
    assert_eq!(daemon.cli(&["resume"]).code, 0);
    assert_eq!(status(), "ok");
    assert_eq!(daemon.ask(&intent("a", "w"))["status"], "approve");
}

#[test]
fn s4_2_without_a_daemon_the_answer_is_no() {
    let mut daemon = Daemon::start();
    let url = daemon.url.clone();
    daemon.stop();
    let folder = tempfile::tempdir().unwrap();
    let mut command = tollgate(folder.path());
    command.args(["ask", "--agent", "a", "--identity", "i", "--workload", "w", "--scope", "s"]);
    command.args(["--url", &url]);
    let ran = finish(command, b"");
    assert_eq!(ran.code, 7, "{}", ran.err);
    let said = format!("{}{}", ran.out, ran.err).to_lowercase();
    assert!(said.contains("deny"), "it must say that this is a no: {said}");
    assert!(!said.contains("approve"), "{said}");
    let (answers, log) = client(&url, "5", &[intent("py", "w")]);
    assert_eq!(answers[0]["allowed"], false);
    assert!(log.contains("client_error"), "{log}");
}

#[test]
fn s4_3_a_daemon_that_does_not_answer_in_time_is_a_no() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let (answers, _) = client(&url, "0.3", &[intent("py", "w")]);
    assert_eq!(answers[0]["allowed"], false);
    assert_eq!(answers[0]["reason"], "daemon_unreachable");
    assert!(began.elapsed() >= Duration::from_millis(300));
    // The command gives up by itself, and says no.
    let folder = tempfile::tempdir().unwrap();
    let mut command = tollgate(folder.path());
    command.args(["ask", "--agent", "a", "--identity", "i", "--workload", "w", "--scope", "s"]);
    command.args(["--url", &url]);
    let ran = finish(command, b"");
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert!(ran.err.contains("deny"), "{}", ran.err);
}

#[test]
fn s5_1_others_are_served_between_the_items_of_a_batch() {
    let daemon = Daemon::configured(&POOLS.replace("limit = 100", "limit = 1000000"));
    let (done, batches) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut kept = Kept::to(&daemon);
            while !done.load(Ordering::SeqCst) {
                let batch = format!("batch-{}", batches.fetch_add(1, Ordering::SeqCst));
                let item = json!({"urgency": "background", "scope_id": batch});
                let intents = vec![with(intent("bulk", "core"), &item); 10];
                kept.post("/v1/intents/batch", &json!({"intents": intents})).unwrap();
            }
        });
        let mut kept = Kept::to(&daemon);
        let urgent = with(intent("urgent", "core"), &json!({"urgency": "high"}));
        let mut after = 0;
        daemon.until("an urgent ask is served between two items of a batch", || {
            (0..20).for_each(|_| drop(kept.ask(&urgent).unwrap()));
            let path = format!("/v1/events?kind=intent_decided&limit=1000&after={after}");
            let told = daemon.get(&path, Some(&daemon.admin())).json();
            after = told["next"].as_u64().unwrap_or(after);
            is_within_a_batch(told["events"].as_array().unwrap())
        });
        done.store(true, Ordering::SeqCst);
    });
}

/// Does an urgent ask stand between two items of the same batch?
fn is_within_a_batch(events: &[Value]) -> bool {
    let scopes: Vec<&Value> = events.iter().map(|event| &event["scope_id"]).collect();
    scopes.windows(3).any(|three| three[0] == three[2] && three[0] != three[1])
}

#[test]
fn s5_2_a_stream_whose_renewal_is_denied_must_stop() {
    let daemon = Daemon::configured(POOLS);
    let stream = daemon.ask(&with(intent("a", "search"), &json!({"expected_cost": 1})));
    let go_on =
        with(intent("a", "search"), &json!({"renew": stream["intent_id"], "expected_cost": 1}));
    assert_eq!(daemon.ask(&go_on)["status"], "approve");
    assert_eq!(daemon.ask(&go_on)["status"], "approve");
    let stop = daemon.ask(&go_on);
    assert_eq!(stop["status"], "deny_with_reason", "never a wait: a stream cannot pause");
    assert_eq!(daemon.pool("api:yearly", None)["held"], 3);
    // A halt ends it as well.
    let other = daemon.ask(&intent("b", "core"));
    daemon.cli(&["halt", "--agent", "b"]);
    let renewed = daemon.ask(&with(intent("b", "core"), &json!({"renew": other["intent_id"]})));
    assert_eq!(renewed["reason"], "halted");
}

#[test]
fn s5_3_work_that_draws_on_several_pools_gets_all_of_them_or_none() {
    let daemon = Daemon::configured(POOLS);
    for _ in 0..3 {
        let decision = daemon.ask(&intent("a", "search"));
        assert_eq!(decision["status"], "approve");
        assert_eq!(decision["pools"].as_array().unwrap().len(), 2);
    }
    let denied = daemon.ask(&intent("a", "search"));
    assert!(!is_approved(&denied), "{denied}");
    assert!(denied["evaluation"]["risk_summary"].as_str().unwrap().contains("api:yearly"));
    assert_eq!(daemon.pool("api:core", None)["held"], 3, "nothing is held for what was denied");
    assert_eq!(daemon.pool("api:yearly", None)["held"], 3);
}

#[test]
fn s6_3_a_soft_denial_says_when_to_come_back() {
    let daemon = Daemon::configured(POOLS);
    daemon.ask(&with(intent("a", "search"), &json!({"expected_cost": 3})));
    let denied = daemon.ask(&intent("a", "search"));
    assert_eq!(denied["reason"], "defer_until_reset");
    assert_eq!(denied["retryable"], true);
    let pool = daemon.pool("api:yearly", None);
    assert!(ms(&denied["retry_at"]) >= ms(&pool["reset_at"]), "{denied} {pool}");
}

#[test]
fn s7_usage_that_nobody_asked_for_is_charged_marked_and_counted_against_the_agent() {
    let daemon = Daemon::configured(POOLS);
    let (_, key) = daemon.new_key(&json!({"name": "agents", "maxUrgency": "high"}));
    let ghost = with(intent("ghost", "core"), &json!({"actual_cost": 2}));
    for number in 1..=5 {
        let told = daemon.post("/v1/usage", Some(&key), &ghost.to_string());
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(told.json()["ghost"], true);
        assert_eq!(daemon.pool("api:core", None)["used"], 2 * number);
    }
    let events = daemon.events_of("usage_observed");
    assert!(events.iter().all(|event| event["payload"]["ghost"] == true));
    assert_eq!(events[0]["agent_id"], "ghost");
    let urgent = |agent: &str| {
        let asked = with(intent(agent, "core"), &json!({"urgency": "high"}));
        daemon.ask_as(&key, &asked)["evaluation"]["risk_summary"].as_str().unwrap().to_owned()
    };
    assert!(urgent("ghost").contains("demoted"), "{}", urgent("ghost"));
    assert!(!urgent("honest").contains("demoted"));
}
