//! `tollgate agent run` and `tollgate agent repl`: turns, heard as they happen.

use std::{
    io::{self, IsTerminal},
    path::Path,
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_contract::{ErrorCode, error::ErrorObject, text::for_terminal};
use tollgate_protocol::SessionName;

use super::{
    lines::Lines,
    screen::{Mode, Screen},
    show,
    station::{self, Station},
};
use crate::{
    cli::{AgentReplArgs, AgentRunArgs, AgentTurnArgs},
    client::{self, EventStream},
    commands::approve,
    exit::Exit,
    output::{Failure, Output, note, prompt},
    part::Part,
    source,
};

/// How often the line that moves does.
const MOVES: Duration = Duration::from_millis(120);

pub(crate) fn run(args: &AgentRunArgs, output: &Output) -> Result<Exit, Failure> {
    let prompt = match args.prompt.as_str() {
        "-" => source::read_text(Path::new("-"))?,
        prompt => prompt.to_owned(),
    };
    let mode = match (args.stream_json, output.is_json()) {
        (true, _) => Mode::Lines,
        (_, true) => Mode::Quiet,
        _ => Mode::People,
    };
    client::wait(async {
        let mut talk = Talk::begin(&args.turn, mode).await?;
        let ended = talk.turn(&prompt).await?;
        Ok(talk.leave(ended, output))
    })
}

pub(crate) fn repl(args: &AgentReplArgs, output: &Output) -> Result<Exit, Failure> {
    let mode = if output.is_json() { Mode::Quiet } else { Mode::People };
    client::wait(async {
        let mut talk = Talk::begin(&args.turn, mode).await?;
        let is_person = io::stdin().is_terminal();
        if is_person {
            let session = &talk.session;
            note(&format!("session {session}; /show, /cancel, /quit or Ctrl-D"));
        }
        let mut last = Exit::Ok;
        loop {
            let line = match talk.line(is_person).await {
                Typed::Line(line) => line,
                Typed::Nothing => return Ok(if is_person { Exit::Ok } else { last }),
                Typed::Interrupt => {
                    if is_person {
                        // Whatever comes next begins on a line of its own.
                        note("");
                    }
                    return Ok(Exit::Interrupted);
                }
            };
            match line.trim() {
                "" => {}
                "/quit" | "/exit" => return Ok(Exit::Ok),
                "/show" => talk.show(output).await,
                "/cancel" => talk.cancel_elsewhere().await,
                command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                    note("there is /show, /cancel and /quit; a line that begins otherwise is said");
                }
                said => match talk.turn(said).await {
                    Ok(Ended::Report(report)) => last = told(&report, mode, output),
                    Ok(left) => return Ok(talk.leave(left, output)),
                    // A gate that is gone does not come back by itself.
                    Err(failure) if failure.exit() == Exit::Unavailable => return Err(failure),
                    Err(failure) => last = output.failure(&failure),
                },
            }
        }
    })
}

/// How a turn ended for the one who waited.
enum Ended {
    /// With a report.
    Report(Value),
    /// Nobody waited any more; not even for the gate to save it, where that is at once.
    Left { at_once: bool },
}

/// What came from the keyboard.
enum Typed {
    Line(String),
    Nothing,
    Interrupt,
}

/// A person, or a program, who talks with an agent.
struct Talk {
    station: Station,
    session: SessionName,
    request: Map<String, Value>,
    screen: Screen,
    lines: Lines,
    interrupts: Interrupts,
    /// What another command must be told so that it finds the same gate.
    to_gate: String,
}

/// What a person is asked.
#[derive(Clone)]
struct Asked {
    id: String,
    /// Is something of it not shown?
    hides: bool,
}

