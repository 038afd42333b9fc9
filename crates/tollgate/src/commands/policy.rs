//! `tollgate policy check`: what a policy file says about one call, step by step.

use std::{fmt::Write, io, path::Path};

use serde_json::json;
use tollgate_contract::{
    Caller, ContractTool, Decision, Identity, KeyFacts, KeyScope, Layer, Manifest, Outcome, Quoted,
    id::KeyId,
    text::{list, nearest},
};
use tollgate_policy::{Evaluation, Format, Layers, PolicySet, Request, Selector, evaluate};

use crate::{
    cli::CheckArgs,
    config::Config,
    exit::Exit,
    output::{Failure, Output, wants_colour, wrap},
    source,
};

pub(crate) fn check(args: &CheckArgs, output: &Output) -> Result<Exit, Failure> {
    if source::is_stdin(&args.file) && args.input == "-" {
        return Err(Failure::usage(
            "only one of the policy and the input can come from the standard input".to_owned(),
        ));
    }
    let Some(tool) = &args.tool else { return super::rules::check(&args.file, output) };
    let set = policies(&args.file)?;
    let manifest = super::manifest(args.manifest.as_deref())?;
    let input = super::input(&args.input)?;
    let spec = KeySpec::parse(args.caller.as_deref(), &set)?;
    let (identity, layers) = spec.resolve(&set)?;
    let caller = Caller { surface: args.surface.into(), mode: args.mode.into(), identity };
    let request = Request { manifest: &manifest, tool, caller: &caller, layers: &layers };
    let evaluation = evaluate(&request, &input);

    let error = evaluation.error.as_ref().map(|error| error.object(None));
    let notes = notes(&layers, &manifest);
    let data = json!({
        "verdict": evaluation.verdict,
        "inputHash": evaluation.input_hash,
        "error": error,
        "notes": notes,
    });
    let written = output.success(&data, || steps(&evaluation, &notes));
    Ok(match (written, evaluation.verdict.decision) {
        (Exit::Ok, Decision::Deny) => Exit::Denied,
        (Exit::Ok, Decision::Pending) => Exit::Pending,
        (written, _) => written,
    })
}

/// Reads a policy file, or the policies of a configuration.
pub(super) fn policies(file: &Path) -> Result<PolicySet, Failure> {
    let text = source::read_text(file)?;
    let has = |wanted: &str| file.extension().is_some_and(|own| own.eq_ignore_ascii_case(wanted));
    let is_toml = has("toml") || (!has("json") && !text.trim_start().starts_with('{'));
    let format = if is_toml { Format::Toml } else { Format::Json };
    let is_config = is_toml
        && toml::from_str::<toml::Table>(&text).is_ok_and(|table| table.contains_key("daemon"));
    let set = if is_config {
        Config::parse(&text).map(|config| config.policies())
    } else {
        PolicySet::parse(&text, format)
    };
    set.map_err(|error| Failure::policy(&source::name(file), &text, &error))
}

/// Who calls, as the command line says it.
struct KeySpec {
    /// The policy that the key carries; `None` for a call without a key.
    key: Option<String>,
    scopes: Vec<KeyScope>,
    session: Option<String>,
    call: Option<String>,
}

impl KeySpec {
    fn parse(text: Option<&str>, set: &PolicySet) -> Result<Self, Failure> {
        let text = text.unwrap_or_else(|| default_caller(set));
        if text.contains("tg_key_") || text.contains("tg_tok_") {
            return Err(Failure::usage(
                "a key on the command line can be read by every process of this machine".to_owned(),
            )
            .with_help(
                "--as takes the name of a policy, not a key; see `tollgate policy check --help`",
            ));
        }
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let mut spec = Self {
            key: (name != "anonymous").then(|| name.to_owned()),
            scopes: vec![KeyScope::Call],
            session: None,
            call: None,
        };
        let mut seen = Vec::new();
        for part in parts {
            let field = part.split('=').next().unwrap_or_default();
            if seen.contains(&field) {
                return Err(Failure::usage(format!("--as says {} twice", Quoted::new(field))));
            }
            seen.push(field);
            match part.split_once('=') {
                Some(("scopes", words)) => spec.scopes = scopes(words)?,
                Some(("session", name)) => spec.session = Some(name.to_owned()),
                Some(("call", name)) => spec.call = Some(name.to_owned()),
                _ => {
                    return Err(Failure::usage(format!(
                        "--as does not know {}",
                        Quoted::new(part)
                    ))
                    .with_help(
                        match nearest(field, ["scopes", "session", "call"]) {
                            Some(near) => format!("did you mean `{near}=`?"),
                            None => "it takes NAME, then scopes=, session= or call=".to_owned(),
                        },
                    ));
                }
            }
        }
        Ok(spec)
    }

