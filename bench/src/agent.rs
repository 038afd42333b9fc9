//! The agent runtime: what a turn costs beyond the model, what each streamed piece adds, how fast answers are searched
//! for blocks, and whether a long session is slower than a short one. The model is a script in this process, so that
//! nothing is measured but ours.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    hint::black_box,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio_util::sync::CancellationToken;
use tollgate_agent::runtime::{AgentConfig, Budget, BudgetDefaults, Runtime, TurnRequest};
use tollgate_contract::{Call, Caller, Mode, Surface, Urgency};
use tollgate_gate::{
    CallOptions, Gate, Packs, Parts, Principal, Settings,
    keys::{KeySpec, PolicyRef, Role},
};
use tollgate_ledger::{Ledger, Sync};
use tollgate_memory::Memory;
use tollgate_models::{ChatRequest, ModelConfig, Models, collect};
use tollgate_policy::Policy;
use tollgate_protocol::{Extractor, SessionName};

use crate::{
    measure::{Contender, Table, median, percent, race, short},
    serving::child::folder,
};

/// How many pieces the long answer has.
const PIECES: usize = 2000;

const NOTES: &str = "
  The model is a script in this process. `a turn` loads the checkpoint, searches memory, builds the prompt, asks the model
  through the gate (policy, budget, record), writes the trace, saves the checkpoint with fsync of file and folder. In
  memory (tmpfs) the fsyncs cost nothing, and what is left is ours.";

/// Times the runtime.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\n22. The agent runtime: what a turn costs beyond the model\n");
    extractor()?;
    let tokio = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let disk = folder()?;
    let mut places = vec![("on disk", disk.path().to_owned())];
    let memory = tempfile::tempdir_in("/dev/shm").ok();
    if let Some(memory) = &memory {
        places.push(("in memory", memory.path().to_owned()));
    }
    for (title, place) in &places {
        turns(&tokio, title, place)?;
    }
    println!("{NOTES}");
    let place = memory.as_ref().map_or(disk.path(), |memory| memory.path());
    growth(&tokio, &place.join("long"))
}

/// An answer with text, two blocks and some reasoning, of about this size.
fn answer(bytes: usize) -> String {
    let part = "Some words about what was found in the files, with <b>tags</b> and a < b.\n";
    let block = "<<<TOOL_CALLS_JSON>>>[{\"id\":\"t1\",\"tool\":\"fs.read_text\",\"args\":{\"path\":\"a.md\"}}]<<<END_TOOL_CALLS_JSON>>>\n";
    let mut text = String::from("<think>first I think</think>");
    while text.len() < bytes {
        text.push_str(&part.repeat(40));
        if text.len() < bytes / 2 {
            text.push_str(block);
        }
    }
    text
}

fn extractor() -> Result<(), Box<dyn Error>> {
    let text = answer(256 * 1024);
    let chars: Vec<char> = text.chars().collect();
    let chunks = |size: usize| -> Vec<String> {
        chars.chunks(size).map(|chunk| chunk.iter().collect()).collect()
    };
    let (tokens, lines) = (chunks(4), chunks(80));
    let pass = |chunks: &[String]| {
        let mut extractor = Extractor::default();
        let mut shown = 0usize;
        for chunk in chunks {
            shown += extractor.feed(chunk).len();
        }
        (shown, extractor.finish().1)
    };
    let (_, found) = pass(&tokens);
    if found != pass(&lines).1 || found.segments.len() < 4 {
        return Err("the extractor found something else".into());
    }
    let copy = |chunks: &[String]| {
        let mut all = String::new();
        for chunk in chunks {
            all.push_str(chunk);
        }
        // What a reader does who waits for the end.
        all.find("<<<TOOL_CALLS_JSON>>>").map(|at| at + all.len())
    };
    let timings = race(vec![
        Contender::new("collect and search once, pieces of 4", || {
            _ = black_box(copy(&tokens));
        }),
        Contender::new("extractor, pieces of 4", || {
            _ = black_box(pass(&tokens));
        }),
        Contender::new("extractor, pieces of 80", || {
            _ = black_box(pass(&lines));
        }),
    ]);
    let mut table = Table::new(["256 kB of answer", "MB/s", "times", "spread"]);
    for timing in &timings {
        let rate = text.len() as f64 / timing.ns() * 1000.0;
        let times = timings.first().map_or(1.0, |first| timing.times(first));
        table.row([timing.name.clone(), short(rate), short(times), percent(timing.spread())]);
    }
    table.print();
    Ok(())
}

