//! The tools for files and the web, without the gate around them: reading a file beneath a workspace against reading it
//! by its name, and a page from the cache against the same page from a server on this machine.

use std::{
    error::Error,
    fs,
    hint::black_box,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tollgate_tools::{
    fs::{ReadTextInput, read_text},
    http::{Fetcher, Get, Host, HttpConfig, Reach},
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
    let root = runtime.block_on(workspaces.open("bench"))?;
    let mut table = table();
    for (title, size) in SIZES {
        let path = root.path().join(title);
        fs::write(&path, "x".repeat(size))?;
        if read(&runtime, &root, title)? != fs::read_to_string(&path)? {
            return Err("the two read different texts".into());
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
            Contender::new("  fs.read_text", || {
                _ = black_box(read(&runtime, &root, title));
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

/// Times fetching.
pub(crate) fn pages() -> Result<(), Box<dyn Error>> {
    println!("\n19. Pages: http.get from its cache against a server on this machine\n");
    let place = folder()?;
    let runtime = runtime()?;
    let fetcher = Fetcher::new(HttpConfig::default(), place.path());
    let url = format!("http://{}/", serve()?);
    let get = |use_cache| -> Result<bool, String> {
        let cancel = CancellationToken::new();
        let reach = |_: &Host| Reach::Named;
        let deadline = Instant::now() + Duration::from_secs(10);
        let get = Get { url: &url, use_cache, now_ms: 1, deadline, cancel: &cancel, reach: &reach };
        let fetched = runtime.block_on(fetcher.fetch(get)).map_err(|error| error.to_string())?;
        Ok(black_box(fetched).page.metadata.cache_hit)
    };
    get(true)?;
    if !get(true)? || get(false)? {
        return Err("the cache was not used as it was asked for".into());
    }
    let timings = race(vec![
        Contender::new("  without the cache", || _ = get(false)),
        Contender::new("  from the cache", || _ = get(true)),
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
