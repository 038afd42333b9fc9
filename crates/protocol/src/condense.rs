//! Folding history: the oldest messages leave, and a line of each exchange stays in the summary. What has left is
//! handed over, so that it can be moved into memory; goals and constraints are not touched.

use crate::{
    message::{ChatMessage, Role},
    state::{Limits, State},
    text::{bounded, one_line},
};

/// How much history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most messages.
    pub messages: usize,
    /// The most bytes of all messages.
    pub bytes: usize,
    /// The most bytes of one message.
    pub message_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { messages: 60, bytes: 128 * 1024, message_bytes: 16 * 1024 }
    }
}

impl Bounds {
    /// Is this more than is kept?
    pub fn are_exceeded(&self, messages: &[ChatMessage]) -> bool {
        messages.len() > self.messages || size(messages) > self.bytes
    }

    /// What history is folded to: half of what may be kept, so that it is not folded every turn.
    fn target(&self) -> (usize, usize) {
        (self.messages / 2, self.bytes / 2)
    }
}

fn size(messages: &[ChatMessage]) -> usize {
    messages.iter().map(|message| message.content.len()).sum()
}

/// Cuts the results of tools in one exchange, the oldest first, until it is within what a history may hold. The question
/// and what the model said stay.
pub fn bound_exchange(exchange: &mut Vec<ChatMessage>, bounds: &Bounds) {
    const CUT: &str = "{\"note\":\"cut short: the turn had many results\"}";
    let mut bytes = size(exchange);
    for message in exchange.iter_mut().filter(|message| message.role == Role::Tool) {
        if bytes <= bounds.bytes {
            break;
        }
        if message.content.len() > CUT.len() {
            bytes -= message.content.len() - CUT.len();
            message.content = CUT.to_owned();
        }
    }
    // So many that even the notes of them are too much, or a model that said very much.
    let mut over = exchange.len().saturating_sub(bounds.messages.saturating_mul(4));
    exchange.retain(|message| {
        let goes = over > 0 && message.role == Role::Tool;
        over -= usize::from(goes);
        !goes
    });
    let last = exchange.len().saturating_sub(1);
    for (place, message) in exchange.iter_mut().enumerate() {
        if bytes > bounds.bytes && place != 0 && place != last {
            let kept = bounded(&message.content, 200);
            bytes = bytes.saturating_sub(message.content.len().saturating_sub(kept.len()));
            message.content = kept;
        }
    }
}

/// What has left the history: one text for each exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    /// The exchanges, oldest first.
    pub exchanges: Vec<String>,
    /// How many messages left.
    pub messages: usize,
}

/// The most bytes of an exchange that is handed over.
const EXCHANGE: usize = 8 * 1024;
/// The most bytes of a message within it.
const PART: usize = 3 * 1024;
/// How much of what was said stays in the summary.
const LINE: usize = 120;

/// Folds the oldest exchanges until the rest is half of what may be kept. The last exchange always stays. With
/// `summarise` a line of each stays in the summary; without it whoever folds writes the summary.
pub fn fold(
    messages: &mut Vec<ChatMessage>,
    state: &mut State,
    bounds: &Bounds,
    limits: &Limits,
    summarise: bool,
) -> Folded {
    let starts: Vec<usize> = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message.role == Role::User)
        .map(|(place, _)| place)
        .collect();
    let (most, bytes) = bounds.target();
    let fits = |from: usize| {
        let rest = messages.get(from..).unwrap_or_default();
        rest.len() <= most && size(rest) <= bytes
    };
    // The first exchange behind which everything fits, else the last one there is.
    let cut =
        starts.iter().copied().find(|from| fits(*from)).or(starts.last().copied()).unwrap_or(0);
    let mut folded = Folded { messages: cut, ..Folded::default() };
    let left: Vec<ChatMessage> = messages.drain(..cut).collect();
    for exchange in left.chunk_by(|_, next| next.role != Role::User) {
        folded.exchanges.push(text_of(exchange));
        if summarise {
            let line = line_of(exchange);
            if !state.episode_summary.is_empty() {
                state.episode_summary.push('\n');
            }
            state.episode_summary.push_str(&line);
        }
    }
    if state.episode_summary.chars().count() > limits.summary {
        state.episode_summary = newest_lines(&state.episode_summary, limits.summary);
    }
    folded
}

/// An exchange as one text.
fn text_of(exchange: &[ChatMessage]) -> String {
    let mut text = String::new();
    for message in exchange {
        text.push_str(message.role.as_str());
        text.push_str(": ");
        text.push_str(&bounded(message.content.trim(), PART));
        text.push('\n');
    }
    bounded(text.trim_end(), EXCHANGE)
}