    fn resolve(self, set: &PolicySet) -> Result<(Identity, Layers), Failure> {
        let named = |name: &str| {
            set.named(name).ok_or_else(|| Failure::not_found("policy", name, set.names()))
        };
        let mut layers = Layers::of_server(set.server.clone());
        let identity = match &self.key {
            None => Identity::Anonymous,
            Some(name) => {
                layers = layers.with_key(Some(named(name)?));
                // No key is made here; the id only has to have the shape of one.
                let id = KeyId::from_parts(0, [0; 10]);
                Identity::Key(KeyFacts {
                    id,
                    name: name.clone(),
                    owner: "local".to_owned(),
                    scopes: self.scopes,
                    generation: 1,
                })
            }
        };
        if let Some(name) = &self.session {
            layers = layers.with_session(named(name)?);
        }
        if let Some(name) = &self.call {
            layers = layers.with_call(named(name)?);
        }
        Ok((identity, layers))
    }
}

/// A file with one policy is about the key that carries it; else a key without a policy of its own.
fn default_caller(set: &PolicySet) -> &'static str {
    if set.policies.contains_key("key") { "key" } else { "readonly" }
}

fn scopes(words: &str) -> Result<Vec<KeyScope>, Failure> {
    let read = |word: &str| {
        KeyScope::parse(word).ok_or_else(|| {
            Failure::not_found("scope", word, KeyScope::ALL.iter().map(|scope| scope.as_str()))
                .with_help(format!("the scopes are {}", list(KeyScope::ALL)))
        })
    };
    words.split('+').filter(|word| !word.is_empty()).map(read).collect()
}

/// Entries that mean nothing in this manifest. A misspelt name in `deny` denies nothing, and nobody is told
/// unless it is here.
fn notes(layers: &Layers, manifest: &Manifest) -> Vec<String> {
    let is_any = |means: &dyn Fn(&ContractTool) -> bool| manifest.entries().iter().any(means);
    let mut notes = Vec::new();
    let mut note = |layer: Layer, field: &str, entry: &dyn std::fmt::Display| {
        notes.push(format!(
            "`{field}` of the {layer} policy names `{entry}`, which means nothing in this manifest"
        ));
    };
    for (layer, policy) in layers.iter() {
        let lists = [("deny", Some(&policy.deny)), ("allow", policy.allow.as_ref())];
        for (field, list) in lists {
            let by_name = list
                .into_iter()
                .flatten()
                .filter(|entry| !matches!(entry, Selector::Permission(_)));
            for entry in by_name.filter(|entry| !is_any(&|tool| entry.refuses(tool))) {
                note(layer, field, entry);
            }
        }
        for pattern in policy.ask.iter().filter_map(|rule| rule.tool.as_ref()) {
            if !is_any(&|tool| pattern.matches(&tool.name)) {
                note(layer, "ask", pattern);
            }
        }
    }
    notes
}

/// The steps as a list, and the answer.
fn steps(evaluation: &Evaluation, notes: &[String]) -> String {
    let colour = wants_colour(&io::stdout());
    let paint = |code: &str, text: &str| {
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    let mut text = String::new();
    for record in evaluation.verdict.explain.steps() {
        let mark = match record.outcome() {
            Outcome::Pass => paint("32", "✓"),
            Outcome::Refuse => paint("31", "✗"),
            Outcome::Ask => paint("33", "?"),
        };
        let because = wrap(&record.because(), 20);
        let _ = writeln!(text, "{mark} {:<17} {because}", record.step().as_str());
    }
    for note in notes {
        let _ = writeln!(text, "{} {:<17} {}", paint("33", "!"), "note", wrap(note, 20));
    }
    text.push('\n');
    let decision = evaluation.verdict.decision;
    let _ = match (&evaluation.error, decision) {
        (Some(error), _) => writeln!(
            text,
            "{}  {}\n{}\n`tollgate explain {}` says what to do.",
            paint("1;31", decision.as_str()),
            error.code(),
            wrap(&error.operator(), 0),
            error.code()
        ),
        (None, Decision::Pending) => writeln!(
            text,
            "{}  a person must answer before it happens",
            paint("1;33", decision.as_str())
        ),
        (None, _) => writeln!(text, "{}", paint("1;32", decision.as_str())),
    };
    text
}
