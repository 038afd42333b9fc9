//! Events that are sent elsewhere: signed, in order, again after failures, and not to addresses inside.

#![cfg(test)]

mod common;

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use common::{
    asking::{Kept, intent},
    daemon::{Daemon, finish},
    receiver::{Came, Receiver},
};
use serde_json::{Value, json};

const ALLOWED: &str = "[webhooks]\nallow_private = true\n";

fn hook(daemon: &Daemon, body: &Value) -> (Value, String) {
    let made = daemon.post("/v1/webhooks", Some(&daemon.admin()), &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    (made["webhook"].clone(), made["secret"].as_str().unwrap().to_owned())
}

fn shown(daemon: &Daemon) -> Value {
    daemon.get("/v1/webhooks", Some(&daemon.admin())).json()["webhooks"][0].clone()
}

fn ask_times(daemon: &Daemon, count: usize) {
    let mut kept = Kept::to(daemon);
    (0..count).for_each(|_| drop(kept.ask(&intent("a", "w")).unwrap()));
}

fn seq(came: &Came) -> u64 {
    came.header("x-tollgate-delivery").unwrap().parse().unwrap()
}

/// Are these signed with this secret, as somebody who knows nothing of the gate would check it?
fn are_signed(came: &[Came], secret: &str) -> bool {
    let check = "import hashlib, hmac, json, sys
for line in sys.stdin:
    secret, signature, body = json.loads(line)
    parts = dict(part.split('=', 1) for part in signature.split(','))
    wanted = hmac.new(secret.encode(), (parts['t'] + '.' + body).encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted, parts['v1']):
        sys.exit(1)
print('signed')";
    let mut command = Command::new("python3");
    command.args(["-c", check]);
    let line = |came: &Came| {
        let signature = came.header("x-tollgate-signature").unwrap();
        format!("{}\n", json!([secret, signature, came.body]))
    };
    let lines: String = came.iter().map(line).collect();
    let ran = finish(command, lines.as_bytes());
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.err);
    ran.out.contains("signed")
}

#[test]
fn events_are_sent_signed_and_in_order_and_only_those_that_are_wanted() {
    let receiver = Receiver::start(|_| (200, "{}".to_owned()));
    let daemon = Daemon::configured(ALLOWED);
    ask_times(&daemon, 2);
    let wanted =
        json!({"url": receiver.url("/hooks?room=1"), "kinds": ["intent_decided", "halted"]});
    let (made, secret) = hook(&daemon, &wanted);
    assert!(made["status"] == "active" && !made.to_string().contains(&secret));
    ask_times(&daemon, 20);
    assert_eq!(daemon.cli(&["halt", "--agent", "x"]).code, 0);
    assert_eq!(daemon.cli(&["resume", "--agent", "x"]).code, 0);
    daemon.until("all are sent", || receiver.came().len() >= 21);
    let came = receiver.accepted();
    assert_eq!(came.len(), 21, "those from before are not sent, nor other kinds");
    assert!(are_signed(&came, &secret));
    assert!(!are_signed(&came, "whsec_another"), "the check can fail");
    let mut tampered = came[..1].to_vec();
    tampered[0].body.push(' ');
    assert!(!are_signed(&tampered, &secret));
    let seqs: Vec<u64> = came.iter().map(seq).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    let events = daemon.events();
    for one in &came {
        let body: Value = serde_json::from_str(&one.body).unwrap();
        let event = events.iter().find(|event| event["seq"] == seq(one)).unwrap();
        assert_eq!(body, *event);
        assert_eq!(one.header("x-tollgate-event"), event["kind"].as_str());
        assert!(one.head.starts_with("POST /hooks?room=1 "), "{}", one.head);
    }
    assert_eq!(came.last().unwrap().header("x-tollgate-event"), Some("halted"));
    // Its secret is shown once, and lies nowhere in the open.
    assert!(!daemon.get("/v1/webhooks", Some(&daemon.admin())).body.contains(&secret));
    for entry in std::fs::read_dir(daemon.data()).unwrap() {
        let content = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!content.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/webhooks/{id}");
    let bearer = format!("Bearer {}", daemon.admin());
    let delete = || daemon.request("DELETE", &path, &[("Authorization", &bearer)], "").status;
    assert_eq!((delete(), delete()), (204, 404));
    ask_times(&daemon, 3);
    let applied = daemon.events_of("config_applied");
    assert!(applied.iter().any(|event| event["payload"]["change"] == "created"));
    assert!(applied.iter().any(|event| event["payload"]["change"] == "deleted"));
    assert_eq!(receiver.came().len(), 21);
}

#[test]
fn a_delivery_that_fails_is_made_again_before_any_later_one() {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let receiver = Receiver::start(move |_| {
        let number = counting.fetch_add(1, Ordering::SeqCst);
        (if (1..=2).contains(&number) { 500 } else { 200 }, String::new())
    });
    let daemon = Daemon::configured(ALLOWED);
    hook(&daemon, &json!({"url": receiver.url("/"), "kinds": ["intent_decided"]}));
    ask_times(&daemon, 4);
    daemon.until("the problem is shown", || {
        shown(&daemon)["problem"].as_str().is_some_and(|problem| problem.contains("500"))
    });
    daemon.until("all are sent", || receiver.accepted().len() >= 4);
    let came: Vec<(u64, u16)> =
        receiver.came().iter().map(|(one, status)| (seq(one), *status)).collect();
    let accepted: Vec<u64> =
        came.iter().filter(|(_, status)| *status == 200).map(|(s, _)| *s).collect();
    assert!(accepted.is_sorted_by(|a, b| a < b), "{came:?}");
    assert_eq!(
        came.iter().map(|(s, _)| *s).collect::<Vec<_>>(),
        [accepted[0], accepted[1], accepted[1], accepted[1], accepted[2], accepted[3]]
    );
    daemon.until("the problem is over", || {
        let hook = shown(&daemon);
        hook.get("problem").is_none() && hook["sent_through"] == accepted[3]
    });
}

#[test]
fn what_was_not_delivered_is_delivered_after_a_restart() {
    let up = Arc::new(AtomicBool::new(true));
    let is_up = Arc::clone(&up);
    let receiver = Receiver::start(move |_| {
        (if is_up.load(Ordering::SeqCst) { 200 } else { 503 }, String::new())
    });
    let mut daemon = Daemon::configured(ALLOWED);
    let (_, secret) =
        hook(&daemon, &json!({"url": receiver.url("/"), "kinds": ["intent_decided"]}));
    ask_times(&daemon, 3);
    daemon.until("the first are sent", || receiver.accepted().len() == 3);
    daemon.until("that is kept", || {
        shown(&daemon)["sent_through"].as_u64() >= receiver.accepted().iter().map(seq).max()
    });
    up.store(false, Ordering::SeqCst);
    ask_times(&daemon, 3);
    daemon.until("it fails", || receiver.came().iter().any(|(_, status)| *status == 503));
    daemon.kill();
    up.store(true, Ordering::SeqCst);
    let daemon = daemon.again();
    ask_times(&daemon, 2);
    daemon.until("all are sent", || receiver.accepted().len() >= 8);
    let accepted = receiver.accepted();
    let seqs: Vec<u64> = accepted.iter().map(seq).collect();
    let recorded: Vec<u64> = daemon
        .events_of("intent_decided")
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, recorded, "each once, none left out");
    assert!(are_signed(&accepted, &secret), "with the same secret as before");
}

