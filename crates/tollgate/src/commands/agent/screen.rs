//! A turn as a person sees it: what happens now on a line that moves, what has happened on lines that stay, and the answer.
//! Only the answer goes to the standard output.

use std::{
    io,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tollgate_contract::text::json_for_terminal;

use super::{
    answer::Answer,
    words::{brief, dollars, lasted, line, short, totals},
};
use crate::{
    output::{note, prompt, wants_colour, width, write_out},
    part::Part,
};

/// For whom a turn is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A person.
    People,
    /// A program that wants everything as it happens, one JSON object a line.
    Lines,
    /// A program that wants what came of it.
    Quiet,
}

/// The longest line about a step.
const LONGEST: usize = 240;

/// What is shown of a turn.
pub(super) struct Screen {
    mode: Mode,
    /// The line that moves, where there is a terminal.
    bar: Option<ProgressBar>,
    answer: Answer,
    colour: bool,
    shows_reasoning: bool,
    /// The part of a line of reasoning that is not shown yet.
    reasoning: String,
    doing: String,
    since: Instant,
    began: Instant,
    /// What the calls of this round are about.
    calls: Vec<String>,
    tokens: u64,
    usd_micros: u64,
    /// Why the model last failed in this turn.
    failed: Option<String>,
    is_asking: bool,
}

