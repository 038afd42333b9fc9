//! The TOOL_CALLS block: which tools the model wants called. A bad item is refused for itself, and the model is told.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollgate_contract::text::Quoted;

use crate::{extract::is_deeper, notes::shape};

/// The most calls of one answer.
pub const MOST_CALLS: usize = 32;

/// How deep an input may be nested.
const DEEPEST: usize = 60;

/// The longest id that a model may give a call.
const LONGEST_ID: usize = 128;

/// A call that the model wants.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The model's own name for it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The input.
    pub args: Map<String, Value>,
}

/// A call that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The model's own name for it, if it has one.
    pub id: String,
    /// The tool, if it names one.
    pub tool: String,
    /// What is wrong.
    pub problem: String,
}

/// The calls of one answer, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Each call, or why it is none.
    pub items: Vec<Result<Planned, Rejected>>,
    ids: BTreeSet<String>,
}

impl Plan {
    /// Reads the payload of a block.
    pub fn add_block(&mut self, payload: &Value) {
        let Value::Array(items) = payload else {
            let problem = format!("TOOL_CALLS is a list of calls, not {}", shape(payload));
            self.reject(String::new(), String::new(), problem);
            return;
        };
        for item in items {
            if self.items.len() >= MOST_CALLS {
                let left = items.len().saturating_sub(MOST_CALLS);
                let problem = format!(
                    "an answer has at most {MOST_CALLS} calls; {left} were left out, ask for them in the next one"
                );
                self.reject(String::new(), String::new(), problem);
                return;
            }
            self.add_item(item);
        }
    }

    /// Adds a call that a model server set apart by itself. Its arguments are JSON text, as the model wrote it.
    pub fn add_native(&mut self, id: &str, tool: &str, arguments: &str) {
        if self.items.len() >= MOST_CALLS {
            if self.items.len() == MOST_CALLS {
                let problem = format!(
                    "an answer has at most {MOST_CALLS} calls; the others were left out, ask for them in the next one"
                );
                self.reject(String::new(), String::new(), problem);
            }
            return;
        }
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let args = tollgate_contract::json::parse(arguments.as_bytes());
        let args = args.unwrap_or_else(|_| Value::from("text that is no JSON"));
        let id =
            if id.is_empty() { format!("call{}", self.items.len() + 1) } else { id.to_owned() };
        self.add_item(&json!({"id": id, "tool": tool, "args": args}));
    }

    /// Adds a problem that the model is told of, besides all calls.
    pub fn reject(&mut self, id: String, tool: String, problem: String) {
        self.items.push(Err(Rejected { id, tool, problem }));
    }

    fn add_item(&mut self, item: &Value) {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let short = |text: &str| text.chars().take(LONGEST_ID).collect::<String>();
        let (id, tool) = (short(text("id")), short(text("tool")));
        match planned(item) {
            Err(problem) => self.reject(id, tool, problem),
            Ok(call) if !self.ids.insert(call.id.clone()) => {
                let problem =
                    format!("the id {} was used before in this answer", Quoted::new(&call.id));
                self.reject(id, tool, problem);
            }
            Ok(call) => self.items.push(Ok(call)),
        }
    }
}

fn planned(item: &Value) -> Result<Planned, String> {
    let Value::Object(members) = item else {
        return Err(format!("a call is an object, not {}", shape(item)));
    };
    let text = |name: &str| match members.get(name) {
        None => Err(format!("`{name}` is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("`{name}` is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("`{name}` is a string, not {}", shape(other))),
    };
    let (id, tool) = (text("id")?, text("tool")?);
    if id.chars().count() > LONGEST_ID {
        return Err(format!("`id` has at most {LONGEST_ID} characters"));
    }
    let args = match members.get("args") {
        Some(args @ Value::Object(_)) if is_deeper(args, DEEPEST) => {
            return Err(format!("`args` is nested deeper than {DEEPEST} levels"));
        }
        Some(Value::Object(args)) => args.clone(),
        None => return Err("`args` is missing; write {} where there are none".to_owned()),
        Some(other) => return Err(format!("`args` is an object, not {}", shape(other))),
    };
    Ok(Planned { id, tool, args })
}

/// What came of a call, as the model is told: the content of a message of the role `tool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The model's own name for the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Did it work?
    pub ok: bool,
    /// What it gave.
    pub output: Value,
    /// Why it did not work.
    pub error: Option<String>,
}

