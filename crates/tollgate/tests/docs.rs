//! The documents say what is so: tests they name exist, commands they show work, links lead somewhere.

#![cfg(test)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use common::{root, run};
use serde_json::Value;

fn files(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, extension, into);
            }
        } else if path.extension().is_some_and(|own| own == extension) {
            into.push(path);
        }
    }
}

fn all(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), extension, &mut found);
    assert!(!found.is_empty());
    found
}

/// The names of all functions that are tests.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in all("rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_mark = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        for (index, _) in lines.iter().enumerate().filter(|(_, line)| is_mark(line)) {
            let after = lines.iter().skip(index + 1).find(|line| !line.starts_with("#["));
            let name = after.and_then(|line| line.split("fn ").nth(1)?.split('(').next());
            names.extend(name.map(|name| name.trim().to_owned()));
        }
    }
    names
}

#[test]
fn every_test_that_conformance_names_exists() {
    let text = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let tests = tests();
    let mut named = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| line ")) {
        let shown = row.rsplit(" | ").next().unwrap();
        let names: Vec<&str> = shown
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| name.contains('_') && !name.contains('/'))
            .collect();
        assert!(
            !names.is_empty() || shown.contains("missing:"),
            "neither shown nor missing: {row}"
        );
        for name in names {
            assert!(tests.contains(name), "no test is called {name}: {row}");
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}

#[test]
fn every_link_leads_somewhere() {
    for path in all("md") {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let target = path.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: {link}", path.display());
        }
    }
}

#[test]
fn the_readme_shows_what_the_command_prints() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = readme.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let (command, shown) = block.split_once("\n✓").unwrap();
    let words: Vec<String> = command
        .trim_start_matches("$ tollgate ")
        .replace("\\\n", " ")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let args: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(run(&args).out, format!("✓{shown}"));
}

#[test]
fn the_exit_codes_of_the_docs_are_the_real_ones() {
    let docs = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let data = run(&["describe", "--all", "--json"]).json()["data"].clone();
    for exit in data["exitCodes"].as_array().unwrap() {
        let row = format!("| {} | {} |", exit["code"], exit["meaning"].as_str().unwrap());
        assert!(docs.contains(&row), "{row}");
    }
    for command in data["commands"].as_array().unwrap() {
        assert!(
            docs.contains(&format!("| `{}", command["name"].as_str().unwrap())),
            "{}",
            command["name"]
        );
    }
}

#[test]
fn the_built_in_permissions_of_the_docs_are_the_real_ones() {
    let docs = fs::read_to_string(root().join("docs/policy.md")).unwrap();
    for permission in tollgate_contract::Permission::BUILT_IN {
        assert!(docs.contains(&format!("`{permission}`")), "{permission}");
    }
    for guardrail in tollgate_contract::Guardrail::ALL.iter().filter(|g| g.as_str() != "trade") {
        assert!(docs.contains(&format!("| `{guardrail}` |")), "{guardrail}");
    }
}

/// The RFC's docs tests: sentences that no document may hold.
#[test]
fn no_docs_say_what_the_rfc_forbids() {
    for path in all("md") {
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        for line in text.lines().filter(|line| !line.starts_with("| no docs say")) {
            let about_inventory = line.contains("/api/tools")
                && (line.contains("truth") || line.contains("canonical source"));
            assert!(!about_inventory, "{}: {line}", path.display());
            for package in ["@spfunctions/sdk", "@spfunctions/agent", "@tollgate/sdk"] {
                assert!(
                    !(line.contains(package) && line.contains("publish")),
                    "{}: {line}",
                    path.display()
                );
            }
            assert!(!line.contains("agent sdk is the cli"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn the_examples_load() {
    let manifest = run(&["tools", "--manifest", "examples/markets.json", "--review", "--json"]);
    assert_eq!(manifest.code, 0, "{}", manifest.err);
    let tools: Value = manifest.json()["data"]["tools"].clone();
    assert!(tools.as_array().unwrap().len() > 10);
    assert_eq!(run(&["policy", "check", "examples/policy.toml", "--tool", "system.time"]).code, 0);
}

#[test]
fn everything_that_a_rule_can_read_is_in_the_table() {
    let text = fs::read_to_string(root().join("docs/rules.md")).unwrap();
    for variable in tollgate_governor::VARIABLES {
        assert!(text.contains(&format!("`{}`", variable.name)), "{}", variable.name);
    }
    // And what the table names can be read.
    let table = text.split("### Conditions").nth(1).unwrap().split("\n\n").nth(1).unwrap();
    for row in table.lines().skip(2) {
        let names = row.split('|').nth(1).unwrap();
        for name in names.split('`').skip(1).step_by(2) {
            let known = tollgate_governor::VARIABLES.iter().any(|known| known.name == name);
            assert!(known, "{name}");
        }
    }
}
