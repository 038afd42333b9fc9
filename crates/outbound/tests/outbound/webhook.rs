//! Deliveries against receivers that work, fail, hang, move away and are gone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tollgate_contract::Secret;
use tollgate_outbound::{
    AddressGuard, Backoff, Deliveries, DeliveryPace, EventSource, Hook, Progress, SourceEvent,
};

use crate::support::{Answer, Seen, Server, reply, soon};

const NOW: i64 = 1_767_323_045_678;
const SECRET: &str = "a secret of the hook";

/// Events in memory. One without JSON makes reading fail, once.
#[derive(Clone, Default)]
struct Events(Arc<(Mutex<Vec<SourceEvent>>, Notify)>);

impl Events {
    fn add(&self, kind: &str, count: usize) {
        let mut all = self.0.0.lock().unwrap();
        for _ in 0..count {
            let seq = u64::try_from(all.len()).unwrap() + 1;
            let json = format!(r#"{{"seq":{seq}, "kind": "{kind}", "text": "ä"}}"#);
            all.push(SourceEvent { seq, kind: kind.to_owned(), json });
        }
        drop(all);
        self.0.1.notify_waiters();
    }
}

impl EventSource for Events {
    fn after(&self, seq: u64, limit: usize) -> Result<Vec<SourceEvent>, String> {
        let mut all = self.0.0.lock().unwrap();
        if let Some(broken) = all.iter_mut().find(|event| event.json.is_empty()) {
            broken.json.push_str("{}");
            return Err("the disk is gone".to_owned());
        }
        Ok(all.iter().filter(|event| event.seq > seq).take(limit).cloned().collect())
    }

    async fn changed(&self) {
        self.0.1.notified().await;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Sent(u64),
    Failed(u64, String),
    Skipped(u64, String),
    Gone,
}

/// What was told of each hook.
#[derive(Clone)]
struct Record(watch::Sender<HashMap<String, Vec<Told>>>);

impl Record {
    fn tell(&self, hook: &str, told: Told) {
        self.0.send_modify(|all| all.entry(hook.to_owned()).or_default().push(told));
    }

    fn of(&self, hook: &str) -> Vec<Told> {
        self.0.borrow().get(hook).cloned().unwrap_or_default()
    }

    /// Waits until what was told of a hook is as it should be.
    async fn told(&self, hook: &str, enough: impl Fn(&[Told]) -> bool) -> Vec<Told> {
        let mut all = self.0.subscribe();
        let of = |all: &HashMap<String, Vec<Told>>| all.get(hook).is_some_and(|told| enough(told));
        soon(all.wait_for(of)).await.unwrap();
        self.of(hook)
    }

    async fn sent_through(&self, hook: &str, seq: u64) -> Vec<Told> {
        self.told(hook, |told| told.contains(&Told::Sent(seq))).await
    }
}

impl Progress for Record {
    fn sent_through(&self, hook_id: &str, seq: u64) {
        self.tell(hook_id, Told::Sent(seq));
    }

    fn failed(&self, hook_id: &str, seq: u64, problem: &str) {
        self.tell(hook_id, Told::Failed(seq, problem.to_owned()));
    }

    fn skipped(&self, hook_id: &str, seq: u64, problem: &str) {
        self.tell(hook_id, Told::Skipped(seq, problem.to_owned()));
    }

    fn gone(&self, hook_id: &str) {
        self.tell(hook_id, Told::Gone);
    }
}

fn hook(id: &str, url: String) -> Hook {
    let secret = Secret::new(SECRET.to_owned());
    Hook { id: id.to_owned(), url, kinds: vec![], secret, paused: false, after: 0 }
}

fn fast() -> DeliveryPace {
    DeliveryPace {
        retry: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(5) },
        timeout: Duration::from_secs(20),
        ..DeliveryPace::default()
    }
}

/// Deliveries that run, and what is needed to look on.
struct Run {
    hooks: watch::Sender<Arc<Vec<Hook>>>,
    events: Events,
    record: Record,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Run {
    fn start(hooks: Vec<Hook>) -> Self {
        let guard = AddressGuard { allow_private: true, ..AddressGuard::default() };
        Self::with(hooks, fast(), guard)
    }

