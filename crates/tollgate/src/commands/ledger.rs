//! `tollgate ledger`: the record itself, read from the data folder whether the gate runs or not.

use std::{
    io::{self, BufWriter, Write},
    time::Duration,
};

use serde_json::{Value, json};
use tollgate_contract::{Quoted, text::Clean};
use tollgate_gate::{check_kept, rfc3339};
use tollgate_ledger::{Broken, Head, LedgerError, Reader, StoredEvent, Verified};

use crate::{
    cli::{LedgerCommand, LedgerTailArgs},
    exit::Exit,
    output::{Failure, Output, is_read},
    part::Part,
    place::DataArgs,
};

pub(crate) fn run(command: &LedgerCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        LedgerCommand::Verify(args) => {
            let earlier = args.head.as_deref().map(head).transpose()?;
            let reader = open(&args.data)?;
            let verified = reader.verify(earlier).map_err(failed)?;
            // A chain that cannot be read to its end says nothing about keys and grants.
            let keys = match verified.broken {
                None => check_kept(&reader).map_err(failed)?,
                Some(_) => Vec::new(),
            };
            let mut data = json!(verified);
            if let Some(data) = data.as_object_mut() {
                data.insert("keys".to_owned(), json!(keys));
            }
            let written = output.success(&data, || told(&verified, &keys, earlier));
            let is_sound = verified.broken.is_none() && keys.is_empty();
            Ok(if is_sound { written } else { Exit::Failed })
        }
        LedgerCommand::Head(args) => {
            let head = open(&args.data)?.head().map_err(failed)?;
            Ok(output.success(&head, || format!("{}:{}\n", head.seq, head.hash)))
        }
        LedgerCommand::Tail(args) => tail(args, output),
        LedgerCommand::Export(args) => {
            let reader = open(&args.data)?;
            let mut out = Pipe { out: io::stdout().lock(), is_closed: false };
            match reader.export(BufWriter::new(&mut out)) {
                Ok(_) => Ok(Exit::Ok),
                // Whoever read it has enough: `tollgate ledger export | head`.
                Err(_) if out.is_closed => Ok(Exit::Ok),
                Err(error) => Err(failed(error)),
            }
        }
    }
}

/// The standard output, and whether its reader has gone.
struct Pipe<W> {
    out: W,
    is_closed: bool,
}

impl<W: Write> Pipe<W> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |=
            result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.note(flushed)
    }
}

pub(super) fn open(data: &DataArgs) -> Result<Reader, Failure> {
    Reader::of_folder(&data.folder()?).map_err(failed)
}

fn failed(error: LedgerError) -> Failure {
    Failure::ledger(&error)
}

/// Reads a head as it is printed.
fn head(text: &str) -> Result<Head, Failure> {
    let wrong = || {
        Failure::usage(format!("{} is not a head", Quoted::new(text)))
            .with_help("it is SEQ:HASH, as `tollgate ledger head` prints it")
    };
    let (seq, hash) = text.trim().split_once(':').ok_or_else(wrong)?;
    let seq: u64 = seq.parse().map_err(|_| wrong())?;
    Head::parse(seq, hash).ok_or_else(wrong)
}

fn told(verified: &Verified, keys: &[String], earlier: Option<Head>) -> String {
    let broken = match &verified.broken {
        None => {
            let also = match earlier {
                Some(earlier) => {
                    format!(" It holds the head {} that was seen earlier.", earlier.seq)
                }
                None => String::new(),
            };
            let mut text = format!(
                "✓ {} events hang together.{also}
  head {}:{}
",
                verified.events, verified.head.seq, verified.head.hash
            );
            for problem in keys {
                text.push_str(&format!(
                    "✗ {problem}; somebody changed the database.
"
                ));
            }
            return text;
        }
        Some(Broken::Gap { expected, found }) => {
            format!("event {expected} is missing; the next that is there is {found}")
        }
        Some(Broken::Changed { seq }) => format!("event {seq} was changed"),
        Some(Broken::Unchained { seq }) => format!("event {seq} does not follow the one before it"),
        Some(Broken::Truncated { expected, found }) => format!(
            "the ledger was cut: it ends with event {found}, and event {expected} was seen earlier"
        ),
        Some(Broken::Rewritten { seq }) => {
            format!("event {seq} is not the one that was seen earlier; the ledger was written anew")
        }
        Some(Broken::Retired { seq, first }) => format!(
            "event {seq} is retired and cannot be compared any more; the first that is there is {first}"
        ),
        Some(Broken::Unreadable { after, message }) => {
            format!("nothing behind event {after} can be read: {}", Clean::new(message))
        }
    };
    format!(
        "✗ {broken}.\n  {} events before it hang together. Keep a copy of the data folder before anything else.\n",
        verified.events
    )
}

fn tail(args: &LedgerTailArgs, output: &Output) -> Result<Exit, Failure> {
    let reader = open(&args.data)?;
    let mut events = reader.newest(None, args.lines).map_err(failed)?;
    events.reverse();
    let mut at = match events.last() {
        Some(event) => event.seq,
        None => reader.head().map_err(failed)?.seq,
    };
    if !args.follow {
        let data = json!({"events": events});
        return Ok(output.success(&data, || events.iter().map(line).collect()));
    }
    loop {
        for event in &events {
            let text = if output.is_json() { format!("{}\n", json!(event)) } else { line(event) };
            if !is_read(text.as_bytes()) {
                return Ok(Exit::Ok);
            }
            at = event.seq;
        }
        if events.is_empty() {
            std::thread::sleep(Duration::from_millis(200));
        }
        events = reader.tail(at, 256).map_err(failed)?;
    }
}

/// One event on one line.
fn line(event: &StoredEvent) -> String {
    let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
    let what = ["outputSummary", "change", "version"]
        .iter()
        .find_map(|field| payload.part(field).as_str());
    let code = payload.part("error").part("code").as_str();
    let subject = event.subject.tool.as_deref().unwrap_or_default();
    let more = Clean::new(code.or(what).unwrap_or_default());
    let text = format!(
        "{:>8}  {}  {:<16} {subject:<20} {more}",
        event.seq,
        rfc3339(event.ts_ms),
        event.kind
    );
    format!("{}\n", text.trim_end())
}
