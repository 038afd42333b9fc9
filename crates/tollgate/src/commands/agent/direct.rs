//! `tollgate agent --tool`: the direct mode, live with a key of its own, or from a trace.

use std::path::Path;

use serde_json::Value;
use tollgate_agent::{Recorder, Replayer, TraceFile};
use tollgate_contract::{error::ErrorObject, text::json_for_terminal};

use crate::commands::{
    call::{done, waits},
    own_key::AGENT,
    trace,
};
use crate::{
    cli::AgentArgs,
    client::{self, Client},
    exit::Exit,
    output::{Failure, Output, note, write_out},
    part::Part,
};

pub(crate) fn run(args: &AgentArgs, output: &Output) -> Result<Exit, Failure> {
    let input = crate::commands::input(&args.input)?;
    let last = match &args.replay_trace {
        Some(file) => replayed(args, file, &input)?,
        None => client::wait(live(args, &input))?,
    };
    // The stream has told everything, the error included; only how the command ends is left to say.
    if let Some(error) = last.get("error") {
        let error: Option<ErrorObject> = serde_json::from_value(error.clone()).ok();
        let Some(error) = error else { return Ok(Exit::Failed) };
        return if args.stream_json { Ok(Exit::of(error.code)) } else { Err(Failure::of(error)) };
    }
    if let Some(approval) = last.get("approval") {
        if !args.stream_json {
            note(&waits(approval));
        }
        return Ok(Exit::Pending);
    }
    if args.stream_json {
        return Ok(Exit::Ok);
    }
    let result = last.part("result");
    let written = output.success(result, || {
        format!("{}\n", json_for_terminal(&format!("{:#}", result.part("output"))))
    });
    if !output.is_json() {
        note(&done(result));
    }
    Ok(written)
}

/// Answers from a trace. Gives the last event.
fn replayed(args: &AgentArgs, file: &Path, input: &Value) -> Result<Value, Failure> {
    let trace = trace::read(file)?;
    let mut replayer = Replayer::new(&trace);
    let last = std::cell::RefCell::new(Value::Null);
    // What came of it is in the last event as well.
    let _ = replayer.call(args.tool(), input, |event| {
        tell(args, &event);
        last.replace(event);
    });
    let unused = replayer.unused().len();
    if unused > 0 {
        let calls = if unused == 1 { "call was" } else { "calls were" };
        note(&format!("! {unused} recorded {calls} not asked for"));
    }
    Ok(last.into_inner())
}

/// Runs the tool through the gate. Gives the last event.
async fn live(args: &AgentArgs, input: &Value) -> Result<Value, Failure> {
    // A trace that cannot be written is found out before anything is called.
    let recorder = args.record_trace.as_deref().map(TraceFile::open).transpose();
    let mut recorder = recorder.map_err(Failure::new)?.map(Recorder::new);
    let Some(key) = AGENT.get(&args.gate).await? else {
        return Err(Failure::new(tollgate_contract::error::MissingApiKey::new(None))
            .with_help("set TOLLGATE_API_KEY, or name the data folder of a gate with --data"));
    };
    let client = Client::new(&args.gate, Some(key))?;
    let mut body = client::call_body(input.clone());
    if let (Some(file), Some(body)) = (&args.policy, body.as_object_mut()) {
        body.insert("policy".to_owned(), crate::commands::one_policy(file)?);
    }
    let mut recording = recorder.as_mut().map(|recorder| recorder.begin(input));
    let mut events = Vec::new();
    let path = client::tool_path(args.tool(), "stream");
    client
        .stream(&path, &body, |event| {
            let is_last = Recorder::is_last(&event);
            let waits = recorder.is_some() && Recorder::waits_for_trace(&event);
            events.push(event.clone());
            if !waits {
                tell(args, &event);
            }
            if is_last && let (Some(recorder), Some(recording)) = (&mut recorder, recording.take())
            {
                recorder.finish(recording, &events).map_err(Failure::new)?;
                events
                    .iter()
                    .filter(|event| Recorder::waits_for_trace(event))
                    .for_each(|event| tell(args, event));
            }
            Ok(())
        })
        .await?;
    let last = events.pop().filter(Recorder::is_last);
    match last {
        Some(last) => Ok(last),
        None => {
            Err(Failure::interrupted(&args.gate.address()?, "the stream ended before the run did"))
        }
    }
}

fn tell(args: &AgentArgs, event: &Value) {
    if args.stream_json {
        write_out(format!("{event}\n").as_bytes());
    }
}
