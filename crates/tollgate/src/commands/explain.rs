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
    let mut skin = termimad::MadSkin::default();
    for header in &mut skin.headers {
        header.align = termimad::Alignment::Left;
    }
    format!("{}\n", skin.term_text(&joined(code.page())))
}

/// The page with the lines of each paragraph and list item joined, so that they are broken where the
/// terminal ends and not where the file does.
fn joined(page: &str) -> String {
    let mut out = String::new();
    let mut in_code = false;
    let mut in_paragraph = false;
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        let starts_own_line =
            in_code || is_fence || line.is_empty() || line.starts_with(['#', '-']);
        if in_paragraph && !starts_own_line {
            out.push(' ');
            out.push_str(line.trim_start());
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(line);
        }
        in_code ^= is_fence;
        in_paragraph = !in_code && !is_fence && !line.is_empty() && !line.starts_with('#');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_items_are_joined_and_code_is_not() {
        let page = "# A\n\none\ntwo\n\n- three\n  four\n- five\n\n```json\n{\n  1\n}\n```\n\nsix\n";
        assert_eq!(
            joined(page),
            "# A\n\none two\n\n- three four\n- five\n\n```json\n{\n  1\n}\n```\n\nsix"
        );
    }
}