#[test]
fn a_receiver_that_says_that_it_is_gone_is_left_alone() {
    let receiver = Receiver::start(|_| (410, String::new()));
    let daemon = Daemon::configured(ALLOWED);
    hook(&daemon, &json!({"url": receiver.url("/"), "kinds": ["intent_decided"]}));
    ask_times(&daemon, 3);
    daemon.until("it is paused", || shown(&daemon)["status"] == "paused");
    ask_times(&daemon, 3);
    assert_eq!(receiver.came().len(), 1);
}

#[test]
fn addresses_inside_are_refused_unless_they_are_allowed() {
    let receiver = Receiver::start(|_| (200, String::new()));
    let daemon = Daemon::start();
    let port = receiver.address.port();
    let create = |url: &str| {
        daemon.post("/v1/webhooks", Some(&daemon.admin()), &json!({"url": url}).to_string())
    };
    for host in [
        "127.0.0.1",
        "0x7f000001",
        "127.1",
        "[::1]",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ] {
        let answer = create(&format!("http://{host}:{port}/"));
        assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_REQUEST"), "{host}");
    }
    for url in ["ftp://hooks.example/", "http://user:pass@hooks.example/", "nonsense", ""] {
        assert_eq!(create(url).status, 400, "{url}");
    }
    let typo = json!({"url": "https://hooks.example/", "kinds": ["intent_decide"]}).to_string();
    let typo = daemon.post("/v1/webhooks", Some(&daemon.admin()), &typo);
    assert!(typo.status == 400 && typo.message().contains("`intent_decided`"), "{typo:?}");
    // So is a name that leads inside.
    for name in ["localhost", "LOCALHOST", "localhost."] {
        assert_eq!(create(&format!("http://{name}:{port}/")).status, 400, "{name}");
    }
    ask_times(&daemon, 1);
    assert!(receiver.came().is_empty());
    // One host can be allowed without all of them.
    let text = "[webhooks]\nallowed_hosts = [\"127.0.0.1\"]\n";
    let daemon = Daemon::configured(text);
    hook(&daemon, &json!({"url": receiver.url("/"), "kinds": ["intent_decided"]}));
    let other = json!({"url": format!("http://127.0.0.2:{port}/")}).to_string();
    assert_eq!(daemon.post("/v1/webhooks", Some(&daemon.admin()), &other).status, 400);
    ask_times(&daemon, 1);
    daemon.until("it is sent", || !receiver.came().is_empty());
}
