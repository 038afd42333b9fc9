//! Keys that commands make for themselves: never the admin's, so that nobody approves their own calls.

use serde_json::{Value, json};
use tollgate_contract::Secret;
use tollgate_gate::secret_file;

use crate::{client::Client, output::Failure, part::Part, place::GateArgs};

/// A key that a command uses, the file of the data folder that holds it, and what it is to be.
pub(crate) struct OwnKey {
    pub(crate) file: &'static str,
    pub(crate) body: fn() -> Value,
}

/// What agents use.
pub(crate) const AGENT: OwnKey =
    OwnKey { file: "agent.key", body: || json!({"name": "agent", "role": "agent"}) };

/// What a person's calls from the command line use: all that the person may do, but to answer for oneself.
pub(crate) const CLI: OwnKey = OwnKey {
    file: "cli.key",
    body: || {
        json!({
            "name": "cli", "role": "agent", "policy": "operator", "maxUrgency": "high",
            "scopes": ["call", "ask", "read"],
        })
    },
};

/// What agents with a model use that a person runs from the command line: all that the person may do, but to answer for
/// oneself.
pub(crate) const RUNNER: OwnKey = OwnKey {
    file: "runner.key",
    body: || {
        json!({
            "name": "runner", "role": "agent", "policy": "operator",
            "scopes": ["call", "ask", "read"],
        })
    },
};

impl OwnKey {
    /// The key that was named, else this one. It is made when it is first needed; none where nobody may make it.
    pub(crate) async fn get(&self, gate: &GateArgs) -> Result<Option<Secret>, Failure> {
        if let Some(key) = gate.key_of(self.file)? {
            return Ok(Some(key));
        }
        let Some(admin) = gate.key()? else { return Ok(None) };
        let admin = Client::new(gate, Some(admin))?;
        let made = admin.post("/v1/keys", &(self.body)()).await?;
        let file = gate.data.folder()?.join(self.file);
        let text = format!("{}\n", made.word("secret"));
        let kept = secret_file::write_new(&file, text.as_bytes());
        let kept = kept
            .map_err(|error| Failure::bad_input(format!("cannot keep {}: {error}", self.file)))?;
        if !kept {
            // Another command was faster; there is one key for all of them.
            admin.delete(&format!("/v1/keys/{}", made.part("key").word("id"))).await?;
        }
        let key = gate.key_of(self.file)?;
        key.map(Some).ok_or_else(|| Failure::bad_input(format!("{} is gone", self.file)))
    }
}
