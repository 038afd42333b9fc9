use super::*;

fn shown(text: &str) -> Result<String, String> {
    Selector::parse(text).map(|selector| format!("{selector:?}"))
}

#[test]
fn an_entry_is_a_permission_or_names_tools() {
    assert_eq!(shown("user_data").unwrap(), "Permission(Permission(user_data))");
    assert_eq!(shown("read.public").unwrap(), "Permission(Permission(read.public))");
    assert_eq!(shown("tool:fs.read_text").unwrap(), "Tool(Exact(ToolName(fs.read_text)))");
    assert_eq!(shown("tool:fs.*").unwrap(), "Tool(Below(\"fs\"))");
    assert_eq!(shown("fs.*").unwrap(), "Space(Below(\"fs\"))");
    assert_eq!(shown("fs.write_text").unwrap(), "Name(Permission(fs.write_text))");
}

#[test]
fn an_entry_that_means_nothing_is_refused() {
    for bad in
        ["", "*", "tool:", "tool:fs", "tool:*", "fs*", "Fs.*", "userdata", "tool:get_world_state"]
    {
        assert!(Selector::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_entry_is_written_as_it_was_read() {
    for text in ["user_data", "tool:fs.*", "fs.*", "tool:fs.read_text", "acme.deploy"] {
        assert_eq!(Selector::parse(text).unwrap().to_string(), text);
    }
}
