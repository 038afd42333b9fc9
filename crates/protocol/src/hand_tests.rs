use super::*;

fn state() -> State {
    State {
        goals: vec!["ship".into()],
        open_loops: vec!["spelling".into(), "both".into()],
        decisions: vec!["mail it to X".into(), "both".into()],
        constraints: vec!["one page".into()],
        episode_summary: "so far".into(),
        memory_tags: vec!["reports".into()],
        ..State::default()
    }
}

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn entry(list: StateList, text: &str) -> NoteEntry {
    NoteEntry { list, text: text.to_owned() }
}

fn apply(note: &PersonNote) -> Result<Noted, PersonNoteError> {
    note.apply(&state(), &Limits::default())
}

#[test]
fn entries_come_and_go_and_are_told() {
    let noted = apply(&PersonNote {
        add_goals: list(&["win"]),
        add_open_loops: list(&["spelling", "ask"]),
        add_decisions: list(&["blue"]),
        add_constraints: list(&["never touch docs/", "never touch docs/"]),
        remove: list(&["mail it to X", "both", "both", "reports"]),
        set_episode_summary: Some("two\nlines".into()),
    })
    .unwrap();
    assert_eq!(
        noted.state,
        State {
            goals: list(&["ship", "win"]),
            open_loops: list(&["spelling", "ask"]),
            decisions: list(&["blue"]),
            constraints: list(&["one page", "never touch docs/"]),
            episode_summary: "two\nlines".into(),
            memory_tags: Vec::new(),
            ..State::default()
        }
    );
    assert_eq!(
        noted.added,
        [
            entry(StateList::Goals, "win"),
            entry(StateList::OpenLoops, "ask"),
            entry(StateList::Decisions, "blue"),
            entry(StateList::Constraints, "never touch docs/"),
        ]
    );
    assert_eq!(
        noted.removed,
        [
            entry(StateList::Decisions, "mail it to X"),
            entry(StateList::OpenLoops, "both"),
            entry(StateList::Decisions, "both"),
            entry(StateList::MemoryTags, "reports"),
        ]
    );
    assert_eq!(noted.summary.as_deref(), Some("two\nlines"));
}

#[test]
fn what_is_there_already_is_no_change() {
    let note = PersonNote {
        add_constraints: list(&["one page", "  one \n page "]),
        set_episode_summary: Some("so far".into()),
        ..PersonNote::default()
    };
    let noted = apply(&note).unwrap();
    assert!(!noted.is_change(), "{noted:?}");
    assert_eq!(noted.state, state());
    let cleared = PersonNote { set_episode_summary: Some(" ".into()), ..PersonNote::default() };
    let cleared = apply(&cleared).unwrap();
    assert_eq!((cleared.is_change(), cleared.state.episode_summary.as_str()), (true, ""));
}

#[test]
fn words_that_nobody_noted_are_named_and_nothing_counts() {
    let note = PersonNote {
        add_goals: list(&["win"]),
        remove: list(&["one page", "One page"]),
        ..PersonNote::default()
    };
    assert_eq!(apply(&note), Err(PersonNoteError::Unknown("One page".into())));
    assert_eq!(apply(&PersonNote::default()), Err(PersonNoteError::Nothing));
    let blank = PersonNote { remove: list(&[""]), ..PersonNote::default() };
    assert_eq!(apply(&blank), Err(PersonNoteError::Unknown(String::new())));
}

#[test]
fn an_entry_that_a_terminal_has_broken_into_lines_is_found() {
    let note = PersonNote { remove: list(&["mail it\n    to X"]), ..PersonNote::default() };
    assert_eq!(apply(&note).unwrap().removed, [entry(StateList::Decisions, "mail it to X")]);
    // One that is held in exactly these words comes first, whatever they look like on one line.
    let odd = State { goals: list(&["a  b", "a b"]), ..State::default() };
    let note = PersonNote { remove: list(&["a  b"]), ..PersonNote::default() };
    assert_eq!(note.apply(&odd, &Limits::default()).unwrap().state.goals, ["a b"]);
}

#[test]
fn secrets_of_a_person_are_not_kept_and_can_be_taken_away_by_what_was_typed() {
    let typed = "the password=hunter2hunter2 is\nold";
    let note = PersonNote {
        add_decisions: list(&[typed]),
        set_episode_summary: Some("so far:\npassword=abcdefgh12345678".into()),
        ..PersonNote::default()
    };
    let noted = apply(&note).unwrap();
    assert!(!format!("{noted:?}").contains("hunter2"), "{noted:?}");
    assert!(!format!("{noted:?}").contains("abcdefgh"), "{noted:?}");
    let again = PersonNote { remove: list(&[typed]), ..PersonNote::default() };
    let again = again.apply(&noted.state, &Limits::default()).unwrap();
    assert_eq!(again.state.decisions, state().decisions);
}

#[test]
fn what_would_be_cut_or_dropped_for_a_model_is_refused() {
    let limits = Limits { entry: 10, summary: 12, goals: 2, decisions: 3, ..Limits::default() };
    let refused = |note: PersonNote| note.apply(&state(), &limits).unwrap_err();
    let goals =
        |texts: &[&str]| refused(PersonNote { add_goals: list(texts), ..PersonNote::default() });
    assert_eq!(goals(&[" \n "]), PersonNoteError::Empty { field: "add_goals" });
    assert_eq!(
        goals(&["elf letters"]),
        PersonNoteError::TooLong { field: "add_goals", given: 11, most: 10 }
    );
    assert_eq!(goals(&["a", "b"]), PersonNoteError::Full { list: "goals", given: 3, most: 2 });
    let decisions = PersonNote { add_decisions: list(&["a", "b"]), ..PersonNote::default() };
    let full = PersonNoteError::Full { list: "decisions", given: 4, most: 3 };
    assert_eq!(refused(decisions.clone()), full);
    // What goes makes room.
    let swapped = PersonNote { remove: list(&["both"]), ..decisions };
    assert_eq!(
        swapped.apply(&state(), &limits).unwrap().state.decisions,
        ["mail it to X", "a", "b"]
    );
    let long = PersonNote { set_episode_summary: Some("x".repeat(13)), ..PersonNote::default() };
    assert_eq!(
        refused(long),
        PersonNoteError::TooLong { field: "set_episode_summary", given: 13, most: 12 }
    );
    let many: Vec<String> = (0..=MOST_ENTRIES).map(|n| n.to_string()).collect();
    let many = PersonNote { remove: many, ..PersonNote::default() };
    assert_eq!(
        refused(many),
        PersonNoteError::TooMany { field: "remove", given: 201, most: MOST_ENTRIES }
    );
}
