//! What must hold for any bytes whatever. The targets in `fuzz/` call these checks, and so
//! do property tests with raw and with damaged bytes, which run where no fuzzer is at hand.

use std::sync::LazyLock;

use serde_json::Value;
use tollgate_contract::{
    Caller, Identity, KeyFacts, KeyScope, Manifest, ManifestMode, Mode, Outcome, Surface,
    canonical::canonical,
    id::KeyId,
    input_hash, json,
    redact::{redact_text, redacted},
};
use tollgate_policy::{Format, Layers, PolicySet, Request, evaluate};
use tollgate_protocol::{
    BlockKind, Extracted, Extractor, Limits, NotesPatch, Piece, Plan, Prompt, Segment, State,
    rebuild,
};

/// Strict reading and the canonical form: every text is answered, and what is accepted has one form.
pub fn check_canonical(bytes: &[u8]) {
    let value = match json::parse(bytes) {
        Ok(value) => value,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    // What we accept, everybody accepts.
    assert!(serde_json::from_slice::<Value>(bytes).is_ok(), "accepted by strict reading alone");
    let form = canonical(&value);
    assert!(form.is_ok(), "a value that was read has a canonical form");
    let form = form.unwrap_or_default();
    let again = json::parse(form.as_bytes()).and_then(|value| canonical(&value));
    assert_eq!(again.as_ref(), Ok(&form), "the canonical form is its own");
    let hash = input_hash(&value);
    assert!(hash.is_ok());
    assert_eq!(hash, input_hash(&redacted(&value)), "redaction does not change the hash");
}

/// Redaction: nothing panics, twice is once, and no key of ours is left.
pub fn check_redaction(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let once = redact_text(&text).into_owned();
    assert_eq!(redact_text(&once), once, "redacting twice is redacting once");
    assert!(!holds_key(&once), "a key is left: {once}");
    if let Ok(value) = json::parse(bytes) {
        let once = redacted(&value).into_owned();
        assert_eq!(redacted(&once).as_ref(), &once, "redacting twice is redacting once");
        assert!(!any_text_holds_key(&once), "a key is left: {once}");
    }
}

/// The texts themselves are looked at: in JSON, a tab before `g_key_…` is written `\tg_key_…`.
fn any_text_holds_key(value: &Value) -> bool {
    match value {
        Value::String(text) => holds_key(text),
        Value::Array(items) => items.iter().any(any_text_holds_key),
        Value::Object(map) => {
            map.iter().any(|(key, value)| holds_key(key) || any_text_holds_key(value))
        }
        _ => false,
    }
}

/// Does `text` hold something that looks like a key of ours?
fn holds_key(text: &str) -> bool {
    let is_key_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    ["tg_key_", "tg_tok_"].iter().any(|prefix| {
        text.match_indices(prefix).any(|(at, _)| {
            let rest = text.as_bytes().iter().skip(at + prefix.len());
            rest.take_while(|b| is_key_byte(**b)).count() >= 6
        })
    })
}

/// Manifests: every text is answered, and what loads is served as something that loads.
pub fn check_manifest(bytes: &[u8]) {
    match Manifest::parse(bytes) {
        Ok(manifest) => {
            let served = serde_json::to_vec(&manifest.document(ManifestMode::Review));
            let again = served.map(|bytes| Manifest::parse(&bytes));
            assert!(matches!(again, Ok(Ok(again)) if again == manifest), "served as it was read");
        }
        Err(violations) => assert!(violations.iter().next().is_some()),
    }
}

/// Policies: every text is answered, what loads is written as something that loads, and every
/// decision under it ends in the step that decided.
pub fn check_policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for format in [Format::Json, Format::Toml] {
        let Ok(set) = PolicySet::parse(&text, format) else { continue };
        let written = serde_json::to_string(&set).unwrap_or_default();
        let again = PolicySet::parse(&written, Format::Json);
        assert_eq!(again.as_ref(), Ok(&set), "written as it was read");
        check_decisions(&set);
    }
}

/// Tools of every kind, those that trade included.
static MANIFEST: LazyLock<Option<Manifest>> =
    LazyLock::new(|| Manifest::parse(include_bytes!("../../../examples/markets.json")).ok());

