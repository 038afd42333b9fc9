use serde_json::json;
use tollgate_contract::{Manifest, schema::Schema};

use super::*;

#[test]
fn what_is_left_out_is_what_the_wire_format_says() {
    let read: ReadTextInput = serde_json::from_value(json!({"path": "f"})).unwrap();
    assert_eq!(read, ReadTextInput { path: "f".to_owned(), max_bytes: 20_000 });
    let list: ListDirInput = serde_json::from_value(json!({})).unwrap();
    assert_eq!(list, ListDirInput { path: ".".to_owned(), max_entries: 200 });
    let write: WriteTextInput = serde_json::from_value(json!({"path": "f", "text": ""})).unwrap();
    assert!(!write.overwrite);
}

#[test]
fn the_schemas_say_the_same() {
    let schema = |tool: &tollgate_contract::ContractTool| tool.input_schema.clone().unwrap();
    let read = schema(read_text_declaration().unwrap().tool());
    let list = schema(list_dir_declaration().unwrap().tool());
    let write = schema(write_text_declaration().unwrap().tool());
    assert_eq!(read["properties"]["max_bytes"]["default"], json!(20_000));
    assert_eq!(list["properties"]["path"]["default"], json!("."));
    assert_eq!(list["properties"]["max_entries"]["default"], json!(200));
    assert_eq!(write["properties"]["overwrite"]["default"], json!(false));
    assert_eq!(read["required"], json!(["path"]));
    assert_eq!(list.get("required"), None);
    assert_eq!(write["required"], json!(["path", "text"]));
    for schema in [read, list, write] {
        assert_eq!(schema["additionalProperties"], json!(false));
    }
    let read = Schema::compile(&schema(read_text_declaration().unwrap().tool())).unwrap();
    for bad in [
        json!({"path": ""}),
        json!({"path": "f", "max_bytes": 0}),
        json!({"path": "f", "max_bytes": 100_000_000}),
        json!({"path": "f", "maxBytes": 1}),
        json!({}),
    ] {
        assert_ne!(read.problems(&bad), [], "{bad}");
    }
}

#[test]
fn outputs_fit_what_is_declared() {
    let fits = |tool: &tollgate_contract::ContractTool, output: serde_json::Value| {
        let schema = Schema::compile(tool.output_schema.as_ref().unwrap()).unwrap();
        assert_eq!(schema.problems(&output), [], "{output}");
    };
    let entry = |escaped| Entry { name: "f".to_owned(), kind: Kind::File, bytes: Some(1), escaped };
    let text = Text {
        path: "f".to_owned(),
        text: String::new(),
        bytes: 0,
        truncated: false,
        lossy: false,
    };
    let listing = Listing {
        path: ".".to_owned(),
        entries: vec![entry(false), entry(true)],
        total: 2,
        truncated: false,
    };
    let written = Written { path: "f".to_owned(), bytes: 0, outcome: WriteOutcome::Created };
    fits(read_text_declaration().unwrap().tool(), serde_json::to_value(text).unwrap());
    let listing = serde_json::to_value(listing).unwrap();
    assert_eq!(
        listing["entries"],
        json!([
            {"name": "f", "type": "file", "bytes": 1},
            {"name": "f", "type": "file", "bytes": 1, "escaped": true}
        ])
    );
    fits(list_dir_declaration().unwrap().tool(), listing);
    fits(write_text_declaration().unwrap().tool(), serde_json::to_value(written).unwrap());
}

#[test]
fn what_the_kernel_says_becomes_an_error_that_says_what_to_do() {
    use rustix::io::Errno;
    use tollgate_contract::ErrorCode;
    for (errno, code) in [
        (Errno::NOSYS, ErrorCode::SandboxUnavailable),
        (Errno::XDEV, ErrorCode::InvalidInput),
        (Errno::LOOP, ErrorCode::InvalidInput),
        (Errno::NOENT, ErrorCode::NotFound),
        (Errno::EXIST, ErrorCode::Conflict),
        (Errno::ACCESS, ErrorCode::ToolFailed),
        (Errno::NOSPC, ErrorCode::ToolFailed),
        (Errno::IO, ErrorCode::ToolFailed),
    ] {
        assert_eq!(FsProblem::of(errno, "f").error(READ).code(), code, "{errno}");
    }
}

#[test]
fn the_declarations_hold_together_and_need_a_key() {
    let declared = [
        read_text_declaration().unwrap().erase(),
        list_dir_declaration().unwrap().erase(),
        write_text_declaration().unwrap().erase(),
        crate::http::get_declaration().unwrap().erase(),
    ];
    let manifest = Manifest::from_declarations(declared.to_vec()).unwrap();
    for tool in manifest.entries() {
        assert!(tool.auth_required && !tool.access.anonymous_allowed, "{}", tool.name);
    }
}
