//! What is asked, and how the daemon is configured for it.

use std::{error::Error, fs, path::Path};

use crate::serving::{
    child::Server,
    load::{Target, once},
};

/// Intents that are asked in turn, and the pools that they draw on.
pub(crate) struct Mix {
    pub(crate) title: &'static str,
    config: &'static str,
    /// The work, as often as it comes.
    work: &'static [&'static str],
    agents: usize,
    identities: usize,
}

/// How many different requests there are.
const REQUESTS: usize = 64;

/// One pool in which everything fits. Holds run out after a second, so that their end is paid for in the
/// same run as their beginning.
pub(crate) const APPROVED: Mix = Mix {
    title: "one fixed pool, all approved",
    config: r#"
[[pools]]
id = "bench:calls"
limit = 1000000000000
window = { kind = "fixed", every = "1h" }
valid_for = "1s"

[[routes]]
workload = "*"
pools = [{ id = "bench:calls" }]
"#,
    work: &["repo_scan"],
    agents: 1,
    identities: 1,
};

/// Four pools of different kinds for every intent. Half of the work fits, a quarter has to wait or is
/// denied once the bucket is booked up, a quarter is denied when too many run at once.
pub(crate) const MIXED: Mix = Mix {
    title: "four pools of different kinds, with waits and denials",
    config: r#"
[[pools]]
id = "bench:calls"
limit = 1000000000000
window = { kind = "fixed", every = "1h" }
valid_for = "1s"

[[pools]]
id = "bench:recent"
limit = 1000000000000
window = { kind = "sliding", every = "1m" }
per = "identity"
valid_for = "1s"

[[pools]]
id = "bench:day"
unit = "points"
limit = 1000000000000
window = { kind = "calendar", every = "day", zone = "Europe/Berlin" }
per = "agent"
valid_for = "1s"

[[pools]]
id = "bench:burst"
limit = 1000000000000
window = { kind = "bucket", refill = 1000000000, every = "1s" }
valid_for = "1s"

[[pools]]
id = "bench:narrow"
limit = 2000
window = { kind = "bucket", refill = 1000, every = "1s" }
valid_for = "1s"

[[pools]]
id = "bench:running"
limit = 500
window = { kind = "concurrency" }
valid_for = "1s"

[[routes]]
workload = "*"
pools = [{ id = "bench:calls" }, { id = "bench:recent" }, { id = "bench:day", cost = 3 }]

[[routes]]
workload = "fits"
pools = [{ id = "bench:burst" }]

[[routes]]
workload = "waits"
pools = [{ id = "bench:narrow" }]

[[routes]]
workload = "crowds"
pools = [{ id = "bench:running" }]
"#,
    work: &["fits", "waits", "fits", "crowds"],
    agents: 8,
    identities: 16,
};

impl Mix {
    /// Writes the configuration beside the data folder, where the daemon finds it.
    pub(crate) fn configure(&self, place: &Path, sync: &str) -> Result<(), Box<dyn Error>> {
        let daemon = format!("[daemon]\nsync = \"{sync}\"\nlog_level = \"error\"\n");
        Ok(fs::write(place.join("tollgate.toml"), daemon + self.config)?)
    }

    /// All requests in turn, to this server.
    pub(crate) fn target(&self, server: &Server, connections: usize) -> Target {
        let requests = (0..REQUESTS).map(|number| self.request(number)).collect();
        Target { address: server.address, requests, connections }
    }

    fn request(&self, number: usize) -> Vec<u8> {
        let workload = self.work.get(number % self.work.len()).copied().unwrap_or_default();
        request(
            &format!("crawler-{:02}", number / self.work.len() % self.agents),
            &format!("pat:somebody-{:02}", number / self.work.len() % self.identities),
            workload,
        )
    }

    /// Keeps the daemon's answer to each kind of work in a folder, for the bare handler to repeat.
    pub(crate) fn keep_answers(&self, ours: &Server, place: &Path) -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(place)?;
        for (number, name) in self.work.iter().enumerate() {
            let target = Target::new(ours.address, self.request(number));
            fs::write(place.join(name), once(&target)?)?;
        }
        Ok(())
    }
}

/// `POST /v1/intent` without a key.
pub(crate) fn request(agent: &str, identity: &str, workload: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"agent_id":"{agent}","identity_id":"{identity}","workload_id":"{workload}","scope_id":"repo:owner/name","urgency":"normal","expected_cost":1}}"#
    );
    let length = body.len();
    format!(
        "POST /v1/intent HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
