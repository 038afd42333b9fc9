//! The tools for files and the web, by themselves and through the gate: reading a file beneath a workspace against
//! reading it by its name, and a page from the cache against the same page from a server on this machine.

use std::{
    error::Error,
    fs,
    hint::black_box,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tollgate_consent::Holder;
use tollgate_contract::{Call, Caller, Capability, Mode, Secret, Surface, Urgency};
use tollgate_gate::{
    CallOptions, Clock, Gate, Packs, Parts, Settings, SystemClock,
    keys::{KeySpec, Role},
};
use tollgate_ledger::{Ledger, Sync};
use tollgate_sandbox::Config;
use tollgate_tools::{
    LazyShell, Toolbox,
    fs::{ReadTextInput, read_text},
    http::{Fetcher, Get, Host, HttpConfig, Reach},
    shell::ShellConfig,
    workspace::{Quota, Root, Workspaces},
};

use crate::{
    measure::{Contender, Table, Timing, percent, race, short},
    serving::child::folder,
};

/// The files to be read: a note, and as much as `fs.read_text` reads unless told otherwise.
const SIZES: [(&str, usize); 2] = [("200 bytes", 200), ("20 kB", 20_000)];

const FS_NOTES: &str = "
  `fs.read_text` opens beneath the workspace (openat2), checks what it opened, and does both on a thread for
  work that blocks. Going to that thread and back is in its time; the same read on such a thread stands between.";

const HTTP_NOTES: &str = "
  A page of 20 kB. Without the cache: a client of its own for each fetch, a connection over loopback, HTML made into
  text. A real server is farther away. From the cache: a row of SQLite, its hash checked.";

/// Times reading.
pub(crate) fn files() -> Result<(), Box<dyn Error>> {
    println!("\n18. Files: fs.read_text against reading by name\n");
    let place = folder()?;
    let runtime = runtime()?;
    let workspaces = Workspaces::new(place.path(), None, Quota::default())?;
    let gated = Gated::open(&runtime, place.path())?;
    let root = runtime.block_on(workspaces.open(&gated.session))?;
    let mut table = table();
    for (title, size) in SIZES {
        let path = root.path().join(title);
        fs::write(&path, "x".repeat(size))?;
        let plain = fs::read_to_string(&path)?;
        let through = gated.call(&runtime, "fs.read_text", json!({"path": title}))?;
        if read(&runtime, &root, title)? != plain || through["text"] != plain {
            return Err("they read different texts".into());
        }
        table.heading(title);
        let timings = race(vec![
            Contender::new("  std::fs::read_to_string", || {
                _ = black_box(fs::read_to_string(&path));
            }),
            Contender::new("  the same, on another thread", || {
                let path = path.clone();
                let read = runtime.spawn_blocking(move || fs::read_to_string(path));
                _ = black_box(runtime.block_on(read));
            }),
            Contender::new("  fs.read_text by itself", || {
                _ = black_box(read(&runtime, &root, title));
            }),
            Contender::new("  fs.read_text through the gate", || {
                let input = json!({"path": title});
                _ = black_box(gated.call(&runtime, "fs.read_text", input));
            }),
        ]);
        rows(&mut table, &timings);
    }
    table.print();
    println!("{FS_NOTES}");
    Ok(())
}

fn read(runtime: &Runtime, root: &Root, path: &str) -> Result<String, tollgate_contract::Error> {
    let input = ReadTextInput { path: path.to_owned(), max_bytes: 20_000 };
    Ok(runtime.block_on(read_text(root, input))?.text)
}

/// The tools behind a gate of their own: keys, policy, capabilities, budget and record included.
struct Gated {
    gate: Gate,
    key: Secret,
    session: String,
}

impl Gated {
    fn open(runtime: &Runtime, data: &Path) -> Result<Self, Box<dyn Error>> {
        let toolbox = Toolbox {
            workspaces: Workspaces::new(data, None, Quota::default())?,
            fetcher: Arc::new(Fetcher::new(HttpConfig::default(), data)),
            shell: Arc::new(LazyShell::new(ShellConfig::default(), Config::default(), data)),
        };
        let registry = tollgate_tools::pack(Packs::new(), toolbox)?.build()?;
        let ledger = Ledger::open(data, Sync::Process)?;
        let _inside = runtime.enter();
        let mut parts = Parts::new(ledger, registry, Settings::new(data));
        // Room enough for all the calls of a race.
        parts.governor = serde_json::from_value(json!({
            "pools": [{"id": "bench:calls", "limit": 1_000_000_000, "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "bench:calls"}]}],
        }))?;
        let gate = Gate::open(parts)?;
        let session = "bench".to_owned();
        let key = runtime.block_on(async {
            let agent = KeySpec::for_role("agent", Role::Agent);
            let (_, key) = gate.create_key(None, agent).await?;
            let spec = KeySpec::for_role("approver", Role::Approver);
            let (_, approver) = gate.create_key(None, spec).await?;
            let by = gate.identify(Some(&approver));
            let to = Holder { key: None, session: Some(session.clone()) };
            let host = Capability::parse("net:127.0.0.1")
                .map_err(|error| tollgate_contract::error::Internal::new(error.to_string()))?;
            gate.grant_capability(&by, host, to, None, None).await?;
            Ok::<_, tollgate_contract::Error>(key)
        })?;
        Ok(Self { gate, key, session })
    }

    fn call(&self, runtime: &Runtime, tool: &str, input: Value) -> Result<Value, Box<dyn Error>> {
        let identity = self.gate.identify(Some(&self.key)).identity();
        let call = Call {
            caller: Caller { surface: Surface::Agent, mode: Mode::Live, identity },
            tool: tool.to_owned(),
            input,
            scope: None,
            urgency: Urgency::Normal,
            session: Some(self.session.clone()),
            idempotency_key: None,
        };
        let ended = runtime.block_on(self.gate.call(call, CallOptions::default()));
        let ended = ended.map_err(|unfinished| format!("{:?}", unfinished.code()))?;
        Ok(ended.output)
    }
}

/// Times fetching.
pub(crate) fn pages() -> Result<(), Box<dyn Error>> {
    println!("\n19. Pages: http.get from its cache against a server on this machine\n");
    let place = folder()?;
    let runtime = runtime()?;
    let fetcher = Fetcher::new(HttpConfig::default(), place.path());
    let gated = Gated::open(&runtime, place.path())?;
    let url = format!("http://{}/", serve()?);
    let get = |use_cache| -> Result<bool, String> {
        let cancel = CancellationToken::new();
        let reach = |_: &Host| Reach::Named;
        let deadline = Instant::now() + Duration::from_secs(10);
        // The gate and this share one cache, and must agree about the time.
        let now_ms = SystemClock.now_ms();
        let get = Get { url: &url, use_cache, now_ms, deadline, cancel: &cancel, reach: &reach };
        let fetched = runtime.block_on(fetcher.fetch(get)).map_err(|error| error.to_string())?;
        Ok(black_box(fetched).page.metadata.cache_hit)
    };
    get(true)?;
    let through = gated.call(&runtime, "http.get", json!({"url": url}))?;
    if !get(true)? || get(false)? || through["metadata"]["cache_hit"] != true {
        return Err("the cache was not used as it was asked for".into());
    }
    let timings = race(vec![
        Contender::new("  without the cache", || _ = get(false)),
        Contender::new("  from the cache", || _ = get(true)),
        Contender::new("  from the cache through the gate", || {
            _ = black_box(gated.call(&runtime, "http.get", json!({"url": url})));
        }),
    ]);
    let mut table = table();
    rows(&mut table, &timings);
    table.print();
    println!("{HTTP_NOTES}");
    Ok(())
}

/// A server that gives the same page to everybody, for as long as this process lives.
fn serve() -> Result<SocketAddr, std::io::Error> {
    let page = format!("<title>t</title>{}", "<p>a <b>paragraph</b> of text</p>\n".repeat(600));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{page}", page.len());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever went away is no concern of ours: the fetch fails, and says so.
            _ = answered(stream, answer.as_bytes());
        }
    });
    Ok(address)
}

fn answered(mut stream: TcpStream, answer: &[u8]) -> Result<(), std::io::Error> {
    let mut request = [0; 2_048];
    _ = stream.read(&mut request)?;
    stream.write_all(answer)
}

fn runtime() -> Result<Runtime, std::io::Error> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

fn table() -> Table {
    Table::new(["", "µs", "spread", "time"])
}

fn rows(table: &mut Table, timings: &[Timing]) {
    let Some(first) = timings.first() else {
        return;
    };
    for timing in timings {
        table.row([
            timing.name.clone(),
            short(timing.ns() / 1e3),
            percent(timing.spread()),
            format!("× {}", short(timing.times(first))),
        ]);
    }
}