/// A gate, a runtime and a scripted model.
struct Stage {
    gate: Gate,
    runtime: Runtime,
    models: Models,
    by: Principal,
}

impl Stage {
    fn open(tokio: &Tokio, data: &Path, script: &Value) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(data)?;
        let file = data.join("script.json");
        fs::write(&file, script.to_string())?;
        let configs = BTreeMap::from([("script".to_owned(), ModelConfig::scripted(&file))]);
        let models = Models::new(configs, None)?;
        let packs = tollgate_tools::plain_pack(Packs::new())?;
        let registry = tollgate_models::pack(packs, models.clone())?.build()?;
        let ledger = Ledger::open(data, Sync::Process)?;
        let gate = Gate::open(Parts::new(ledger, registry, Settings::new(data)))?;
        let policy = PolicyRef::Inline(Box::new(Policy::operator()));
        let spec = KeySpec { policy, ..KeySpec::for_role("bench", Role::Agent) };
        let (_, key) = tokio.block_on(gate.create_key(None, spec))?;
        let by = gate.identify(Some(&key));
        let memory = Memory::open(&data.join("memory.db"))?;
        let most = Budget { rounds: Some(8), seconds: Some(600), ..Budget::default() };
        let config =
            AgentConfig { default_budget: BudgetDefaults::On(most), ..AgentConfig::default() };
        let (sessions, bind) =
            (data.join("sessions"), Arc::new(|_: &str, _: Option<&Path>| Ok(())));
        let runtime = Runtime::new(gate.clone(), models.clone(), memory, sessions, config, bind);
        Ok(Self { gate, runtime, models, by })
    }

    fn turn(
        &self,
        tokio: &Tokio,
        session: &SessionName,
        text: &str,
    ) -> Result<String, Box<dyn Error>> {
        let request = TurnRequest::new(text);
        let report =
            tokio.block_on(self.runtime.run(&self.by, session, request, Arc::new(|_| {})))?;
        if !report.ok {
            return Err(format!("a turn failed: {:?}", report.error).into());
        }
        Ok(report.text)
    }

    fn gated(&self, tokio: &Tokio, text: &str) -> Result<Value, Box<dyn Error>> {
        let call = Call {
            caller: Caller {
                surface: Surface::Agent,
                mode: Mode::Live,
                identity: self.by.identity(),
            },
            tool: "model.chat".to_owned(),
            input: json!({"messages": [{"role": "user", "content": text}]}),
            scope: None,
            urgency: Urgency::Normal,
            session: None,
            idempotency_key: None,
        };
        let options = CallOptions { deltas: Some(Arc::new(|_| {})), ..CallOptions::default() };
        let made = tokio.block_on(self.gate.call(call, options));
        Ok(made.map_err(|failed| format!("a call failed: {failed:?}"))?.output)
    }

    fn bare(&self, tokio: &Tokio, text: &str) -> Result<String, Box<dyn Error>> {
        let model = self.models.get(None, None)?;
        let request: ChatRequest = serde_json::from_value(
            json!({"messages": [{"role": "user", "content": text}], "tools": [], "max_tokens": 4096}),
        )?;
        let said = tokio.block_on(async {
            collect(model.backend().stream_chat(request, CancellationToken::new())).await
        })?;
        Ok(said.content)
    }
}