impl Talk {
    async fn begin(args: &AgentTurnArgs, mode: Mode) -> Result<Self, Failure> {
        let session = super::session(&args.session)?;
        let (settings, request) = (station::settings(args)?, station::request(args)?);
        let interrupts = Interrupts::new()?;
        let station = Station::reach(&args.gate).await?;
        station.set(&session, &settings).await?;
        let screen = Screen::new(mode, args.show_reasoning);
        let to_gate = match (&args.gate.url, &args.gate.data.data) {
            (Some(url), _) => format!(" --url {}", for_terminal(url)),
            (None, Some(data)) => format!(" --data {}", for_terminal(&data.to_string_lossy())),
            (None, None) => String::new(),
        };
        let lines = Lines::default();
        Ok(Self { station, session, request, screen, lines, interrupts, to_gate })
    }

    fn path(&self, what: &str) -> String {
        format!("/v1/sessions/{}/{what}", self.session)
    }

    /// The next line that is typed.
    async fn line(&mut self, is_person: bool) -> Typed {
        if is_person {
            prompt("› ");
        }
        tokio::select! {
            line = self.lines.next() => line.map_or(Typed::Nothing, Typed::Line),
            () = self.interrupts.next() => Typed::Interrupt,
        }
    }

    /// Runs a turn to its end.
    async fn turn(&mut self, said: &str) -> Result<Ended, Failure> {
        let mut body = self.request.clone();
        body.insert("input".to_owned(), said.into());
        self.screen.begin();
        let heard = self.hear(&Value::Object(body)).await;
        let report = match &heard {
            Ok(Ended::Report(report)) => Some(report),
            _ => None,
        };
        self.screen.end(report);
        heard
    }

    async fn hear(&mut self, body: &Value) -> Result<Ended, Failure> {
        let path = self.path("turns");
        let mut events = tokio::select! {
            events = self.station.runner.events(&path, body) => events?,
            // The gate cancels what nobody waits for.
            () = self.interrupts.next() => return Ok(Ended::Left { at_once: false }),
        };
        let mut moves = tokio::time::interval(MOVES);
        let (mut stops, mut asked) = (false, None::<Asked>);
        loop {
            tokio::select! {
                event = events.next() => {
                    if let Some(ended) = self.heard(event?, &mut asked, &events).await? {
                        return Ok(ended);
                    }
                }
                _ = moves.tick() => self.screen.tick(),
                line = self.lines.next(), if asked.is_some() => {
                    self.answer(&mut asked, line).await;
                }
                () = self.interrupts.next() => {
                    if std::mem::replace(&mut stops, true) {
                        return Ok(Ended::Left { at_once: true });
                    }
                    asked = None;
                    self.screen.stops();
                    let path = self.path("cancel");
                    let nothing = json!({});
                    tokio::select! {
                        told = self.station.runner.post(&path, &nothing) => {
                            if let Err(failure) = told {
                                self.screen.say(&format!("! {failure}"));
                            }
                        }
                        // A gate that does not answer keeps nobody here.
                        () = self.interrupts.next() => return Ok(Ended::Left { at_once: true }),
                    }
                }
            }
        }
    }

    /// Takes one event in. Gives how the turn ended, once it has.
    async fn heard(
        &mut self,
        event: Option<(String, Value)>,
        asked: &mut Option<Asked>,
        events: &EventStream,
    ) -> Result<Option<Ended>, Failure> {
        let Some((name, data)) = event else {
            return Err(events.broke("the stream ended before the turn did"));
        };
        self.screen.pass(&name, &data);
        match name.as_str() {
            "delta" => self.screen.delta(&data),
            "step" => {
                if data.word("kind") == "tool_done" && asked.take().is_some() {
                    self.screen.asked();
                }
                self.screen.step(&data);
                let approval = data.part("data").part("approval");
                if data.word("kind") == "tool_wait" && approval.is_object() {
                    self.waits(approval.word("id"), asked).await;
                }
            }
            "done" => return Ok(Some(Ended::Report(data))),
            "error" => {
                let error = serde_json::from_value::<ErrorObject>(data);
                return Err(match error {
                    Ok(error) => Failure::of(error),
                    Err(_) => events.broke("it does not answer as a gate does"),
                });
            }
            _ => {}
        }
        Ok(None)
    }

