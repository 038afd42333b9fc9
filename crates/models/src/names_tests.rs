use super::*;

fn tools(names: &[&str]) -> Vec<ToolSpec> {
    names
        .iter()
        .map(|name| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: serde_json::json!({}),
        })
        .collect()
}

#[test]
fn names_go_there_and_back() {
    let names = Names::new(&tools(&["fs.read_text", "shell.exec", "plain"]));
    assert_eq!(names.wire("fs.read_text"), "fs__read_text");
    assert_eq!(names.ours("fs__read_text"), "fs.read_text");
    assert_eq!(names.ours("plain"), "plain");
}

#[test]
fn what_was_not_offered_stays_as_it_is() {
    let names = Names::new(&tools(&["fs.read_text"]));
    assert_eq!(names.ours("shell__exec"), "shell__exec");
    assert_eq!(names.ours("fs.read_text"), "fs.read_text");
    assert_eq!(names.wire("shell.exec"), "shell__exec");
}

#[test]
fn names_that_would_be_the_same_are_kept_apart() {
    let long = "a.".repeat(60);
    let names = ["a.b", "a__b", "a b", "ä", &long, &format!("{long}x"), "", "a.b"];
    let offered = tools(&names);
    let mapped = Names::new(&offered);
    let mut seen = std::collections::HashSet::new();
    for tool in &offered[..offered.len() - 1] {
        let wire = mapped.wire(&tool.name);
        assert!(!wire.is_empty() && wire.len() <= 64, "{wire}");
        assert!(wire.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{wire}");
        assert_eq!(mapped.ours(&wire), tool.name);
        assert!(seen.insert(wire));
    }
}
