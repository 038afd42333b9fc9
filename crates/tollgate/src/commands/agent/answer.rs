//! The answer of a model on its way to the standard output: as markdown on a terminal, paragraph by paragraph; as plain
//! text elsewhere, each answer when it is whole, so that what is taken back is never written.

use termimad::MadSkin;
use tollgate_contract::text::for_terminal;

/// An answer that is coming in.
pub(super) struct Answer {
    /// How it looks, and how wide it may be, on a terminal.
    screen: Option<(MadSkin, usize)>,
    /// What has come in and is not written yet.
    pending: String,
    /// Was a part of this answer written?
    has_begun: bool,
    /// Was anything written in this turn?
    has_written: bool,
}

impl Answer {
    /// For a terminal of this width, in colour or not; plain where there is none.
    pub(super) fn new(width: Option<usize>, colour: bool) -> Self {
        let skin = || if colour { MadSkin::default() } else { MadSkin::no_style() };
        Self {
            screen: width.map(|width| (skin(), width)),
            pending: String::new(),
            has_begun: false,
            has_written: false,
        }
    }

    /// Another turn begins.
    pub(super) fn begin(&mut self) {
        self.pending.clear();
        self.has_begun = false;
        self.has_written = false;
    }

    /// Takes a piece in, and gives what can be written now.
    pub(super) fn push(&mut self, text: &str) -> Option<String> {
        self.pending.push_str(text);
        self.screen.as_ref()?;
        let end = last_break(&self.pending)?;
        let rest = self.pending.split_off(end);
        let whole = std::mem::replace(&mut self.pending, rest);
        self.written(&whole)
    }

    /// The answer is whole. Gives what is left of it.
    pub(super) fn end(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.pending);
        let written = self.written(&rest);
        self.has_begun = false;
        written
    }

    /// What came in of this answer does not count. Says whether a part of it was written.
    pub(super) fn retract(&mut self) -> bool {
        self.pending.clear();
        std::mem::take(&mut self.has_begun)
    }

    fn written(&mut self, text: &str) -> Option<String> {
        let text = text.trim_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return None;
        }
        // Between two answers of a turn, and between two paragraphs, stands a line.
        let gap = if std::mem::replace(&mut self.has_written, true) { "\n" } else { "" };
        self.has_begun = true;
        Some(match &self.screen {
            Some((skin, width)) => {
                let shown = skin.text(&plain(text, "    "), Some(*width)).to_string();
                format!("{gap}{}\n", shown.trim_end_matches('\n'))
            }
            None => format!("{gap}{}\n", plain(text.trim(), "\t")),
        })
    }
}

/// Text of a model without what a terminal would act on.
fn plain(text: &str, tab: &str) -> String {
    let text = text.replace("\r\n", "\n");
    text.split('\t').map(for_terminal).collect::<Vec<_>>().join(tab)
}

/// Where the last paragraph ends that is whole: behind an empty line that is not within a block of code.
fn last_break(text: &str) -> Option<usize> {
    let (mut at, mut found, mut is_code, mut is_empty) = (0, None, false, true);
    for line in text.split_inclusive('\n') {
        if !line.ends_with('\n') {
            break;
        }
        at += line.len();
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
        }
        if line.is_empty() && !is_code && !is_empty {
            found = Some(at);
        }
        is_empty &= line.is_empty();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_paragraphs_when_they_are_whole() {
        let mut answer = Answer::new(Some(60), false);
        assert_eq!(answer.push("One\ntwo"), None);
        assert_eq!(answer.push(" three\n"), None);
        assert_eq!(answer.push("\nNext").unwrap(), "One\ntwo three\n");
        assert_eq!(answer.push("\n\n```\ncode\n\n").unwrap(), "\nNext\n");
        assert_eq!(answer.push("more code\n"), None, "an empty line within code ends nothing");
        let code = answer.push("```\n\nlast").unwrap();
        assert!(code.contains("code") && code.contains("more code"), "{code}");
        assert_eq!(answer.end().unwrap(), "\nlast\n");
        assert_eq!(answer.end(), None);
    }

    #[test]
    fn elsewhere_an_answer_is_written_when_it_is_whole_and_never_if_it_is_taken_back() {
        let mut answer = Answer::new(None, false);
        assert_eq!(answer.push("**draft**\n\nmore\n\n"), None);
        assert!(!answer.retract());
        assert_eq!(answer.push("The **answer**.\n\n"), None);
        assert_eq!(answer.end().unwrap(), "The **answer**.\n");
        assert_eq!(answer.push("Another\tone."), None);
        assert_eq!(answer.end().unwrap(), "\nAnother\tone.\n");
        answer.begin();
        answer.push("First again.");
        assert_eq!(answer.end().unwrap(), "First again.\n");
    }

    #[test]
    fn what_was_shown_and_is_taken_back_is_known() {
        let mut answer = Answer::new(Some(60), false);
        answer.push("Shown.\n\nNot yet");
        assert!(answer.retract());
        assert!(!answer.retract());
        assert_eq!(answer.end(), None);
    }

    #[test]
    fn no_control_character_of_a_model_reaches_a_terminal() {
        let hostile = "\u{1b}[31mred\u{1b}]0;title\u{7}\r\u{202e}\u{8}\u{9b}2J";
        for width in [Some(60), None] {
            let mut answer = Answer::new(width, false);
            answer.push(hostile);
            let text = answer.end().unwrap();
            assert!(text.contains("red"), "{text:?}");
            let acts = |c: char| c != '\n' && !tollgate_contract::text::is_plain(c);
            assert!(!text.contains(acts), "{text:?}");
        }
    }
}