impl ToolResult {
    /// A call that gave something.
    pub fn done(id: &str, tool: &str, output: Value) -> Self {
        Self { id: id.to_owned(), tool: tool.to_owned(), ok: true, output, error: None }
    }

    /// A call that did not work.
    pub fn failed(id: &str, tool: &str, error: impl Into<String>) -> Self {
        let (id, tool, error) = (id.to_owned(), tool.to_owned(), Some(error.into()));
        Self { id, tool, ok: false, output: Value::Null, error }
    }

    /// The content of the message. Marks in it are written so that they are data: the text is the same to a reader of
    /// JSON.
    pub fn content(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        text.replace("<<<", "\\u003c\\u003c\\u003c")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(payload: &Value) -> Plan {
        let mut plan = Plan::default();
        plan.add_block(payload);
        plan
    }

    fn problems(plan: &Plan) -> Vec<&str> {
        plan.items.iter().filter_map(|i| i.as_ref().err().map(|r| r.problem.as_str())).collect()
    }

    #[test]
    fn calls_are_read_in_order() {
        let plan = plan(&json!([
            {"id":"t1","tool":"fs.list_dir","args":{"path":"."}},
            {"id":"t2","tool":"shell.exec","args":{"cmd":"ls -la","timeout_s":10}},
        ]));
        let calls: Vec<&Planned> = plan.items.iter().filter_map(|i| i.as_ref().ok()).collect();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].id.as_str(), calls[0].tool.as_str()), ("t1", "fs.list_dir"));
        assert_eq!(calls[1].args.get("timeout_s"), Some(&json!(10)));
    }

    #[test]
    fn a_bad_item_is_refused_and_its_neighbours_are_not() {
        let plan = plan(&json!([
            {"id":"a","tool":"x.y","args":{}}, {"id":"a","tool":"x.y","args":{}}, 7,
            {"id":"b","tool":"x.y","args":[]}, {"id":1,"tool":"x.y","args":{}}, {"tool":"x.y","args":{}},
            {"id":"c","tool":"x.y"}, {"id":"d","tool":"","args":{}}, {"id":"e","tool":"x.y","args":{}},
        ]));
        assert_eq!(plan.items.iter().filter(|item| item.is_ok()).count(), 2);
        assert_eq!(
            problems(&plan),
            [
                "the id `a` was used before in this answer",
                "a call is an object, not a number",
                "`args` is an object, not a list",
                "`id` is a string, not a number",
                "`id` is missing",
                "`args` is missing; write {} where there are none",
                "`tool` is empty",
            ]
        );
    }

    #[test]
    fn thousands_of_calls_are_cut_off_and_told() {
        let call = |n: usize| json!({"id": n.to_string(), "tool": "x.y", "args": {}});
        let plan = plan(&Value::Array((0..5000).map(call).collect()));
        assert_eq!(plan.items.len(), MOST_CALLS + 1);
        assert!(problems(&plan)[0].contains("4968 were left out"));
        assert!(problems(&self::plan(&json!({"id": "a"})))[0].contains("is a list of calls"));
    }

    #[test]
    fn native_calls_are_the_same_calls() {
        let mut plan = Plan::default();
        plan.add_native("c1", "fs.list_dir", "{\"path\": \".\"}");
        plan.add_native("", "system.time", "");
        plan.add_native("c1", "system.time", "{}");
        plan.add_native("c3", "system.time", "{broken");
        let good: Vec<&Planned> = plan.items.iter().filter_map(|i| i.as_ref().ok()).collect();
        assert_eq!(good.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["c1", "call2"]);
        assert_eq!(
            problems(&plan),
            ["the id `c1` was used before in this answer", "`args` is an object, not a string"]
        );
    }

    #[test]
    fn a_result_has_the_shape_of_the_protocol_and_marks_in_it_are_data() {
        let result =
            ToolResult::done("t1", "fs.read_text", json!({"text": "<<<TOOL_CALLS_JSON>>>"}));
        let content = result.content();
        assert!(!content.contains("<<<"));
        let read: Value = serde_json::from_str(&content).unwrap();
        assert_eq!(
            read,
            json!({"id": "t1", "tool": "fs.read_text", "ok": true, "output": {"text": "<<<TOOL_CALLS_JSON>>>"}, "error": null})
        );
        assert!(
            ToolResult::failed("t", "x.y", "no")
                .content()
                .contains("\"ok\":false,\"output\":null,\"error\":\"no\"")
        );
    }
}
