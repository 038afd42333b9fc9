//! The tools that come with Tollgate, each declared next to the function that does its work.
//!
//! A function here takes what it needs as arguments (the manifest, the time), so that it can be tested
//! without a gate. [`pack`] wires them up for one.

pub mod manifest;
pub mod shell;
pub mod system;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tollgate_contract::{
    Error, Manifest, ToolDeclaration, Violations,
    error::{Internal, UnknownTool},
};
use tollgate_gate::{Packs, ToolFailure};

/// Adds the built-in tools, with what does their work.
pub fn pack(packs: Packs) -> Result<Packs, Violations> {
    Ok(packs
        .add_reading(manifest::list_declaration()?, |input, context| {
            let mut document = manifest::list(context.manifest(), &input);
            document.tools.retain(|tool| context.may_see(tool));
            written(&document)
        })
        .add_reading(manifest::get_declaration()?, |input, context| {
            let entry = manifest::get(context.manifest(), &input)?;
            if !context.may_see(entry.tool) {
                return Err(Error::from(UnknownTool::new(input.name, None)).into());
            }
            written(&entry)
        })
        .add(system::time_declaration()?, async |_, context| {
            let now = Timestamp::from_millisecond(context.now_ms()).map_err(|error| {
                Error::from(Internal::new(format!("the clock is off: {error}")))
            })?;
            Ok(system::time(now))
        }))
}

fn written(output: &impl Serialize) -> Result<Value, ToolFailure> {
    serde_json::to_value(output)
        .map_err(|error| Error::from(Internal::new(error.to_string())).into())
}

/// The manifest of the built-in tools.
pub fn built_in() -> Result<Manifest, Violations> {
    Manifest::from_declarations(declarations()?)
}

/// What this pack declares.
pub fn declarations() -> Result<Vec<ToolDeclaration>, Violations> {
    Ok(vec![
        manifest::list_declaration()?.erase(),
        manifest::get_declaration()?.erase(),
        system::time_declaration()?.erase(),
    ])
}