    /// A call waits for a person: the one who sits here, if there is one who may answer.
    async fn waits(&mut self, id: &str, asked: &mut Option<Asked>) {
        let sits_here = self.screen.mode() == Mode::People
            && io::stdin().is_terminal()
            && io::stderr().is_terminal();
        let path = format!("/v1/approvals/{}", client::in_path(id));
        let item = match &self.station.admin {
            Some(admin) if sits_here => admin.get(&path).await.ok(),
            _ => None,
        };
        let Some(item) = item else { return self.screen.waits_for_person(id, &self.to_gate) };
        self.lines.forget();
        let shown = approve::shown(&item);
        let hides = *item.part("inputHidden") == true;
        self.screen.ask(&format!("\nThe agent wants to do this:\n{}", shown.trim_end()), hides);
        *asked = Some(Asked { id: id.to_owned(), hides });
    }

    /// Somebody typed while a question stood.
    async fn answer(&mut self, asked: &mut Option<Asked>, line: Option<String>) {
        let (Some(Asked { id, hides }), Some(admin)) = (asked.clone(), &self.station.admin) else {
            return;
        };
        let approves = match line.as_deref().map(str::trim) {
            // What nobody sees is not allowed by a slip of the finger.
            Some("yes") => true,
            Some("y") if !hides => true,
            Some("n" | "no") => false,
            Some(_) => return self.screen.ask_again(hides),
            None => {
                // Nobody types any more.
                *asked = None;
                self.screen.asked();
                return self.screen.waits_for_person(&id, &self.to_gate);
            }
        };
        let answered = approve::answer(admin, &id, approves).await;
        *asked = None;
        self.screen.asked();
        if let Err(failure) = answered {
            self.screen.say(&format!("! {failure}"));
        }
    }

    async fn show(&self, output: &Output) {
        let client = self.station.admin.as_ref().unwrap_or(&self.station.runner);
        match client.get(&format!("/v1/sessions/{}", self.session)).await {
            Ok(view) => drop(output.success(&view, || show::text(&view))),
            Err(failure) => drop(output.failure(&failure)),
        }
    }

    async fn cancel_elsewhere(&self) {
        match self.station.runner.post(&self.path("cancel"), &json!({})).await {
            Ok(told) if *told.part("cancelled") == true => note("· stopping the turn that runs"),
            Ok(_) => note("· no turn runs in this session"),
            Err(failure) => note(&format!("! {failure}")),
        }
    }

    /// Says how it ended, and leaves.
    fn leave(self, ended: Ended, output: &Output) -> Exit {
        match ended {
            Ended::Report(report) => told(&report, self.screen.mode(), output),
            Ended::Left { at_once } => {
                if at_once {
                    self.station.abandon();
                }
                Exit::Interrupted
            }
        }
    }
}

/// Writes what a program wants to know of a turn, and says how the command ends.
fn told(report: &Value, mode: Mode, output: &Output) -> Exit {
    let written = match mode {
        Mode::Quiet => output.success(report, String::new),
        Mode::People | Mode::Lines => Exit::Ok,
    };
    if written == Exit::Ok { exit(report) } else { written }
}

/// How a command ends with such a turn.
fn exit(report: &Value) -> Exit {
    let error = report.part("error");
    match (error.is_object(), report.word("stop")) {
        (false, "") => Exit::Ok,
        (false, "cancelled") => Exit::Interrupted,
        // Time is a part of the budget.
        (false, _) => Exit::Denied,
        (true, _) if error.word("code") == "APPROVAL_REQUIRED" => Exit::Pending,
        (true, _) => {
            let code = serde_json::from_value::<ErrorCode>(error.part("code").clone());
            code.map_or(Exit::Failed, Exit::of)
        }
    }
}

/// What interrupts a command: Ctrl-C, or whoever ends its process politely.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn new() -> Result<Self, Failure> {
        let hear = |kind| {
            signal(kind)
                .map_err(|error| Failure::bad_input(format!("cannot hear signals: {error}")))
        };
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
