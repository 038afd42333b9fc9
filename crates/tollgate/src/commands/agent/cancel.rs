//! `tollgate agent cancel`: stops the turn that runs in a session.

use serde_json::json;

use crate::{
    cli::AgentSessionArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
};

pub(crate) fn run(args: &AgentSessionArgs, output: &Output) -> Result<Exit, Failure> {
    let session = super::session(&args.session)?;
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let told = wait(client.post(&format!("/v1/sessions/{session}/cancel"), &json!({})))?;
    Ok(output.success(&told, || match *told.part("cancelled") == true {
        true => format!("The turn that runs in {session} is being stopped.\n"),
        false => format!("No turn runs in {session}.\n"),
    }))
}
