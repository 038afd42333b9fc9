//! What is said in a turn, twice: as it is, for the model and the person; and as it is kept, without secrets.
//!
//! Everything that decides how a turn goes on is taken from the kept form, so that a replay, which has nothing else,
//! goes the same way.

use std::borrow::Cow;

use serde_json::{Value, json};
use tollgate_contract::redact::{redact, redact_text};
use tollgate_protocol::{
    Bounds, ChatMessage, Extracted, Extractor, History, Role, ToolResult, Weighed, bounded,
    is_deeper,
};

/// What a message costs besides its text, and what a call does: as `model.chat` counts them, or more.
pub(crate) const PER_MESSAGE: u64 = 6;
const PER_CALL: u64 = 12;

/// How deep what is recorded may be nested: it stands some levels deeper in its line.
const DEEPEST: usize = 64;

/// The most bytes of a tool's output that a model is shown, and that is kept.
const LARGEST_OUTPUT: usize = 32 * 1024;

/// Where the text of arguments stands that are no JSON.
const UNREADABLE: &str = "unreadable";

/// A call that a model server set apart.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Native {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl Native {
    /// As a trace keeps it: arguments that are JSON as JSON, so that they are redacted as what they are.
    pub(crate) fn written(&self) -> Value {
        let arguments = tollgate_contract::json::parse(self.arguments.as_bytes()).ok();
        let arguments = arguments
            .filter(|value| !is_deeper(value, DEEPEST))
            .unwrap_or_else(|| json!({UNREADABLE: self.arguments}));
        json!({"id": self.id, "name": self.name, "arguments": arguments})
    }

    /// What a trace kept of it.
    pub(crate) fn read(written: &Value) -> Self {
        let text = |name: &str| written.get(name).and_then(Value::as_str).unwrap_or_default();
        let arguments = written.get("arguments").cloned().unwrap_or_default();
        let arguments = match arguments.get(UNREADABLE).and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => arguments.to_string(),
        };
        Self { id: text("id").to_owned(), name: text("name").to_owned(), arguments }
    }

    fn redacted(&self) -> Self {
        let arguments = match tollgate_contract::json::parse(self.arguments.as_bytes()) {
            Ok(mut value) if !is_deeper(&value, DEEPEST) => {
                redact(&mut value);
                value.to_string()
            }
            _ => redact_text(&self.arguments).into_owned(),
        };
        let clean = |text: &str| redact_text(text).into_owned();
        Self { id: clean(&self.id), name: clean(&self.name), arguments }
    }
}

/// A message of this turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) raw: ChatMessage,
    pub(crate) kept: ChatMessage,
    calls: Vec<Native>,
    kept_calls: Vec<Native>,
    /// The native call that it answers.
    answers: Option<(String, String)>,
}

impl Said {
    /// What a person said.
    pub(crate) fn by_user(text: &str) -> Self {
        let kept = ChatMessage::new(Role::User, redact_text(text));
        Self::both(ChatMessage::new(Role::User, text), kept)
    }

    /// What was kept of an earlier turn.
    pub(crate) fn before(message: &ChatMessage) -> Self {
        Self::both(message.clone(), message.clone())
    }

    fn both(raw: ChatMessage, kept: ChatMessage) -> Self {
        Self { raw, kept, calls: Vec::new(), kept_calls: Vec::new(), answers: None }
    }

    /// What the model said. It is shown its own words again, but not without end.
    pub(crate) fn by_model(answer: &Answer) -> Self {
        let message = |text: String| {
            ChatMessage::new(Role::Assistant, bounded(&text, Bounds::default().message_bytes))
        };
        let (raw, kept) = (message(answer.raw.spoken()), message(answer.kept.spoken()));
        Self {
            calls: answer.calls.clone(),
            kept_calls: answer.kept_calls.clone(),
            ..Self::both(raw, kept)
        }
    }

    /// What a tool gave. `native` is the server's id of the call, where it set the call apart itself.
    pub(crate) fn by_tool(raw: &ToolResult, kept: &ToolResult, is_native: bool) -> Self {
        let answers = is_native.then(|| (raw.id.clone(), kept.id.clone()));
        let text = redact_text(&kept.content()).into_owned();
        let raw = ChatMessage::new(Role::Tool, raw.content());
        Self { answers, ..Self::both(raw, ChatMessage::new(Role::Tool, text)) }
    }

    /// How it counts for what fits into a model.
    pub(crate) fn weighed(&self, count: impl Fn(&str) -> u64) -> Weighed {
        Weighed { role: self.kept.role, tokens: self.tokens(Part::All, count) }
    }

    /// The same, where only so many bytes of it go along; none are a mention of it.
    pub(crate) fn shortened(&self, bytes: usize, count: impl Fn(&str) -> u64) -> u64 {
        self.tokens(Part::First(bytes), count)
    }

    fn tokens(&self, part: Part, count: impl Fn(&str) -> u64) -> u64 {
        let calls = self.kept_calls.iter().map(|call| {
            let arguments = part.of_arguments(&call.arguments);
            count(&call.id) + count(&call.name) + count(&arguments) + PER_CALL
        });
        let answers = self.answers.as_ref().map_or(0, |(_, kept)| count(kept));
        calls.sum::<u64>() + answers + count(&part.of(&self.kept.content)) + PER_MESSAGE
    }

    /// How much longer than what is kept of it the message itself is: that was not counted.
    fn uncounted(&self) -> usize {
        self.raw.content.len().saturating_sub(self.kept.content.len())
    }

