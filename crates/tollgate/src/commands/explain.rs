//! `tollgate explain CODE`: the page of an error code.

use std::{fmt::Write, io};

use serde_json::json;
use tollgate_contract::ErrorCode;

use crate::{
    cli::ExplainArgs,
    exit::Exit,
    output::{Failure, Output, wants_colour},
};

pub(crate) fn run(args: &ExplainArgs, output: &Output) -> Result<Exit, Failure> {
    let Some(word) = &args.code else {
        let all: Vec<_> = ErrorCode::ALL.iter().map(|code| summary(*code)).collect();
        return Ok(output.success(&all, index));
    };
    // Codes are written in capitals; nobody has to type them.
    let wanted = word.to_ascii_uppercase().replace('-', "_");
    let code = ErrorCode::parse(&wanted).ok_or_else(|| {
        Failure::not_found("error code", &wanted, ErrorCode::ALL.iter().map(|code| code.as_str()))
    })?;
    let mut data = summary(code);
    if let Some(data) = data.as_object_mut() {
        data.insert("page".to_owned(), code.page().into());
    }
    Ok(output.success(&data, || page(code)))
}

fn summary(code: ErrorCode) -> serde_json::Value {
    json!({"code": code, "status": code.status(), "class": code.class_name()})
}

fn index() -> String {
    let mut text = String::new();
    for code in ErrorCode::ALL {
        let status = code.status().map_or("client".to_owned(), |status| status.to_string());
        let _ = writeln!(text, "{status:<7} {:<23} {}", code.as_str(), meaning(code.page()));
    }
    text.push_str("\n`tollgate explain CODE` explains one.\n");
    text
}

/// The first sentence of a page: what follows the heading and the line with the status.
fn meaning(page: &str) -> String {
    let paragraph = page.split("\n\n").nth(2).unwrap_or_default().replace('\n', " ");
    match paragraph.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => paragraph,
    }
}

fn page(code: ErrorCode) -> String {
    if !wants_colour(&io::stdout()) {
        return code.page().to_owned();
    }
    let skin = termimad::MadSkin::default();
    format!("{}\n", skin.term_text(code.page()))
}