fn turns(tokio: &Tokio, title: &str, place: &Path) -> Result<(), Box<dyn Error>> {
    let long = "word ".repeat(PIECES);
    let call = "<<<TOOL_CALLS_JSON>>>[{\"id\":\"a\",\"tool\":\"system.time\",\"args\":{}}]<<<END_TOOL_CALLS_JSON>>>";
    let script = json!({"loop": true, "replies": [
        {"when": {"last_contains": "long"}, "content": long, "chunk": 5, "times": 0},
        {"when": {"last_contains": "TOOL RESULT"}, "content": "Done.", "times": 0},
        {"when": {"last_contains": "tool"}, "content": call, "times": 0},
        {"content": "Short."},
    ]});
    let stage = Stage::open(tokio, &place.join("turns"), &script)?;
    let mut fresh = 0u32;
    // A session of its own for each, now and then a new one: a history that grows is measured apart.
    let mut turn = |text: &str| -> Result<String, Box<dyn Error>> {
        fresh += 1;
        let session = SessionName::parse(&format!("s{}", fresh / 50))?;
        stage.turn(tokio, &session, text)
    };
    if turn("short")? != "Short." || turn("tool")? != "Done." || turn("long")?.len() < PIECES {
        return Err("the script was not followed".into());
    }
    let cell = std::cell::RefCell::new(turn);
    let go = |text: &str| {
        if let Err(error) = (cell.borrow_mut())(text) {
            eprintln!("{error}");
        }
    };
    let timings = race(vec![
        Contender::new("the model alone", || _ = black_box(stage.bare(tokio, "short"))),
        Contender::new("model.chat through the gate", || {
            _ = black_box(stage.gated(tokio, "short"))
        }),
        Contender::new("a turn", || go("short")),
        Contender::new("a turn with one tool call", || go("tool")),
        Contender::new("the model alone, 2,000 pieces", || {
            _ = black_box(stage.bare(tokio, "long"))
        }),
        Contender::new("a turn, 2,000 pieces", || go("long")),
    ]);
    let mut table = Table::new([title, "µs", "spread"]);
    for timing in &timings {
        table.row([timing.name.clone(), short(timing.ns() / 1000.0), percent(timing.spread())]);
    }
    table.print();
    let ns: Vec<f64> = timings.iter().map(crate::measure::Timing::ns).collect();
    if let [_, _, turn, _, bare, long] = ns.as_slice() {
        let (ours, theirs) = ((long - turn) / PIECES as f64, bare / PIECES as f64);
        println!(
            "  each piece: {} ns in a turn, {} ns from the model alone\n",
            short(ours),
            short(theirs)
        );
    }
    Ok(())
}

/// How long turns take as a session grows.
fn growth(tokio: &Tokio, place: &Path) -> Result<(), Box<dyn Error>> {
    let notes = "<<<NOTES_JSON>>>{\"add_decisions\":[\"decision {{n}}\"],\"add_memory_tags\":[\"t{{n}}\"]}<<<END_NOTES_JSON>>>";
    let script = json!({"loop": true, "replies": [
        {"content": format!("A few words about number {{{{n}}}}.{notes}")},
        {"content": "Some more words, and nothing to note."},
    ]});
    let stage = Stage::open(tokio, place, &script)?;
    let session = SessionName::parse("long")?;
    let mut table = Table::new(["turns so far", "µs a turn", "times", "checkpoint kB", "trace kB"]);
    let (mut first, mut taken) = (None, Vec::new());
    for turn in 1..=2000u32 {
        let since = Instant::now();
        stage.turn(tokio, &session, &format!("question {turn}"))?;
        taken.push(since.elapsed());
        if [100, 300, 1000, 2000].contains(&turn) {
            let micros: Vec<f64> =
                taken.iter().rev().take(100).map(|t: &Duration| t.as_secs_f64() * 1e6).collect();
            let now = median(&micros);
            let base = *first.get_or_insert(now);
            let folder = place.join("sessions/long");
            let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
            let trace: u64 = fs::read_dir(folder.join("trace"))?
                .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
                .sum();
            table.row([
                turn.to_string(),
                short(now),
                short(now / base),
                short(size(&folder.join("checkpoint.json")) as f64 / 1000.0),
                short(trace as f64 / 1000.0),
            ]);
        }
    }
    table.print();
    println!(
        "\n  Notes, decisions, tags and memories grow on the way, up to their bounds; the trace is kept up to 32 files of 4 MB."
    );
    Ok(())
}