    /// The message as a model's server gets it.
    fn wire(&self, form: Form, part: Part) -> Value {
        let is_kept = form == Form::Kept;
        let message = if is_kept { &self.kept } else { &self.raw };
        let mut content = part.of(&message.content);
        if form == Form::Tight {
            let most = part.of(&self.kept.content).len();
            content = bounded(&content, most).into();
        }
        let mut wire = json!({"role": message.role, "content": content});
        let calls = if is_kept { &self.kept_calls } else { &self.calls };
        let calls: Vec<Native> = calls
            .iter()
            .map(|call| Native {
                arguments: part.of_arguments(&call.arguments).into_owned(),
                ..call.clone()
            })
            .collect();
        if let Some(members) = wire.as_object_mut() {
            if !calls.is_empty() {
                members.insert("tool_calls".to_owned(), json!(calls));
            }
            if let Some((raw, kept)) = &self.answers {
                let id = if is_kept { kept } else { raw };
                members.insert("tool_call_id".to_owned(), id.as_str().into());
            }
        }
        wire
    }
}

/// How much of a message goes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Everything.
    All,
    /// At most so many bytes; none of them is that it was seen before, and one that there is no room for it.
    First(usize),
}

impl Part {
    fn of(self, text: &str) -> Cow<'_, str> {
        let part = match self {
            Self::All => return text.into(),
            Self::First(0) => History::seen_text().to_owned(),
            Self::First(1) => NO_ROOM.to_owned(),
            Self::First(most) => bounded(text, most),
        };
        // What says that something is missing can be longer than that.
        if part.len() < text.len() { part.into() } else { text.into() }
    }

    /// The arguments of a call: JSON, also where only a part of them goes along.
    fn of_arguments(self, arguments: &str) -> Cow<'_, str> {
        match self {
            Self::First(1) if arguments.len() > NO_ROOM.len() => NO_ROOM.into(),
            Self::First(most) if arguments.len() > most.saturating_add(64) => {
                json!({"cut_short": bounded(arguments, most)}).to_string().into()
            }
            _ => arguments.into(),
        }
    }
}

/// What is left of a message that there is no room for.
const NO_ROOM: &str = "{\"note\":\"no room\"}";

/// In which form messages go along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As they are.
    Raw,
    /// As they are, but none longer than what is kept of it.
    Tight,
    /// As they are kept.
    Kept,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) raw: Extracted,
    pub(crate) kept: Extracted,
    pub(crate) calls: Vec<Native>,
    pub(crate) kept_calls: Vec<Native>,
}

impl Answer {
    /// Takes an answer apart.
    pub(crate) fn read(content: &str, calls: Vec<Native>, is_kept: bool) -> Self {
        let mut extractor = if is_kept { Extractor::again() } else { Extractor::default() };
        extractor.feed(content);
        let (_, raw) = extractor.finish();
        let kept = raw.redacted();
        let kept_calls = calls.iter().map(Native::redacted).collect();
        Self { raw, kept, calls, kept_calls }
    }
}

/// The messages of a request, as they are and as they are kept. What fits was found out from what is kept; where what
/// is left out of that would take more than `spare` bytes beside it, it is shortened.
pub(crate) fn wires(
    system: &str,
    history: &[Said],
    turn: &[Said],
    fit: History,
    spare: usize,
) -> (Vec<Value>, Vec<Value>) {
    let of = |form: Form| {
        let mut results = 0;
        let mut all = vec![json!({"role": Role::System, "content": system})];
        all.extend(history.iter().skip(fit.skipped).map(|said| said.wire(form, Part::All)));
        for (place, said) in turn.iter().enumerate() {
            results += usize::from(said.kept.role == Role::Tool);
            let most = match said.kept.role {
                Role::Tool if results <= fit.cut => Some(0),
                Role::Tool => fit.result_bytes,
                Role::Assistant => fit.answer_bytes,
                _ => None,
            };
            let part = most.map_or(Part::All, Part::First);
            if !(1..=fit.left).contains(&place) {
                all.push(said.wire(form, part));
            } else if place == fit.left {
                all.push(json!({"role": Role::User, "content": left_out(turn, fit)}));
            }
        }
        all
    };
    let uncounted = turn.iter().map(Said::uncounted).sum::<usize>();
    let form = if uncounted > spare { Form::Tight } else { Form::Raw };
    (of(form), of(Form::Kept))
}

/// What is told in the place of rounds that are left out.
fn left_out(turn: &[Said], fit: History) -> String {
    let left = turn.iter().take(fit.left + 1).map(|said| &said.kept);
    let results = left.filter(|message| message.role == Role::Tool);
    let results: Vec<&str> = results.map(|message| message.content.as_str()).collect();
    History::left_text(&results)
}

/// A tool's output, as much of it as a model is shown.
pub(crate) fn shown(output: Value) -> Value {
    let text = output.to_string();
    // What cannot be read again as JSON would make the whole trace unreadable.
    let is_sound = !is_deeper(&output, DEEPEST) && tollgate_contract::json::check(&output).is_ok();
    if text.len() <= LARGEST_OUTPUT && is_sound {
        return output;
    }
    json!({"cut_short": bounded(&text, LARGEST_OUTPUT), "bytes": text.len()})
}

/// A tool's output without secrets, as much of it as is kept.
pub(crate) fn kept_output(output: &Value) -> Value {
    let mut output = output.clone();
    redact(&mut output);
    let mut output = shown(output);
    // Cutting may have left the beginning of something.
    redact(&mut output);
    output
}
