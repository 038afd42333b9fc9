//! Names that lead where they should not, with the system's own resolver and a real name server.
//!
//! Each test runs in a network of its own, in which some public addresses are this machine and `/etc/resolv.conf`
//! names a server that answers as the test says.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    process::Command,
    sync::{Arc, Mutex},
};

use tokio::{net::UdpSocket, task::JoinHandle};
use tollgate_tools::http::{Host, HttpProblem, Reach};

use crate::support::{Fixture, NOW, Server, is_role, number, passes, redirect, text};

/// A public address that is this machine, in a network of our own.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
const INSIDE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

const SETUP: &str = "set -e
ip link set lo up
for address in 93.184.216.34 169.254.169.254 10.0.0.5; do ip addr add $address/32 dev lo; done
printf 'nameserver 127.0.0.1\noptions timeout:2 attempts:1\n' > \"$FOLDER/resolv.conf\"
mount --bind \"$FOLDER/resolv.conf\" /etc/resolv.conf
exec \"$PROGRAM\" --exact \"$TEST\" --nocapture";

/// Is this the program in its own network? If not, it is started there.
async fn is_in_own_network(test: &str) -> bool {
    if is_role("own-network") {
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("unshare");
    child
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", SETUP])
        .env("PROGRAM", std::env::current_exe().unwrap())
        .env("TEST", test)
        .env("TOLLGATE_TEST_ROLE", "own-network")
        .env("FOLDER", folder.path());
    passes(child).await;
    false
}

/// A name server. Each name has a list of answers; the last one is given again and again.
struct NameServer {
    asked: Arc<Mutex<HashMap<String, usize>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    async fn start(names: &[(&str, &[&[Ipv4Addr]])]) -> Self {
        let names: HashMap<String, Vec<Vec<Ipv4Addr>>> = names
            .iter()
            .map(|(name, answers)| {
                ((*name).to_owned(), answers.iter().map(|answer| answer.to_vec()).collect())
            })
            .collect();
        let socket = UdpSocket::bind("127.0.0.1:53").await.unwrap();
        let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut query).await.unwrap();
                let answer = answer(&query[..length], |name| {
                    let mut counted = counted.lock().unwrap();
                    let times = counted.entry(name.to_owned()).or_default();
                    let answers = names.get(name)?;
                    let answer = answers.get((*times).min(answers.len() - 1)).cloned();
                    *times += 1;
                    answer
                });
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self { asked, task }
    }

    /// How often the addresses of a name were asked for.
    fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers a question for IPv4 addresses; for anything else there is nothing.
fn answer(query: &[u8], lookup: impl FnOnce(&str) -> Option<Vec<Ipv4Addr>>) -> Vec<u8> {
    let mut at = 12;
    let mut labels = Vec::new();
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..at + 1 + length]).to_lowercase());
        at += length + 1;
    }
    let is_a = query[at + 1..at + 3] == [0, 1];
    let question = &query[12..at + 5];
    let found = if is_a { lookup(&labels.join(".")) } else { Some(Vec::new()) };
    let code = if found.is_some() { 0 } else { 3 };
    let found = found.unwrap_or_default();
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
    answer.extend(question);
    for address in found {
        // The name of the question, its type and class, no time to live, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    answer
}

