//! `tollgate hash`: the name that traces and replay give to an input.

use serde_json::json;
use tollgate_contract::{canonical::canonical, input_hash, json, redact};

use crate::{
    cli::HashArgs,
    exit::Exit,
    output::{Failure, Output},
    source,
};

pub(crate) fn run(args: &HashArgs, output: &Output) -> Result<Exit, Failure> {
    let name = source::name(&args.file);
    let bytes = source::read(&args.file)?;
    let refused = |error| Failure::json(&name, &bytes, &error);
    let input = json::parse(&bytes).map_err(refused)?;
    let hash = input_hash(&input).map_err(refused)?;
    if !args.canonical {
        return Ok(output.success(&json!({"inputHash": hash}), || format!("{hash}\n")));
    }
    let form = canonical(&redact::redacted(&input)).map_err(refused)?;
    if output.is_json() {
        return Ok(output.success(&json!({"inputHash": hash, "canonical": form}), String::new));
    }
    // Byte for byte what is hashed, so that `| sha256sum` gives the same.
    Ok(output.raw(form.as_bytes()))
}
