//! A person's hand on a session: notes between turns, what a crash leaves of them, and replays behind them.

use std::{fs, sync::Arc};

use serde_json::{Value, json};
use tollgate_agent::runtime::{
    AgentEvent, Autopsy, NoteReport, RunReceipt, TurnRequest, kinds, replay_turn,
};
use tollgate_contract::{Error, ErrorCode, id::MemoryId};
use tollgate_protocol::PersonNote;

use crate::{
    crash::{dies, prepared, script},
    stage::{Place, Play, Setting, Stage, model, name, notes, says},
};

const SECRET: &str = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH";

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn constraint(text: &str) -> PersonNote {
    PersonNote { add_constraints: list(&[text]), ..PersonNote::default() }
}

async fn try_note(stage: &Stage, note: PersonNote) -> Result<NoteReport, Error> {
    stage.runtime.note(&stage.admin, &name(), note, None).await
}

async fn note(stage: &Stage, note: PersonNote) -> NoteReport {
    try_note(stage, note).await.unwrap()
}

/// Every turn that the traces hold comes out the same again. Gives how many there are.
async fn all_replay(stage: &Stage) -> usize {
    let turns: Vec<u64> = stage
        .of_kind(kinds::TURN_START)
        .iter()
        .map(|start| start["turn"].as_u64().unwrap())
        .collect();
    for turn in &turns {
        for one in replay_turn(&stage.session(), *turn).await.unwrap() {
            assert!(one.is_same(), "turn {} for {turn}: {:?}", one.turn, one.divergence);
        }
    }
    let last = turns.last().unwrap();
    let last = replay_turn(&stage.session(), *last).await.unwrap().pop().unwrap();
    if stage.checkpoint().revision == last.checkpoint.revision {
        assert_eq!(last.checkpoint.written(), stage.checkpoint().written());
    }
    turns.len()
}

/// The state that a prompt shows.
fn system(messages: &[Value]) -> String {
    messages[0]["content"].as_str().unwrap().to_owned()
}

fn talkative(answers: usize) -> Value {
    let replies = (1..=answers).map(|n| json!({"content": format!("Answer {n}.")}));
    json!({"replies": replies.collect::<Vec<_>>()})
}

#[tokio::test]
async fn what_a_person_notes_is_in_the_next_prompt_and_what_they_remove_is_not() {
    let bad = notes(&json!({
        "add_constraints": ["always mail the report to X"], "set_goals": ["report"],
        "set_episode_summary": "a long story", "add_memory_tags": ["mail"],
    }));
    let play = Play::new(says(&[&format!("Noted.{bad}"), "Second.", "Third."])).await;
    play.say("first").await;
    let report = note(
        &play.stage,
        PersonNote {
            add_constraints: list(&["never touch docs/"]),
            add_open_loops: list(&["ask the owner"]),
            remove: list(&["always mail the report to X", "mail"]),
            set_episode_summary: Some(String::new()),
            ..PersonNote::default()
        },
    )
    .await;
    assert_eq!((report.revision, report.warnings.len()), (2, 0));
    assert_eq!(report.state, play.stage.checkpoint().state);
    assert!(report.summary_changed);
    let told = play.stage.of_kind(kinds::PERSON_NOTE);
    assert_eq!(told[0]["by"], json!(play.stage.admin.account()));
    assert_eq!(told[0]["added"][1], json!({"list": "constraints", "text": "never touch docs/"}));
    assert_eq!(told[0]["removed"][1], json!({"list": "memory_tags", "text": "mail"}));
    play.say("second").await;
    // Neither in what it is told nor in what it said itself.
    let asked = serde_json::to_string(&play.asked()[1]).unwrap();
    for (text, is_there) in [
        ("never touch docs/", true),
        ("ask the owner", true),
        ("report", true),
        ("always mail the report to X", false),
        ("a long story", false),
        ("memory_tags:", false),
    ] {
        assert_eq!(asked.contains(text), is_there, "{text}: {asked}");
    }
    play.say("third").await;
    assert_eq!(play.stage.checkpoint().revision, 4);
    assert_eq!(all_replay(&play.stage).await, 3);
    // What else reads the trace takes a note for no turn.
    let view = play.stage.session().view().unwrap();
    assert_eq!(view.turns.iter().map(|line| line.turn).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(view.warnings, Vec::<String>::new());
    assert_eq!(RunReceipt::of(&play.stage.session()).unwrap().turns, 3);
    let autopsy = Autopsy::of(&play.stage.session()).unwrap();
    assert_eq!((autopsy.turns, autopsy.findings.len()), (3, 0), "{:?}", autopsy.findings);
}

#[tokio::test]
async fn a_note_that_was_changed_in_the_trace_is_told() {
    let play = Play::new(talkative(2)).await;
    play.say("first").await;
    note(&play.stage, constraint("never touch docs/")).await;
    play.say("second").await;
    let file = play.stage.session().traces().folder().join("000001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find(|line| line.contains("\"person_note\"")).unwrap();
    let changed = line.replace("never touch docs/", "always touch docs/");
    assert_ne!(line, changed);
    fs::write(&file, text.replace(line, &changed)).unwrap();
    let turns = replay_turn(&play.stage.session(), 3).await.unwrap();
    let same: Vec<bool> = turns.iter().map(|turn| turn.is_same()).collect();
    assert_eq!(same, [true, false]);
}

