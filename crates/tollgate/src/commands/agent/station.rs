//! The gate that turns run at: one that runs, or one of this command's own; and the two keys that a person at a terminal
//! uses there. Turns run with a key that is not the admin's, so that the person can answer what they ask.

use serde_json::{Map, Value, json};
use tollgate_contract::error::MissingApiKey;
use tollgate_models::ModelConfig;
use tollgate_protocol::SessionName;

use crate::{
    agent_folders,
    cli::AgentTurnArgs,
    client::{self, Client},
    commands::{one_policy, own_key::RUNNER},
    local::LocalGate,
    output::Failure,
    place::{ADMIN_KEY, GateArgs, read_key},
};

/// Where turns are run.
pub(super) struct Station {
    /// Asks for turns.
    pub(super) runner: Client,
    /// Decides and answers, if this person may.
    pub(super) admin: Option<Client>,
    local: Option<LocalGate>,
}

impl Station {
    /// Finds the gate, or runs one.
    pub(super) async fn reach(args: &GateArgs) -> Result<Self, Failure> {
        let mut gate = args.clone();
        let mut local = None;
        if gate.url.is_none() {
            let folder = gate.data.folder_to_make()?;
            local = LocalGate::unless_running(&folder)?;
            gate.data.data = Some(folder);
        }
        let missing = || {
            Failure::new(MissingApiKey::new(None))
                .with_help("set TOLLGATE_API_KEY, or name the data folder of a gate with --data")
        };
        let runner = RUNNER.get(&gate).await?.ok_or_else(missing)?;
        // The folder's own admin key comes first: a key that was named for turns cannot answer for itself.
        let own = match gate.url {
            None => read_key(&gate.data.folder()?.join(ADMIN_KEY))?,
            Some(_) => None,
        };
        let admin = own.map_or_else(|| gate.key(), |key| Ok(Some(key)))?;
        let admin = admin.map(|key| Client::new(&gate, Some(key))).transpose()?;
        Ok(Self { runner: Client::new(&gate, Some(runner))?, admin, local })
    }

    /// Lets what was said of the session hold from now on.
    pub(super) async fn set(
        &self,
        session: &SessionName,
        settings: &Map<String, Value>,
    ) -> Result<(), Failure> {
        if settings.is_empty() {
            return Ok(());
        }
        let Some(admin) = &self.admin else {
            return Err(Failure::new(MissingApiKey::new(None)).with_help(
                "only an operator decides on --root, a --model by its address, --policy and --roles: set TOLLGATE_API_KEY to a key with the scope admin, or leave them out",
            ));
        };
        // First the session becomes this key's: what is decided for it is for nobody else.
        let mut claim = client::call_body(json!({}));
        if let Some(claim) = claim.as_object_mut() {
            claim.insert("session".to_owned(), session.as_str().into());
        }
        self.runner.post(&client::tool_path("system.time", "call"), &claim).await?;
        let path = format!("/v1/sessions/{session}");
        admin.put(&path, &Value::Object(settings.clone())).await.map(drop)
    }

    /// Leaves at once: a gate of this process ends with it.
    pub(super) fn abandon(self) {
        if let Some(local) = self.local {
            local.abandon();
        }
    }
}

/// Is this the address of a model server, and not a name?
fn is_address(model: &str) -> bool {
    model.contains("://")
}

