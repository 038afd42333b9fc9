//! What a request asks, in either protocol.

use serde_json::Value;

use super::script::When;

/// What a reply can depend on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) system: String,
    pub(super) role: String,
    pub(super) last: String,
    pub(super) stream: bool,
    /// How long all of it is.
    pub(super) length: usize,
}

impl Asked {
    pub(super) fn read(body: &Value) -> Self {
        let nothing = Vec::new();
        let messages = body.get("messages").and_then(Value::as_array).unwrap_or(&nothing);
        let role = |message: &Value| message.get("role").and_then(Value::as_str).map(str::to_owned);
        let content = |message: &Value| text(message.get("content"));
        let of_system =
            messages.iter().filter(|message| role(message).as_deref() == Some("system"));
        let mut system = text(body.get("system"));
        for message in of_system {
            system.push_str(&content(message));
        }
        let last = messages.last();
        Self {
            system,
            role: last.and_then(role).unwrap_or_default(),
            last: last.map(content).unwrap_or_default(),
            stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            length: body.to_string().len(),
        }
    }

    pub(super) fn fits(&self, when: &When) -> bool {
        let holds = |part: &Option<String>, text: &str| {
            part.as_ref().is_none_or(|part| text.contains(part.as_str()))
        };
        holds(&when.last_contains, &self.last)
            && holds(&when.system_contains, &self.system)
            && when.role.as_ref().is_none_or(|role| *role == self.role)
    }
}

/// Text, or the texts of its blocks.
fn text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let block = |block: &Value| match block.get("text") {
                Some(Value::String(text)) => text.clone(),
                _ => text(block.get("content")),
            };
            blocks.iter().map(block).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