impl Screen {
    pub(super) fn new(mode: Mode, shows_reasoning: bool) -> Self {
        let bar = (mode == Mode::People && io::IsTerminal::is_terminal(&io::stderr())).then(bar);
        let now = Instant::now();
        Self {
            mode,
            bar,
            answer: Answer::new(width(), wants_colour(&io::stdout())),
            colour: wants_colour(&io::stderr()),
            shows_reasoning,
            reasoning: String::new(),
            doing: String::new(),
            since: now,
            began: now,
            calls: Vec::new(),
            tokens: 0,
            usd_micros: 0,
            failed: None,
            is_asking: false,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.answer.begin();
        self.began = Instant::now();
        (self.tokens, self.usd_micros, self.is_asking) = (0, 0, false);
        self.failed = None;
        if let Some(bar) = &self.bar {
            bar.reset();
        }
        self.does("starting…");
    }

    /// Passes an event on to a program, if one wants it.
    pub(super) fn pass(&self, name: &str, data: &Value) {
        if self.mode == Mode::Lines {
            let event = json!({"event": name, "data": data});
            write_out(json_for_terminal(&format!("{event}\n")).as_bytes());
        }
    }

    /// Time passes.
    pub(super) fn tick(&mut self) {
        let Some(bar) = self.bar.as_ref().filter(|_| !self.is_asking) else { return };
        let mut words = vec![format!("{} {}", self.doing, seconds(self.since.elapsed()))];
        if self.tokens > 0 {
            words.push(format!("{} tokens", short(self.tokens)));
        }
        if self.usd_micros > 0 {
            words.push(dollars(self.usd_micros));
        }
        // As wide as its words and no wider: what a terminal echoes behind it, such as ^C, is then cleared with it.
        let room = usize::from(termimad::terminal_size().0).saturating_sub(4).max(20);
        bar.set_message(line(&words.join(" · "), room));
        bar.tick();
    }

    fn does(&mut self, what: &str) {
        what.clone_into(&mut self.doing);
        self.since = Instant::now();
        self.tick();
    }

    /// Says something that stays.
    pub(super) fn say(&self, text: &str) {
        if self.mode == Mode::People {
            self.above(|| note(text));
        }
    }

    /// Writes where the line that moves is not.
    fn above(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) if !self.is_asking => bar.suspend(write),
            _ => write(),
        }
    }

    fn write(&self, text: Option<String>) {
        if let Some(text) = text.filter(|_| self.mode == Mode::People) {
            self.above(|| {
                write_out(text.as_bytes());
            });
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A piece of an answer, or of what the model thinks.
    pub(super) fn delta(&mut self, data: &Value) {
        if let Some(text) = data.get("text").and_then(Value::as_str) {
            if self.doing != "writing…" {
                self.does("writing…");
            }
            let ready = self.answer.push(text);
            self.write(ready);
        } else if *data.part("retract") == true {
            if self.answer.retract() {
                let told = "  (what stands above was taken back; the answer begins again)";
                self.say(&self.paint("2", told));
            }
        } else if let Some(text) = data.get("reasoning").and_then(Value::as_str)
            && self.shows_reasoning
        {
            self.reasoning.push_str(text);
            while let Some((done, rest)) = self.reasoning.split_once('\n') {
                let (done, rest) = (line(done, LONGEST), rest.to_owned());
                self.say(&self.paint("2", &format!("  {done}")));
                self.reasoning = rest;
            }
        }
    }

    fn end_reasoning(&mut self) {
        let rest = line(&std::mem::take(&mut self.reasoning), LONGEST);
        if !rest.is_empty() {
            self.say(&self.paint("2", &format!("  {rest}")));
        }
    }

    /// A step, as the trace has it.
    pub(super) fn step(&mut self, step: &Value) {
        let data = step.part("data");
        match step.word("kind") {
            "llm_req" => {
                let who = match data.word("role") {
                    "" | "governor" => "thinking…".to_owned(),
                    role => format!("{}: thinking…", line(role, 40)),
                };
                let again = data.part("attempt").as_u64().unwrap_or(1);
                let again = if again > 1 { format!(" (attempt {again})") } else { String::new() };
                self.does(&format!("{who}{again}"));
            }
            "llm_done" => self.answered(data),
            "llm_retry" => {
                let number = |name: &str| data.part(name).as_u64().unwrap_or(0);
                let (next, of) = (number("attempt"), number("of"));
                let wait = lasted(number("in_ms"));
                self.aside(&format!("asking again in {wait} ({next} of {of})"));
                self.does(&format!("waits {wait} to ask again,"));
            }
            "tool_plan" => self.planned(data),
            "tool_start" => {
                let about = self.about(data);
                self.does(&format!("{} {about}", line(data.word("tool"), 60)));
            }
            "tool_done" => self.called(data),
            "tool_wait" => self.waits(data),
            "retrieval" => {
                self.embedded(data);
                let found = data.part("items").as_array().map_or(0, Vec::len);
                if found > 0 {
                    self.aside(&format!("recalled {found}"));
                }
            }
            "notes_patch" => {
                let changed = data.part("changed").as_array().into_iter().flatten();
                let changed: Vec<&str> = changed.filter_map(Value::as_str).collect();
                if !changed.is_empty() {
                    self.aside(&format!("noted: {}", line(&changed.join(", "), 100)));
                }
            }
            "actions" => {
                for one in data.part("actions").as_array().into_iter().flatten() {
                    let (action, outcome) = (line(one.word("action"), 100), one.word("outcome"));
                    self.aside(&format!("{action}: {}", line(outcome, 140)));
                }
            }
            "memory_write" => {
                self.embedded(data);
                let ids = data.part("ids").as_array().map_or(0, Vec::len);
                if ids > 0 {
                    self.aside(&format!("remembered {ids}"));
                }
            }
            "warning" => {
                let problem = line(data.word("problem"), LONGEST);
                self.say(&format!("{} {problem}", self.paint("33", "!")));
            }
            "stop" => self.does("stopping…"),
            _ => {}
        }
    }

    fn count(&mut self, tokens: u64, usd_micros: &Value) {
        self.tokens = self.tokens.saturating_add(tokens);
        self.usd_micros = self.usd_micros.saturating_add(usd_micros.as_u64().unwrap_or(0));
    }

    /// What making memories comparable took.
    fn embedded(&mut self, data: &Value) {
        let embedding = data.part("embedding");
        self.count(embedding.part("tokens").as_u64().unwrap_or(0), embedding.part("usd_micros"));
    }

    fn aside(&self, text: &str) {
        self.say(&self.paint("2", &format!("· {text}")));
    }

    fn answered(&mut self, data: &Value) {
        self.end_reasoning();
        let rest = self.answer.end();
        self.write(rest);
        let tokens = |name: &str| data.part("usage").part(name).as_u64().unwrap_or(0);
        let used = tokens("input_tokens").saturating_add(tokens("output_tokens"));
        self.count(used, data.part("cost_usd_micros"));
        let error = data.part("error");
        // Whoever cancels is told of it once, at the end.
        if error.is_object() && error.word("code") != "CANCELLED" {
            let (code, message) =
                (line(error.word("code"), 40), line(error.word("message"), LONGEST));
            let told = format!("{code}: {message}");
            // What fails in the same way again is not told in full again.
            if self.failed.as_ref() == Some(&told) {
                self.say(&format!("{} model {code}, as before", self.paint("31", "✗")));
            } else {
                self.say(&format!("{} model {told}", self.paint("31", "✗")));
                self.failed = Some(told);
            }
        }
        self.does("working…");
    }

    fn planned(&mut self, data: &Value) {
        let calls = data.part("calls").as_array().map(Vec::as_slice).unwrap_or_default();
        self.calls = calls.iter().map(|call| brief(call.part("args"))).collect();
        for call in calls.iter().filter(|call| call.get("problem").is_some()) {
            let tool = line(call.word("tool"), 60);
            let tool = if tool.is_empty() { "a call".to_owned() } else { tool };
            let problem = line(call.word("problem"), LONGEST);
            self.say(&format!("{} {tool}: {problem}", self.paint("31", "✗")));
        }
    }

    /// What a call is about.
    fn about(&self, data: &Value) -> &str {
        let index = data.part("index").as_u64().and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.calls.get(index)).map_or("", String::as_str)
    }

    fn called(&mut self, data: &Value) {
        let what = format!("{} {}", line(data.word("tool"), 60), self.about(data));
        let what = what.trim_end();
        let text = if *data.part("ok") == true {
            let ms = data.part("duration_ms").as_u64().unwrap_or(0);
            let took = self.paint("2", &format!("({})", lasted(ms)));
            format!("{} {what} {took}", self.paint("32", "✓"))
        } else {
            let error = line(data.word("error"), LONGEST);
            format!("{} {what} {error}", self.paint("31", "✗"))
        };
        self.say(&text);
        self.does("working…");
    }

    fn waits(&mut self, data: &Value) {
        if let Some(ms) = data.part("room").part("ms").as_u64() {
            self.does(&format!("waits {} for room,", lasted(ms)));
        }
    }

    /// A call waits for a person who is not asked here.
    pub(super) fn waits_for_person(&mut self, id: &str, to_gate: &str) {
        let what = self.doing.clone();
        if self.mode != Mode::Lines {
            let id = line(id, 60);
            self.above(|| {
                note(&format!(
                    "… waits for a person: {what}\n  to answer: tollgate approve {id}{to_gate}"
                ));
            });
        }
        self.does(&format!("waits for a person: {what}"));
    }

    /// A person is asked here: the line that moves stands still.
    pub(super) fn ask(&mut self, text: &str, hides: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.is_asking = true;
        note(text);
        self.ask_again(hides);
    }

    /// The answer was neither yes nor no.
    pub(super) fn ask_again(&self, hides: bool) {
        prompt(if hides {
            "allow it unseen? type `yes` in full / [n]o › "
        } else {
            "allow? [y]es / [n]o › "
        });
    }

    /// Nobody is asked any more.
    pub(super) fn asked(&mut self) {
        if std::mem::take(&mut self.is_asking)
            && let Some(bar) = &self.bar
        {
            bar.reset();
        }
    }

    /// The turn is being cancelled.
    pub(super) fn stops(&mut self) {
        self.asked();
        self.say("· stopping; once more to leave at once");
        self.does("stopping…");
    }

    /// The turn is over. What came of it is told to a person.
    pub(super) fn end(&mut self, report: Option<&Value>) {
        self.asked();
        self.end_reasoning();
        let rest = self.answer.end();
        self.write(rest);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let Some(report) = report.filter(|_| self.mode == Mode::People) else { return };
        for warning in report.part("warnings").as_array().into_iter().flatten() {
            let warning = line(warning.as_str().unwrap_or_default(), LONGEST);
            note(&format!("{} {warning}", self.paint("33", "!")));
        }
        let error = report.part("error");
        let why = match (error.is_object(), report.word("stop")) {
            (true, _) => Some(format!(
                "{}: {}",
                line(error.word("code"), 40),
                line(error.word("message"), 2 * LONGEST)
            )),
            (false, "cancelled") => Some("the turn was cancelled".to_owned()),
            (false, "time") => Some("the turn's time was over".to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            note(&format!("{} {why}", self.paint("31", "✗")));
        } else if report.word("text").trim().is_empty() {
            note("(the model said nothing)");
        }
        let turn = report.part("turn").as_u64().unwrap_or(0);
        let took = lasted(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let text = format!("turn {turn} · {} · {took}", totals(report.part("totals")));
        note(&self.paint("2", &text));
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// Whole seconds, from the first on.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => String::new(),
        seconds => format!("{seconds} s"),
    }
}