/// What the command line decides for the session.
pub(super) fn settings(args: &AgentTurnArgs) -> Result<Map<String, Value>, Failure> {
    let mut settings = Map::new();
    if let Some(root) = &args.root {
        let full = std::fs::canonicalize(root)
            .map_err(|error| Failure::unreadable(&crate::source::name(root), &error))?;
        if args.gate.url.is_none() {
            let data = args.gate.data.folder_to_make()?;
            let data = std::fs::canonicalize(&data).unwrap_or(data);
            if data.starts_with(&full) {
                return Err(Failure::bad_input(format!(
                    "the folder {} holds the data folder {}, where the gate keeps its record and its keys",
                    full.display(),
                    data.display()
                ))
                .with_help("keep the gate's data elsewhere with --data, or name a folder within with --root"));
            }
        }
        // Here too: the gate may be somebody else's, or have another home.
        agent_folders::remember(&full).map_err(Failure::bad_input)?;
        settings.insert("root".to_owned(), full.to_string_lossy().into());
    }
    match args.model.as_deref() {
        Some(model) if is_address(model) => {
            let usual = ModelConfig::at(model);
            let context_tokens = args.model_context.unwrap_or(usual.context_tokens);
            let own = ModelConfig {
                model: args.model_name.clone(),
                api_key_env: args.model_key_env.clone(),
                context_tokens,
                // A model with little room does not spend most of it on one answer.
                max_output_tokens: usual.max_output_tokens.min(context_tokens / 4),
                ..usual
            };
            own.check().map_err(|(setting, problem)| {
                let option = match setting.as_str() {
                    "model" => "--model-name",
                    "api_key_env" => "--model-key-env",
                    "context_tokens" | "max_output_tokens" => "--model-context",
                    _ => "--model",
                };
                Failure::usage(format!("{option}: `{setting}` {problem}"))
            })?;
            settings.insert("model".to_owned(), json!({"own": own}));
        }
        Some(_)
            if args.model_name.is_some()
                || args.model_key_env.is_some()
                || args.model_context.is_some() =>
        {
            return Err(Failure::usage(
                "--model-name, --model-key-env and --model-context go with the address of a model server"
                    .to_owned(),
            )
            .with_help("what holds for a model of the configuration stands there"));
        }
        _ => {}
    }
    if let Some(file) = &args.policy {
        settings.insert("policy".to_owned(), one_policy(file)?);
    }
    if !args.roles.is_empty() {
        let roles: Vec<&str> = args.roles.iter().map(|role| role.word()).collect();
        settings.insert("roles".to_owned(), json!(roles));
    }
    Ok(settings)
}

/// What the command line says of each turn: the body of its request, but for what is said.
pub(super) fn request(args: &AgentTurnArgs) -> Result<Map<String, Value>, Failure> {
    let mut budget = Map::new();
    budget.extend(args.max_rounds.map(|rounds| ("rounds".to_owned(), rounds.into())));
    budget.extend(args.max_tokens.map(|tokens| ("tokens".to_owned(), tokens.into())));
    if let Some(text) = &args.budget_usd {
        budget.insert("usd_micros".to_owned(), micros(text)?.into());
    }
    if let Some(text) = &args.timeout {
        let ms = crate::commands::duration_ms(text)?;
        budget.insert("seconds".to_owned(), ((ms + 999) / 1000).into());
    }
    let mut request = Map::new();
    if !budget.is_empty() {
        request.insert("budget".to_owned(), Value::Object(budget));
    }
    if let Some(model) = args.model.as_ref().filter(|model| !is_address(model)) {
        request.insert("model".to_owned(), model.as_str().into());
    }
    Ok(request)
}

/// Dollars as millionths of one, digit by digit: money is not rounded.
fn micros(text: &str) -> Result<u64, Failure> {
    let wrong = || {
        Failure::usage(format!("{} is no amount of dollars", tollgate_contract::Quoted::new(text)))
            .with_help("write it as 0.50 or 3, with at most six digits behind the point")
    };
    let text = text.strip_prefix('$').unwrap_or(text);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole)
        || !is_number(part)
        || part.len() > 6
        || (whole.is_empty() && part.is_empty())
    {
        return Err(wrong());
    }
    let number = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>() };
    let whole = number(whole).map_err(|_| wrong())?;
    let part = number(&format!("{part:0<6}")).map_err(|_| wrong())?;
    whole.checked_mul(1_000_000).and_then(|whole| whole.checked_add(part)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_digit_by_digit() {
        for (text, expected) in [
            ("0.50", 500_000),
            ("$3", 3_000_000),
            (".000001", 1),
            ("12.", 12_000_000),
            ("0.1", 100_000),
        ] {
            assert_eq!(micros(text).unwrap(), expected, "{text}");
        }
        for text in ["", ".", "-1", "1e3", "0.0000001", "1,5", "one", "99999999999999999999", "$"] {
            assert!(micros(text).is_err(), "{text}");
        }
    }
}