    fn with(hooks: Vec<Hook>, pace: DeliveryPace, guard: AddressGuard) -> Self {
        let (hooks, receiver) = watch::channel(Arc::new(hooks));
        let (events, record) = (Events::default(), Record(watch::Sender::default()));
        let stop = CancellationToken::new();
        let deliveries = Deliveries { pace, clock: Arc::new(|| NOW) };
        let run = deliveries.run(receiver, events.clone(), record.clone(), guard, stop.clone());
        Self { hooks, events, record, stop, running: tokio::spawn(run) }
    }

    fn set(&self, hooks: Vec<Hook>) {
        self.hooks.send(Arc::new(hooks)).unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        soon(self.running).await.unwrap();
    }
}

fn ok(_: usize, _: &Seen) -> Answer {
    reply(200, &[], "")
}

/// The events that were delivered, in the order in which they came.
fn delivered(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|seen| seen.header("x-tollgate-delivery").parse().unwrap()).collect()
}

/// HMAC-SHA256 from its definition.
fn hmac(key: &[u8], text: &[u8]) -> String {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    let mac = outer.chain_update(inner.finalize()).finalize();
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_delivery_is_the_event_itself_signed() {
    let server = Server::start(ok).await;
    let run = Run::start(vec![hook("a", server.url("/hook?x=1"))]);
    run.events.add("call_completed", 1);
    run.record.sent_through("a", 1).await;
    let seen = server.seen().remove(0);
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/hook?x=1"));
    assert_eq!(seen.body, r#"{"seq":1, "kind": "call_completed", "text": "ä"}"#);
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("user-agent"), concat!("tollgate/", env!("CARGO_PKG_VERSION")));
    assert_eq!(seen.header("x-tollgate-event"), "call_completed");
    assert_eq!(seen.header("x-tollgate-delivery"), "1");
    let signed = hmac(SECRET.as_bytes(), format!("1767323045.{}", seen.body).as_bytes());
    assert_eq!(seen.header("x-tollgate-signature"), format!("t=1767323045,v1={signed}"));
    run.stop().await;
}

#[tokio::test]
async fn every_event_arrives_in_order_however_often_the_receiver_fails() {
    let failed: Mutex<HashMap<String, u64>> = Mutex::default();
    let server = Server::start(move |_, seen| {
        let seq = seen.header("x-tollgate-delivery").to_owned();
        let mut failed = failed.lock().unwrap();
        let times = failed.entry(seq.clone()).or_default();
        if *times < seq.parse::<u64>().unwrap() % 4 {
            *times += 1;
            return reply(503, &[], "");
        }
        reply(204, &[], "")
    })
    .await;
    let run = Run::start(vec![hook("a", server.url("/"))]);
    run.events.add("a", 10);
    run.record.sent_through("a", 3).await;
    // More than one batch.
    run.events.add("a", 110);
    let told = run.record.sent_through("a", 120).await;
    let expected: Vec<u64> = (1..=120)
        .flat_map(|seq| std::iter::repeat_n(seq, 1 + usize::try_from(seq % 4).unwrap()))
        .collect();
    assert_eq!(delivered(&server.seen()), expected);
    let problem = "the receiver answered 503".to_owned();
    assert_eq!(
        told[..3],
        [Told::Failed(1, problem.clone()), Told::Sent(1), Told::Failed(2, problem)]
    );
    let sent = told.iter().filter_map(|told| match told {
        Told::Sent(seq) => Some(*seq),
        _ => None,
    });
    assert!(sent.eq(1..=120));
    run.stop().await;
}

#[tokio::test]
async fn a_hook_that_hangs_and_one_that_is_dead_delay_nobody() {
    let (hanging, good) = (Server::start(|_, _| None).await, Server::start(ok).await);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let run = Run::start(vec![
        hook("hanging", hanging.url("/")),
        hook("dead", format!("http://{closed}/")),
        hook("good", good.url("/")),
    ]);
    run.events.add("a", 1);
    hanging.asked(1).await;
    run.record.told("dead", |told| told.len() > 3).await;
    run.events.add("a", 50);
    run.record.sent_through("good", 51).await;
    assert_eq!(hanging.seen().len(), 1);
    assert_eq!(run.record.of("hanging"), []);
    let dead = run.record.of("dead");
    assert!(
        dead.iter()
            .all(|told| matches!(told, Told::Failed(1, problem) if problem.contains("refused"))),
        "{dead:?}"
    );
    run.stop().await;
    hanging.left(1).await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_hears_no_more_until_its_address_changes_or_it_was_paused() {
    let server = Server::start(|_, seen| {
        let gone = seen.path == "/old" && seen.header("x-tollgate-delivery") == "2";
        reply(if gone { 410 } else { 200 }, &[], "")
    })
    .await;
    let other = Server::start(ok).await;
    let hooks = |path: &str, paused| {
        vec![Hook { paused, ..hook("a", server.url(path)) }, hook("other", other.url("/"))]
    };
    let run = Run::start(hooks("/old", false));
    run.events.add("a", 3);
    let told = run.record.told("a", |told| told.contains(&Told::Gone)).await;
    assert_eq!(told, [Told::Sent(1), Told::Gone]);
    // Neither new events nor a list with the same hook wake it.
    run.set(hooks("/old", false));
    run.events.add("a", 1);
    run.record.sent_through("other", 4).await;
    assert_eq!(server.seen().len(), 2);
    // Having been paused, it is tried again, from the event that it did not take.
    run.set(hooks("/old", true));
    run.events.add("a", 1);
    run.record.sent_through("other", 5).await;
    // The list is looked at in order, so an unknown hook shows that the pause was seen.
    let mut with_third = hooks("/old", true);
    with_third.push(hook("third", other.url("/")));
    run.set(with_third);
    run.record.sent_through("third", 5).await;
    run.set(hooks("/old", false));
    let told = run.record.told("a", |told| told.len() >= 3).await;
    assert_eq!(told, [Told::Sent(1), Told::Gone, Told::Gone]);
    // With another address, too.
    run.set(hooks("/new", false));
    let told = run.record.sent_through("a", 5).await;
    assert_eq!(told[3..], [2, 3, 4, 5].map(Told::Sent));
    assert_eq!(delivered(&server.seen()), [1, 2, 2, 2, 3, 4, 5]);
    run.stop().await;
}

#[tokio::test]
async fn what_leads_inside_is_refused_each_time_and_never_reached() {
    let server = Server::start(ok).await;
    let by_name = format!("http://localhost:{}/", server.address.port());
    let run = Run::with(
        vec![hook("ip", server.url("/")), hook("name", by_name.clone())],
        fast(),
        AddressGuard::default(),
    );
    run.events.add("a", 1);
    for id in ["ip", "name"] {
        let told = run.record.told(id, |told| told.len() > 2).await;
        let refused = |told: &Told| matches!(told, Told::Failed(1, problem) if problem.contains("which is this machine itself"));
        assert!(told.iter().all(refused), "{told:?}");
    }
    assert!(server.seen().is_empty());
    run.stop().await;
    // The same name, once the operator allows it, is reached.
    let guard = AddressGuard { allow_private: false, allowed_hosts: vec!["localhost".to_owned()] };
    let run = Run::with(vec![hook("name", by_name)], fast(), guard);
    run.events.add("a", 1);
    run.record.sent_through("name", 1).await;
    assert_eq!(delivered(&server.seen()), [1]);
    run.stop().await;
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_not_followed() {
    let elsewhere = Server::start(ok).await;
    for status in [301, 302, 303, 307, 308] {
        let to = elsewhere.url("/");
        let server = Server::start(move |_, _| reply(status, &[("location", &to)], "")).await;
        let run = Run::start(vec![hook("a", server.url("/"))]);
        run.events.add("a", 1);
        let told = run.record.told("a", |told| told.len() > 1).await;
        let Told::Failed(1, problem) = &told[0] else { panic!("{told:?}") };
        assert!(problem.contains("redirects are not followed"), "{problem}");
        run.stop().await;
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn an_event_that_cannot_be_delivered_is_skipped_in_the_end_and_that_is_told() {
    let server = Server::start(|_, seen| {
        let bad = seen.header("x-tollgate-delivery") == "1";
        reply(if bad { 400 } else { 200 }, &[], "")
    })
    .await;
    let pace = DeliveryPace { give_up_after: Duration::from_millis(30), ..fast() };
    let guard = AddressGuard { allow_private: true, ..AddressGuard::default() };
    let run = Run::with(vec![hook("a", server.url("/"))], pace, guard);
    run.events.add("a", 2);
    let told = run.record.sent_through("a", 2).await;
    let problem = "the receiver answered 400".to_owned();
    let from_skip: Vec<_> =
        told.iter().skip_while(|told| matches!(told, Told::Failed(1, _))).collect();
    assert_eq!(from_skip, [&Told::Skipped(1, problem), &Told::Sent(1), &Told::Sent(2)]);
    assert!(told.len() > 3, "it was tried more than once: {told:?}");
    run.stop().await;
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_is_tried_again() {
    let server = Server::start(|nth, _| if nth == 0 { None } else { reply(200, &[], "") }).await;
    let pace = DeliveryPace { timeout: Duration::from_millis(200), ..fast() };
    let guard = AddressGuard { allow_private: true, ..AddressGuard::default() };
    let run = Run::with(vec![hook("a", server.url("/"))], pace, guard);
    run.events.add("a", 1);
    let told = run.record.sent_through("a", 1).await;
    assert_eq!(told[0], Told::Failed(1, "no answer came in time".to_owned()));
    run.stop().await;
}

#[tokio::test]
async fn only_wanted_kinds_are_sent_and_the_others_are_told_of_together() {
    let server = Server::start(ok).await;
    let wanted = Hook {
        kinds: vec!["b".to_owned(), "c".to_owned()],
        after: 5,
        ..hook("a", server.url("/"))
    };
    let run = Run::start(vec![]);
    run.events.add("b", 5);
    run.events.add("a", 250);
    run.events.add("b", 1);
    run.events.add("a", 20);
    run.set(vec![wanted]);
    let told = run.record.sent_through("a", 276).await;
    assert_eq!(delivered(&server.seen()), [256]);
    assert_eq!(told, [105, 205, 255, 256, 276].map(Told::Sent));
    run.events.add("c", 1);
    run.record.sent_through("a", 277).await;
    assert_eq!(server.seen()[1].header("x-tollgate-event"), "c");
    run.stop().await;
}

#[tokio::test]
async fn a_paused_hook_gets_its_events_later() {
    let (server, other) = (Server::start(ok).await, Server::start(ok).await);
    let hooks =
        |paused| vec![Hook { paused, ..hook("a", server.url("/")) }, hook("other", other.url("/"))];
    let run = Run::start(hooks(true));
    run.events.add("a", 3);
    run.record.sent_through("other", 3).await;
    assert!(server.seen().is_empty());
    run.set(hooks(false));
    run.record.sent_through("a", 3).await;
    run.set(hooks(true));
    run.events.add("a", 1);
    run.record.sent_through("other", 4).await;
    assert_eq!(delivered(&server.seen()), [1, 2, 3]);
    run.stop().await;
}

#[tokio::test]
async fn a_hook_that_is_removed_is_stopped_in_the_middle_and_may_come_back() {
    let server = Server::start(|nth, _| if nth == 0 { None } else { reply(200, &[], "") }).await;
    let run = Run::start(vec![hook("a", server.url("/"))]);
    run.events.add("a", 2);
    server.asked(1).await;
    run.set(vec![]);
    server.left(1).await;
    assert_eq!(run.record.of("a"), []);
    run.set(vec![Hook { after: 1, ..hook("a", server.url("/")) }]);
    run.record.sent_through("a", 2).await;
    assert_eq!(delivered(&server.seen()), [1, 2]);
    run.stop().await;
}

#[tokio::test]
async fn a_better_address_is_tried_at_once() {
    let (bad, good) = (Server::start(|_, _| reply(500, &[], "")).await, Server::start(ok).await);
    let hour = Duration::from_secs(3600);
    let pace = DeliveryPace { retry: Backoff { first: hour, longest: hour }, ..fast() };
    let guard = AddressGuard { allow_private: true, ..AddressGuard::default() };
    let run = Run::with(vec![hook("a", bad.url("/"))], pace, guard);
    run.events.add("a", 1);
    run.record.told("a", |told| !told.is_empty()).await;
    run.set(vec![hook("a", good.url("/"))]);
    run.record.sent_through("a", 1).await;
    assert_eq!((bad.seen().len(), good.seen().len()), (1, 1));
    run.stop().await;
}

#[tokio::test]
async fn events_that_cannot_be_read_are_read_later() {
    let server = Server::start(ok).await;
    let run = Run::start(vec![]);
    run.events.add("a", 2);
    run.events.0.0.lock().unwrap()[1].json.clear();
    run.set(vec![hook("a", server.url("/"))]);
    run.record.sent_through("a", 2).await;
    assert_eq!(delivered(&server.seen()), [1, 2]);
    run.stop().await;
}

#[tokio::test]
async fn hooks_stay_when_whoever_gave_them_out_is_gone() {
    let server = Server::start(ok).await;
    let Run { hooks, events, record, stop, running } = Run::start(vec![hook("a", server.url("/"))]);
    drop(hooks);
    events.add("a", 1);
    record.sent_through("a", 1).await;
    stop.cancel();
    soon(running).await.unwrap();
}
