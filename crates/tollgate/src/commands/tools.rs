//! `tollgate tools`: what can be called.

use std::fmt::Write;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets::NOTHING};
use tollgate_contract::{
    ContractTool, ManifestMode,
    redact::redacted,
    text::{Clean, list},
};

use crate::{
    cli::ToolsArgs,
    exit::Exit,
    output::{Failure, Output},
};

pub(crate) fn run(args: &ToolsArgs, output: &Output) -> Result<Exit, Failure> {
    let manifest = super::manifest(args.manifest.as_deref())?;
    if let Some(name) = &args.name {
        let tool = manifest.resolve(name).map_err(Failure::new)?;
        return Ok(output.success(tool, || contract(tool)));
    }
    let mode = if args.review { ManifestMode::Review } else { ManifestMode::Implemented };
    let document = manifest.document(mode);
    Ok(output.success(&document, || table(&document.tools, mode)))
}

fn table(tools: &[&ContractTool], mode: ManifestMode) -> String {
    if tools.is_empty() {
        return "There is no tool to call.\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let mut header = vec!["TOOL", "SIDE EFFECT", "COST EFFECT", "KEY", "WHAT IT DOES"];
    if mode == ManifestMode::Review {
        header.insert(1, "STATUS");
    }
    let last = header.len() - 1;
    table.set_header(header);
    for tool in tools {
        let key = if tool.access.anonymous_allowed { "no" } else { "yes" };
        let mut row = vec![
            tool.name.to_string(),
            tool.side_effect.to_string(),
            tool.cost_effect.to_string(),
            key.to_owned(),
            tool.description.as_deref().map(shown).unwrap_or_default(),
        ];
        if mode == ManifestMode::Review {
            row.insert(1, tool.status.to_string());
        }
        table.add_row(row);
    }
    // Only the sentence may be broken into lines: a name that is cut in two cannot be copied.
    for column in table.column_iter_mut().take(last) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("{lines}\n`tollgate tools NAME` shows one contract in full.\n")
}

/// Text of a manifest, which somebody else may have written, so that a terminal does not act on it.
fn shown(text: &str) -> String {
    Clean::new(text).to_string()
}

fn contract(tool: &ContractTool) -> String {
    let mut text = format!("{}\n", tool.name);
    if let Some(description) = &tool.description {
        let _ = writeln!(text, "{}", shown(description));
    }
    let yes_no = |flag: bool| if flag { "yes" } else { "no" };
    let http = tool.http.as_ref().map(|http| format!("{} {}", http.method, shown(&http.path)));
    let sdk =
        tool.sdk.as_ref().map(|sdk| format!("{} ({})", shown(&sdk.method), shown(&sdk.package)));
    let rows = [
        ("status", format!("{}, {}", tool.status, tool.stability)),
        ("side effect", tool.side_effect.to_string()),
        ("cost effect", tool.cost_effect.to_string()),
        ("permissions", list(&tool.permissions)),
        ("risk", if tool.risk.is_empty() { "none declared".to_owned() } else { list(&tool.risk) }),
        ("needs an account", yes_no(tool.auth_required).to_owned()),
        (
            "without a key",
            if tool.access.anonymous_allowed { "on the SDK surface" } else { "never" }.to_owned(),
        ),
        ("agents may call it", yes_no(tool.agent.callable).to_owned()),
        ("offered by default", yes_no(tool.agent.default_enabled).to_owned()),
        ("replayable", yes_no(tool.replay.replayable).to_owned()),
        ("repeated if unsure", tool.retry().to_string()),
        ("HTTP", http.unwrap_or_else(|| "POST /v1/tools/{name}/call only".to_owned())),
        ("SDK", sdk.unwrap_or_else(|| "as a tool call only".to_owned())),
    ];
    text.push('\n');
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<19} {value}");
    }
    for (title, schema) in [("input", &tool.input_schema), ("output", &tool.output_schema)] {
        if let Some(schema) = schema {
            let _ = writeln!(text, "\n{title} schema\n{:#}", redacted(schema));
        }
    }
    text
}
