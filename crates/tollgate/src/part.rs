//! Reading parts of an answer whose shape is the gate's. What is not there reads as null, or as an
//! empty word.

use serde_json::Value;

/// The parts of a JSON object.
pub(crate) trait Part {
    /// A member; null where there is none.
    fn part(&self, name: &str) -> &Value;

    /// A member that is a word; empty where there is none.
    fn word(&self, name: &str) -> &str {
        self.part(name).as_str().unwrap_or_default()
    }
}

impl Part for Value {
    fn part(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}