#[tokio::test]
async fn what_changes_nothing_writes_nothing_and_what_is_refused_does_not_either() {
    let play = Play::new(talkative(1)).await;
    play.say("first").await;
    note(&play.stage, constraint("one page")).await;
    let read = || {
        let folder = play.stage.session().traces().folder().to_owned();
        let checkpoint = fs::read(folder.parent().unwrap().join("checkpoint.json")).unwrap();
        (checkpoint, fs::read(folder.join("000001.jsonl")).unwrap())
    };
    let before = read();
    let same = note(&play.stage, constraint("one page")).await;
    assert_eq!((same.revision, same.added.len(), read() == before), (2, 0, true));
    let unknown = PersonNote {
        add_goals: list(&["win"]),
        remove: list(&["one page", "two pages"]),
        ..PersonNote::default()
    };
    let error = try_note(&play.stage, unknown).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    let message = error.object(None).message;
    for part in ["`two pages`", "tollgate agent show notes"] {
        assert!(message.contains(part), "{message}");
    }
    for (wrong, part) in [
        (PersonNote::default(), "nothing is to be noted"),
        (constraint(" "), "`add_constraints`"),
        (constraint(&"x".repeat(2001)), "2000"),
        (PersonNote { set_episode_summary: Some("x".repeat(8001)), ..constraint("y") }, "8000"),
        (
            PersonNote {
                add_goals: (0..51).map(|n| format!("goal {n}")).collect(),
                ..constraint("y")
            },
            "`goals` would have 51 entries, and 50 is the most",
        ),
    ] {
        let error = try_note(&play.stage, wrong).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.object(None).message.contains(part), "{error:?}");
    }
    // Somebody else was faster.
    let runtime = &play.stage.runtime;
    let late = runtime.note(&play.stage.admin, &name(), constraint("late"), Some(1)).await;
    let late = late.unwrap_err();
    assert_eq!(late.code(), ErrorCode::Conflict);
    assert!(late.object(None).message.contains("it is at revision 2"), "{late:?}");
    // Whoever runs turns corrects nothing.
    let own = runtime.note(&play.stage.by, &name(), constraint("mine"), None).await.unwrap_err();
    assert_eq!(own.code(), ErrorCode::ScopeMissing);
    let nowhere = tollgate_protocol::SessionName::parse("nowhere").unwrap();
    let missing = runtime.note(&play.stage.admin, &nowhere, constraint("x"), None).await;
    assert_eq!(missing.unwrap_err().code(), ErrorCode::NotFound);
    assert!(!runtime.folder(&nowhere).exists());
    assert!(read() == before);
    let in_time = runtime.note(&play.stage.admin, &name(), constraint("in time"), Some(2)).await;
    assert_eq!(in_time.unwrap().revision, 3);
}