fn check_decisions(set: &PolicySet) {
    let Some(manifest) = MANIFEST.as_ref() else { return };
    let caller = Caller {
        surface: Surface::Agent,
        mode: Mode::Live,
        identity: Identity::Key(KeyFacts {
            id: KeyId::from_parts(0, [0; 10]),
            name: "fuzz".to_owned(),
            owner: "fuzz".to_owned(),
            scopes: vec![KeyScope::Call],
            generation: 1,
        }),
    };
    for name in set.names() {
        let layers = Layers::of_server(set.server.clone()).with_key(set.named(name));
        for tool in manifest.entries() {
            let tool = tool.name.as_str();
            let request = Request { manifest, tool, caller: &caller, layers: &layers };
            let verdict = evaluate(&request, &Value::Object(serde_json::Map::new())).verdict;
            let steps = verdict.explain.steps();
            let passed = steps.iter().filter(|step| step.outcome() == Outcome::Pass).count();
            assert!(passed + 1 >= steps.len(), "only the last step may not pass");
            assert!(steps.iter().all(|step| !step.because().is_empty()));
        }
    }
}

/// The extractor: however an answer is cut into pieces, the same comes of it, no mark is ever shown, and what is kept
/// of it can be read again as the same.
pub fn check_extractor(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (shown, whole) = extracted(std::iter::once(text.as_ref()));
    assert_eq!(shown, whole.visible(), "what is streamed is what is seen");
    for kind in [BlockKind::Notes, BlockKind::ToolCalls] {
        assert!(!shown.contains(kind.begin()) && !shown.contains(kind.end()), "a mark is shown");
    }
    // Cut where the bytes themselves say.
    let size = usize::from(bytes.first().copied().unwrap_or(0) % 13) + 1;
    let chars: Vec<char> = text.chars().collect();
    let chunks: Vec<String> = chars.chunks(size).map(|chunk| chunk.iter().collect()).collect();
    assert_eq!(extracted(chunks.iter().map(String::as_str)), (shown, whole.clone()));
    let kept = whole.redacted();
    let (_, again) = extracted(std::iter::once(rebuild(&kept.segments).as_str()));
    assert_eq!(again.segments, kept.segments, "what is kept is read again as the same");
    let mut plan = Plan::default();
    for segment in &whole.segments {
        if let Segment::Json { kind: BlockKind::ToolCalls, payload } = segment {
            plan.add_block(payload);
        }
    }
}

fn extracted<'a>(chunks: impl Iterator<Item = &'a str>) -> (String, Extracted) {
    let mut extractor = Extractor::default();
    let mut shown = String::new();
    let mut show = |pieces: Vec<Piece>| {
        for piece in pieces {
            match piece {
                Piece::Text(text) => shown.push_str(&text),
                Piece::Retract => shown.clear(),
                Piece::Reasoning(_) => {}
            }
        }
    };
    for chunk in chunks {
        show(extractor.feed(chunk));
    }
    let (pieces, extracted) = extractor.finish();
    show(pieces);
    (shown, extracted)
}

/// Patches of the state, one a line: whatever they say, the state stays within its bounds, constraints are never
/// dropped, and the prompt made of it has no border but its own.
pub fn check_state_patch(bytes: &[u8]) {
    let limits = Limits { entry: 40, summary: 60, goals: 3, decisions: 3, ..Limits::default() };
    let mut state = State::default();
    for line in bytes.split(|byte| *byte == b'\n').take(16) {
        let Ok(payload) = json::parse(line) else { continue };
        let before = state.constraints.clone();
        let (patch, _) = NotesPatch::read(&payload, &limits);
        patch.apply(&mut state, &limits);
        let _ = patch.actions();
        assert!(state.constraints.starts_with(&before), "a constraint was dropped");
        assert!(state.goals.len() <= limits.goals && state.decisions.len() <= limits.decisions);
        assert!(state.episode_summary.chars().count() <= limits.summary);
        let lists = [&state.goals, &state.open_loops, &state.decisions, &state.constraints];
        for entry in lists.into_iter().flatten() {
            assert!(entry.chars().count() <= limits.entry && !entry.contains(char::is_control));
        }
    }
    let system = Prompt { state: Some(&state), ..Prompt::default() }.system().text;
    let borders = system.lines().filter(|line| line.trim_start().starts_with("===")).count();
    assert_eq!((borders, system.contains("<<<")), (2, false), "{system}");
}