#[tokio::test]
async fn a_name_is_resolved_once_and_what_was_checked_is_connected_to() {
    if !is_in_own_network("names::a_name_is_resolved_once_and_what_was_checked_is_connected_to")
        .await
    {
        return;
    }
    let names = NameServer::start(&[("rebind.test", &[&[PUBLIC], &[INSIDE]])]).await;
    let public = Server::at("93.184.216.34:80", |_| text("public")).await;
    let inside = Server::at("127.0.0.1:80", |_| text("inside")).await;
    let fixture = Fixture::new();
    let page = fixture.get_public("http://rebind.test/").await.unwrap().page;
    assert_eq!(page.text, "public");
    assert_eq!(names.asked("rebind.test"), 1);
    assert_eq!((public.connections(), inside.connections()), (1, 0));
    // By now the name leads inside, and that is seen.
    let problem = fixture.get_public("http://rebind.test/").await.unwrap_err();
    assert!(problem.to_string().contains("this machine itself"), "{problem}");
    assert_eq!(names.asked("rebind.test"), 2);
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_the_same_name_is_resolved_and_checked_again() {
    if !is_in_own_network("names::a_redirect_to_the_same_name_is_resolved_and_checked_again").await
    {
        return;
    }
    let names = NameServer::start(&[("rebind.test", &[&[PUBLIC], &[INSIDE]])]).await;
    let public = Server::at("93.184.216.34:80", |_| redirect("http://rebind.test/again")).await;
    let inside = Server::at("127.0.0.1:80", |_| text("inside")).await;
    let problem = Fixture::new().get_public("http://rebind.test/").await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{problem}");
    assert_eq!(names.asked("rebind.test"), 2);
    assert_eq!((public.connections(), inside.connections()), (1, 0));
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_are_used() {
    if !is_in_own_network("names::of_several_addresses_only_the_allowed_are_used").await {
        return;
    }
    let _names = NameServer::start(&[
        ("mixed.test", &[&[INSIDE, PUBLIC, PRIVATE]]),
        ("inside.test", &[&[INSIDE, PRIVATE]]),
    ])
    .await;
    let public = Server::at("93.184.216.34:80", |_| text("public")).await;
    let inside = Server::at("127.0.0.1:80", |_| text("inside")).await;
    let private = Server::at("10.0.0.5:80", |_| text("private")).await;
    let fixture = Fixture::new();
    for _ in 0..5 {
        assert_eq!(fixture.get_public("http://mixed.test/").await.unwrap().page.text, "public");
    }
    let problem = fixture.get_public("http://inside.test/").await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{problem}");
    assert_eq!((public.connections(), inside.connections(), private.connections()), (5, 0, 0));
}

#[tokio::test]
async fn a_name_that_was_granted_may_lead_inside_but_not_to_credentials() {
    if !is_in_own_network("names::a_name_that_was_granted_may_lead_inside_but_not_to_credentials")
        .await
    {
        return;
    }
    let _names =
        NameServer::start(&[("inside.test", &[&[PRIVATE]]), ("meta.test", &[&[METADATA]])]).await;
    let private = Server::at("10.0.0.5:80", |_| text("private")).await;
    let metadata = Server::at("169.254.169.254:80", |_| text("credentials")).await;
    let fixture = Fixture::new();
    assert_eq!(fixture.get("http://inside.test/").await.unwrap().page.text, "private");
    let problem = fixture.get("http://meta.test/").await.unwrap_err();
    assert!(problem.to_string().contains("a grant of that very address"), "{problem}");
    assert_eq!((private.connections(), metadata.connections()), (1, 0));
    assert_eq!(fixture.get("http://169.254.169.254/").await.unwrap().page.text, "credentials");
}

#[tokio::test]
async fn a_public_host_does_not_lead_inside() {
    if !is_in_own_network("names::a_public_host_does_not_lead_inside").await {
        return;
    }
    let _names =
        NameServer::start(&[("public.test", &[&[PUBLIC]]), ("inside.test", &[&[INSIDE]])]).await;
    let targets = [
        "http://127.0.0.1/",
        "http://inside.test/",
        "http://2130706433/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://10.0.0.5/",
        "http://169.254.169.254/latest/meta-data/",
        "//127.1/",
    ];
    let public = Server::at("93.184.216.34:80", move |path| redirect(targets[number(path)])).await;
    let inside = Server::at("127.0.0.1:80", |_| text("inside")).await;
    let private = Server::at("10.0.0.5:80", |_| text("inside")).await;
    let metadata = Server::at("169.254.169.254:80", |_| text("inside")).await;
    let fixture = Fixture::new();
    for (number, target) in targets.iter().enumerate() {
        let url = format!("http://public.test/{number}");
        let problem = fixture.get_as(&url, true, NOW, &|_| Reach::Public).await.unwrap_err();
        assert!(matches!(problem, HttpProblem::NotPublic { .. }), "{target}: {problem}");
    }
    assert_eq!(public.connections(), targets.len());
    let reached = [&inside, &private, &metadata].map(Server::connections);
    assert_eq!(reached, [0, 0, 0]);
}

#[tokio::test]
async fn a_host_that_was_not_granted_is_not_even_resolved() {
    if !is_in_own_network("names::a_host_that_was_not_granted_is_not_even_resolved").await {
        return;
    }
    let names = NameServer::start(&[("secret-in-the-name.test", &[&[PUBLIC]])]).await;
    let fixture = Fixture::new();
    let nobody = |_: &Host| Reach::No("no grant".to_owned());
    let url = "http://secret-in-the-name.test/";
    let problem = fixture.get_as(url, true, NOW, &nobody).await.unwrap_err();
    assert!(matches!(problem, HttpProblem::NotGranted { .. }), "{problem}");
    assert_eq!(names.asked("secret-in-the-name.test"), 0);
    let problem = fixture.get_public("http://nobody.test/").await.unwrap_err();
    assert!(matches!(problem, HttpProblem::Unresolved { .. }), "{problem}");
}