/// An exchange as one line.
fn line_of(exchange: &[ChatMessage]) -> String {
    let said = |role: Role| {
        let mut found =
            exchange.iter().filter(|message| message.role == role && !message.content.is_empty());
        one_line(&bounded(found.next_back().map_or("", |message| message.content.trim()), LINE))
    };
    let (asked, answered) = (said(Role::User), said(Role::Assistant));
    format!("- asked: {asked}; answered: {answered}")
}

/// The newest lines that fit; that some are gone is said.
fn newest_lines(text: &str, most: usize) -> String {
    const GONE: &str = "(earlier: see memory)";
    let mut kept: Vec<&str> = Vec::new();
    let mut length = GONE.chars().count();
    for line in text.lines().rev().filter(|line| *line != GONE) {
        length += line.chars().count() + 1;
        if length > most {
            break;
        }
        kept.push(line);
    }
    kept.push(GONE);
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(turns: usize) -> Vec<ChatMessage> {
        (0..turns)
            .flat_map(|n| {
                [
                    ChatMessage::new(Role::User, format!("question {n}")),
                    ChatMessage::new(Role::Tool, "{}"),
                    ChatMessage::new(Role::Assistant, format!("answer {n}")),
                ]
            })
            .collect()
    }

    #[test]
    fn the_oldest_exchanges_leave_whole_and_a_line_of_each_stays() {
        let (mut messages, mut state) = (history(30), State::default());
        state.goals = vec!["g".into()];
        state.constraints = vec!["c".into()];
        let bounds = Bounds::default();
        assert!(bounds.are_exceeded(&messages));
        let folded = fold(&mut messages, &mut state, &bounds, &Limits::default(), true);
        assert_eq!((messages.len(), folded.messages, folded.exchanges.len()), (30, 60, 20));
        assert_eq!(messages.first().unwrap().content, "question 20");
        assert_eq!(folded.exchanges[0], "user: question 0\ntool: {}\nassistant: answer 0");
        assert!(state.episode_summary.starts_with("- asked: question 0; answered: answer 0\n"));
        assert_eq!((state.goals.len(), state.constraints.len()), (1, 1));
        assert!(!bounds.are_exceeded(&messages));
    }

    #[test]
    fn the_summary_stays_within_its_bounds_for_ever() {
        let limits = Limits { summary: 300, ..Limits::default() };
        let mut state = State::default();
        for _ in 0..50 {
            fold(&mut history(30), &mut state, &Bounds::default(), &limits, true);
            assert!(state.episode_summary.chars().count() <= 300);
        }
        assert!(state.episode_summary.starts_with("(earlier: see memory)\n"));
        assert!(state.episode_summary.ends_with("answered: answer 19"));
    }

    #[test]
    fn an_exchange_is_bounded_and_keeps_its_question_and_its_answer() {
        let mut exchange = vec![ChatMessage::new(Role::User, "q")];
        for n in 0..500 {
            exchange.push(ChatMessage::new(Role::Assistant, format!("thinking {n}").repeat(100)));
            exchange.push(ChatMessage::new(Role::Tool, "x".repeat(16 * 1024)));
        }
        exchange.push(ChatMessage::new(Role::Assistant, "the answer"));
        let bounds = Bounds::default();
        bound_exchange(&mut exchange, &bounds);
        assert!(size(&exchange) <= bounds.bytes * 2, "{}", size(&exchange));
        assert_eq!(exchange.first().unwrap().content, "q");
        assert_eq!(exchange.last().unwrap().content, "the answer");
        let mut small = history(3);
        bound_exchange(&mut small, &bounds);
        assert_eq!(small, history(3));
    }

    #[test]
    fn the_last_exchange_stays_however_large_it_is() {
        let mut messages = vec![
            ChatMessage::new(Role::User, "old"),
            ChatMessage::new(Role::User, "x".repeat(1_000_000)),
            ChatMessage::new(Role::Assistant, "y"),
        ];
        let folded = fold(
            &mut messages,
            &mut State::default(),
            &Bounds::default(),
            &Limits::default(),
            true,
        );
        assert_eq!((folded.messages, messages.len()), (1, 2));
        let none = fold(
            &mut Vec::new(),
            &mut State::default(),
            &Bounds::default(),
            &Limits::default(),
            true,
        );
        assert_eq!(none, Folded::default());
    }
}