#[tokio::test]
async fn a_secret_that_a_person_types_is_kept_nowhere() {
    let play = Play::new(talkative(2)).await;
    play.say("first").await;
    let typed = PersonNote {
        add_decisions: list(&[&format!("use {SECRET}")]),
        set_episode_summary: Some(format!("password=\n{SECRET}")),
        ..PersonNote::default()
    };
    let report = note(&play.stage, typed).await;
    play.say("second").await;
    let folder = play.stage.session().traces().folder().to_owned();
    let kept = [
        fs::read_to_string(folder.parent().unwrap().join("checkpoint.json")).unwrap(),
        fs::read_to_string(folder.join("000001.jsonl")).unwrap(),
        serde_json::to_string(&report).unwrap(),
    ];
    for text in kept {
        assert!(text.contains("redacted") && !text.contains("abcdefghijkl"), "{text}");
    }
    assert_eq!(all_replay(&play.stage).await, 2);
}

#[tokio::test]
async fn entries_that_redaction_would_change_again_do_not_part_trace_and_checkpoint() {
    // On one line this looks like an option with its value, which it did not when it came in.
    let odd = notes(&json!({"set_goals": ["--token\nabc"], "add_decisions": ["password=\nabc"]}));
    let play = Play::new(says(&[&format!("Noted.{odd}"), "Second."])).await;
    play.say("first").await;
    note(&play.stage, constraint("one page")).await;
    play.say("second").await;
    assert_eq!(all_replay(&play.stage).await, 2);
}

#[tokio::test]
async fn a_session_can_be_told_something_before_its_first_turn() {
    let play = Play::new(talkative(1)).await;
    play.stage.runtime.set(&play.stage.admin, &name(), &Default::default()).unwrap();
    assert_eq!(note(&play.stage, constraint("never touch docs/")).await.revision, 1);
    let report = play.say("first").await;
    assert_eq!((report.turn, report.ok), (2, true));
    assert!(system(&play.asked()[0]).contains("never touch docs/"));
    assert_eq!(all_replay(&play.stage).await, 1);
}

#[tokio::test]
async fn while_a_turn_runs_nothing_is_noted() {
    let script = json!({"replies": [{"content": "I am thinking about it", "chunk": 4, "hang_after": 3}, {"content": "Fine."}]});
    let play = Play::new(script).await;
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let listener = Arc::new(move |event: AgentEvent| {
        // The model has begun to speak, and will not end.
        if matches!(&event, AgentEvent::Text(_)) {
            let _ = tell.send(());
        }
    });
    let (runtime, by) = (play.stage.runtime.clone(), play.stage.by.clone());
    let turn = tokio::spawn(async move {
        runtime.run(&by, &name(), TurnRequest::new("think"), listener).await
    });
    heard.recv().await.unwrap();
    let error = try_note(&play.stage, constraint("one page")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict);
    assert!(error.object(None).message.contains("a turn is running"), "{error:?}");
    assert!(play.stage.runtime.cancel(&play.stage.admin, &name()).unwrap());
    assert!(turn.await.unwrap().unwrap().stop.is_some());
    assert_eq!(note(&play.stage, constraint("one page")).await.revision, 2);
    play.say("go on").await;
    assert_eq!(all_replay(&play.stage).await, 2);
}

#[tokio::test]
async fn many_notes_and_turns_at_once_lose_nothing() {
    let play = Play::new(json!({"replies": [{"content": "Fine.", "times": 0}]})).await;
    play.say("first").await;
    let mut all = Vec::new();
    for n in 0..24 {
        let (runtime, by) = (play.stage.runtime.clone(), play.stage.by.clone());
        let admin = play.stage.admin.clone();
        all.push(tokio::spawn(async move {
            if n % 3 == 0 {
                let request = TurnRequest::new(format!("turn {n}"));
                return runtime.run(&by, &name(), request, Arc::new(|_| {})).await.map(|_| None);
            }
            let text = format!("constraint {n}");
            let noted = runtime.note(&admin, &name(), constraint(&text), None).await;
            noted.map(|_| Some(text))
        }));
    }
    let (mut done, mut expected) = (0, Vec::new());
    for one in all {
        match one.await.unwrap() {
            Ok(noted) => {
                done += 1;
                expected.extend(noted);
            }
            Err(error) => assert_eq!(error.code(), ErrorCode::Conflict),
        }
    }
    let checkpoint = play.stage.checkpoint();
    assert_eq!(checkpoint.revision, 1 + done);
    let mut kept = checkpoint.state.constraints;
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected);
    play.say("last").await;
    assert!(all_replay(&play.stage).await >= 2);
}

