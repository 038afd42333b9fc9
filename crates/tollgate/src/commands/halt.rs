//! `tollgate halt` and `tollgate resume`: stopping everything or one thing, and letting it go on.

use serde_json::{Map, Value};
use tollgate_contract::text::for_terminal;

use crate::{
    cli::HaltArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
};

pub(crate) fn run(args: HaltArgs, resumes: bool, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let mut body = Map::new();
    let texts = [
        ("agent", args.agent),
        ("key", args.key),
        ("tool", args.tool),
        ("identity", args.identity),
        ("workload", args.workload),
        ("scope", args.scope),
        ("pool", args.pool),
        ("reason", args.reason),
    ];
    for (name, text) in texts {
        body.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    }
    let path = if resumes { "/v1/resume" } else { "/v1/halt" };
    let answer = wait(client.post(path, &Value::Object(body)))?;
    Ok(output.success(&answer, || told(&answer, resumes)))
}

fn told(answer: &Value, resumes: bool) -> String {
    let changed = *answer.part("changed") == true;
    let mut text = match (changed, resumes) {
        (true, false) => "Halted.".to_owned(),
        (true, true) => "Resumed.".to_owned(),
        (false, false) => "It was halted already.".to_owned(),
        (false, true) => "It was not halted.".to_owned(),
    };
    let halts: Vec<String> = answer
        .part("halts")
        .as_array()
        .into_iter()
        .flatten()
        .map(|halt| match halt.word("reason") {
            "" => halt.word("what").to_owned(),
            reason => format!("{} ({reason})", halt.word("what")),
        })
        .collect();
    if halts.is_empty() {
        text.push_str(" Nothing is halted now.\n");
    } else {
        text.push_str(&format!(" Halted now: {}.\n", halts.join(", ")));
    }
    for (name, what) in [("stopped", "Stopped"), ("not_stopped", "Could not stop")] {
        for call in answer.part(name).as_array().into_iter().flatten() {
            text.push_str(&format!("{what}: {} ({})\n", call.word("tool"), call.word("callId")));
        }
    }
    for_terminal(&text)
}