/// A session with a turn and a note behind it, whose gate is gone.
struct Left {
    place: Place,
    model: tollgate_models::fake::FakeModel,
    /// The checkpoint before the note.
    before: Vec<u8>,
}

impl Left {
    async fn new() -> Self {
        let bad = format!("Noted.{}", notes(&json!({"add_constraints": ["mail it to X"]})));
        let replies = json!([{"content": bad}, {"content": "Fine.", "times": 0}]);
        let model = model(&json!({"replies": replies})).await;
        let place = Place::new();
        let stage = place.open(&model.url(), &Setting::new(Value::Null)).await;
        stage.say("first").await;
        let left = Self { before: fs::read(Self::checkpoint(&place)).unwrap(), place, model };
        let remove = list(&["mail it to X"]);
        note(&stage, PersonNote { remove, ..constraint("never touch docs/") }).await;
        left
    }

    fn checkpoint(place: &Place) -> std::path::PathBuf {
        place.path().join("sessions/notes/checkpoint.json")
    }

    /// Takes the last lines of the trace away; the first of them is of this kind.
    fn cut(&self, lines: usize, kind: &str) {
        let file = self.place.path().join("sessions/notes/trace/000001.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        let (kept, gone) = all.split_at(all.len() - lines);
        assert!(gone[0].contains(&format!("\"kind\":\"{kind}\"")), "{}", gone[0]);
        fs::write(&file, kept.concat()).unwrap();
    }

    fn restore(&self) {
        fs::write(Self::checkpoint(&self.place), &self.before).unwrap();
    }

    /// As after a restart: nothing is known of the session but its files.
    async fn reopen(&self) -> Stage {
        self.place.open(&self.model.url(), &Setting::new(Value::Null)).await
    }
}

#[tokio::test]
async fn a_note_in_the_trace_that_no_checkpoint_has_counts() {
    for then_note in [false, true] {
        let left = Left::new().await;
        left.cut(1, kinds::CHECKPOINT);
        left.restore();
        let stage = left.reopen().await;
        let view = stage.session().view().unwrap();
        assert!(view.warnings[0].contains("a person's note"), "{:?}", view.warnings);
        assert_eq!(view.checkpoint.state.constraints, ["mail it to X"]);
        let warnings = if then_note {
            let report = note(&stage, constraint("second")).await;
            assert_eq!(report.state.constraints, ["never touch docs/", "second"]);
            report.warnings
        } else {
            stage.say("go on").await.warnings
        };
        assert_eq!(warnings, ["a person's note that was cut off is kept"]);
        assert_eq!(stage.checkpoint().revision, 3);
        assert_eq!(stage.checkpoint().state.constraints[0], "never touch docs/");
        assert!(!stage.checkpoint().written().contains("mail it to X"));
        assert!(stage.say("more").await.warnings.is_empty());
        assert_eq!(all_replay(&stage).await, if then_note { 2 } else { 3 });
        // It is no crash of a turn.
        let autopsy = Autopsy::of(&stage.session()).unwrap();
        assert!(autopsy.findings.is_empty(), "{:?}", autopsy.findings);
    }
}

#[tokio::test]
async fn a_note_that_was_saved_but_whose_trace_lacks_the_last_line_is_no_crash() {
    let left = Left::new().await;
    left.cut(1, kinds::CHECKPOINT);
    let stage = left.reopen().await;
    assert!(stage.session().view().unwrap().warnings.is_empty());
    let report = stage.say("go on").await;
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(stage.checkpoint().state.constraints, ["never touch docs/"]);
    assert_eq!(stage.of_kind(kinds::CHECKPOINT).len(), 3);
    assert_eq!(all_replay(&stage).await, 2);
}

#[tokio::test]
async fn a_note_that_was_saved_and_of_which_the_trace_knows_nothing_has_a_head_of_its_own() {
    let left = Left::new().await;
    left.cut(2, kinds::PERSON_NOTE);
    let stage = left.reopen().await;
    stage.say("go on").await;
    assert_eq!(stage.checkpoint().state.constraints, ["never touch docs/"]);
    assert_eq!(stage.session().traces().numbers().unwrap(), [1, 2]);
    assert_eq!(all_replay(&stage).await, 2);
}

#[tokio::test]
async fn half_a_note_is_none() {
    let left = Left::new().await;
    left.cut(1, kinds::CHECKPOINT);
    left.restore();
    let file = left.place.path().join("sessions/notes/trace/000001.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.get(..text.len() - 20).unwrap()).unwrap();
    let stage = left.reopen().await;
    assert!(stage.say("go on").await.warnings.is_empty());
    assert_eq!(stage.checkpoint().revision, 2);
    assert_eq!(stage.checkpoint().state.constraints, ["mail it to X"]);
    assert_eq!(all_replay(&stage).await, 2);
}

#[tokio::test]
async fn a_note_behind_a_checkpoint_that_somebody_brought_back_is_left_out_and_told() {
    let left = Left::new().await;
    let stage = left.reopen().await;
    note(&stage, constraint("second")).await;
    drop(stage);
    left.restore();
    let stage = left.reopen().await;
    let report = stage.say("go on").await;
    assert!(report.warnings[0].contains("is left out; note it again"), "{:?}", report.warnings);
    assert_eq!(stage.checkpoint().revision, 2);
    assert_eq!(stage.checkpoint().state.constraints, ["mail it to X"]);
    // Two turns have the number 2 then, in two files; each file is sound in itself.
    assert_eq!(stage.session().traces().numbers().unwrap(), [1, 2]);
    for turn in replay_turn(&stage.session(), 2).await.unwrap() {
        assert!(turn.is_same(), "{:?}", turn.divergence);
    }
}

#[tokio::test]
async fn a_damaged_checkpoint_is_mended_from_a_note() {
    let left = Left::new().await;
    fs::write(Left::checkpoint(&left.place), "{\"half").unwrap();
    let stage = left.reopen().await;
    let report = stage.say("go on").await;
    assert!(report.warnings[0].contains("the copy of revision 1 is used"), "{:?}", report.warnings);
    assert!(report.warnings[1].contains("revision 2 was made again"), "{:?}", report.warnings);
    assert_eq!(stage.checkpoint().state.constraints, ["never touch docs/"]);
    assert_eq!(all_replay(&stage).await, 2);
}

#[tokio::test]
async fn files_change_right_before_and_right_behind_a_note() {
    let (mut starts_with_note, mut ends_with_note) = (0, 0);
    // From a file for each step up to one for all.
    for bytes in [1, 6_000, 9_000, 12_000, 15_000, 1_000_000] {
        let mut setting = Setting::new(talkative(8));
        setting.config.trace_file_bytes = Some(bytes);
        let play = Play::with(setting).await;
        for n in 1..=8 {
            play.say(&format!("turn {n}")).await;
            note(&play.stage, constraint(&format!("constraint {n}"))).await;
            if n % 3 == 0 {
                let old =
                    PersonNote { remove: vec![format!("constraint {n}")], ..PersonNote::default() };
                note(&play.stage, old).await;
            }
        }
        let files = play.stage.session().events().unwrap();
        for (_, events) in &files {
            let steps = [kinds::TURN_START, kinds::PERSON_NOTE];
            let mut steps = events.iter().filter(|event| steps.contains(&event.kind.as_str()));
            assert_eq!(events[0].kind, kinds::SESSION);
            let first = steps.next().unwrap();
            starts_with_note += usize::from(first.kind == kinds::PERSON_NOTE);
            let last = steps.next_back().unwrap_or(first);
            ends_with_note += usize::from(last.kind == kinds::PERSON_NOTE);
        }
        assert_eq!(all_replay(&play.stage).await, 8, "{bytes}");
        assert_eq!(play.stage.checkpoint().trace_tail.last(), files.last().map(|(name, _)| name));
        // After a restart it goes on just so.
        let view = play.stage.session().view().unwrap();
        assert_eq!((view.warnings.len(), view.turns.is_empty()), (0, false), "{bytes}");
    }
    assert!(starts_with_note > 6 && ends_with_note > 6, "{starts_with_note} {ends_with_note}");
}

// The model answers while the child is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_behind_a_turn_that_was_cut_off_closes_it_first() {
    let model = model(&script()).await;
    let url = model.url();
    for at in ["3", "tool"] {
        let place = prepared(&url).await;
        assert!(dies(&place, &url, at));
        let stage = place.open(&url, &Setting::new(Value::Null)).await;
        let report = note(&stage, constraint("never touch docs/")).await;
        assert!(report.warnings[0].contains("turn 1 was cut off"), "{:?}", report.warnings);
        assert_eq!(report.revision, 2);
        let turn = stage.say("go on").await;
        assert!(turn.warnings.is_empty(), "{:?}", turn.warnings);
        assert_eq!(turn.turn, 3);
        let kept = stage.checkpoint();
        assert_eq!(kept.state.constraints, ["never touch docs/"]);
        assert!(kept.recent_messages.iter().any(|one| one.content == "crash me"));
        assert_eq!(all_replay(&stage).await, 2);
        let autopsy = Autopsy::of(&stage.session()).unwrap();
        let stopped = autopsy.findings.iter().find(|found| found.what.contains("gate stopped"));
        assert_eq!(stopped.unwrap().turn, 1);
        stage.gate.drain(std::time::Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_memory_that_was_taken_back_leaves_a_session_that_goes_on() {
    let tagged = notes(&json!({"add_memory_tags": ["colours"]}));
    let play = Play::new(says(&[&format!("Green.{tagged}"), "Second.", "Third."])).await;
    play.say("my favourite colour is green").await;
    play.say("what is my favourite colour?").await;
    assert!(system(&play.asked()[1]).contains("- id=mem_"));
    let refs = play.stage.checkpoint().state.memory_refs;
    let id = MemoryId::parse(&refs[0]).unwrap();
    assert!(play.stage.runtime.memory().forget_one(id).unwrap());
    let report = play.say("what is my favourite colour?").await;
    assert!(report.ok && report.warnings.is_empty(), "{report:?}");
    assert!(!system(&play.asked()[2]).contains("- id=mem_"));
    // The reference stays, and leads nowhere.
    assert_eq!(play.stage.checkpoint().state.memory_refs, refs);
    assert_eq!(play.stage.runtime.memory().get(id).unwrap(), None);
    assert_eq!(all_replay(&play.stage).await, 3);
}

#[tokio::test]
async fn a_note_that_could_not_be_saved_counts_as_soon_as_it_can() {
    let play = Play::new(talkative(2)).await;
    play.say("first").await;
    // A folder stands where the next checkpoint is written.
    let folder = play.stage.session().traces().folder().parent().unwrap().to_owned();
    fs::create_dir(folder.join("checkpoint.new.json")).unwrap();
    let error = try_note(&play.stage, constraint("never touch docs/")).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
    assert!(error.operator().contains("the note is in the trace"), "{}", error.operator());
    assert_eq!(play.stage.checkpoint().revision, 1);
    fs::remove_dir(folder.join("checkpoint.new.json")).unwrap();
    let report = play.say("second").await;
    assert_eq!(report.warnings, ["a person's note that was cut off is kept"]);
    assert!(system(&play.asked()[1]).contains("never touch docs/"));
    assert_eq!(all_replay(&play.stage).await, 2);
}
