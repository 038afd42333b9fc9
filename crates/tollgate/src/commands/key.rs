//! `tollgate key`: the keys of a running gate.

use std::path::Path;

use serde_json::{Map, Value, json};
use tollgate_contract::{
    KeyScope,
    text::{Clean, for_terminal, nearest},
};
use tollgate_gate::secret_file;

use crate::{
    cli::{KeyCommand, KeyCreateArgs, KeyRotateArgs, KeyTokenArgs},
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    place::{ADMIN_KEY, GateArgs},
    source, table,
};

pub(crate) fn run(command: KeyCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        KeyCommand::Create(args) => create(args, output),
        KeyCommand::Rotate(args) => rotate(&args, output),
        KeyCommand::Token(args) => token(&args, output),
        KeyCommand::List(args) => {
            let path = if args.tokens { "/v1/keys?tokens=true" } else { "/v1/keys" };
            let all = wait(client(&args.gate)?.get(path))?;
            Ok(output.success(&all, || shown_keys(all.part("keys"))))
        }
        KeyCommand::Revoke(args) => {
            let client = client(&args.gate)?;
            let revoked = wait(async {
                let id = find(&client, &args.key).await?;
                client.delete(&format!("/v1/keys/{id}")).await
            })?;
            Ok(output.success(&revoked, || {
                format!(
                    "{} ({}) is withdrawn, with every token that was made from it.\n",
                    name(&revoked),
                    revoked.word("id")
                )
            }))
        }
    }
}

fn client(gate: &GateArgs) -> Result<Client, Failure> {
    Client::new(gate, gate.key()?)
}

fn create(args: KeyCreateArgs, output: &Output) -> Result<Exit, Failure> {
    let mut body = Map::new();
    body.insert("name".to_owned(), args.name.into());
    body.insert("role".to_owned(), args.role.word().into());
    body.insert("owner".to_owned(), args.owner.into());
    for (field, list) in
        [("scopes", args.scopes), ("agents", args.agents), ("identities", args.identities)]
    {
        if !list.is_empty() {
            body.insert(field.to_owned(), list.into());
        }
    }
    let policy = match (args.policy, args.policy_file) {
        (Some(name), _) => Some(Value::from(name)),
        (None, Some(file)) => Some(super::one_policy(&file)?),
        (None, None) => None,
    };
    body.extend(policy.map(|policy| ("policy".to_owned(), policy)));
    body.extend(args.max_urgency.map(|word| ("maxUrgency".to_owned(), word.into())));
    if let Some(text) = &args.expires {
        body.insert("expiresInSeconds".to_owned(), seconds(text)?.into());
    }
    let keep = args.out.as_deref().map(free).transpose()?;
    let made = wait(client(&args.gate)?.post("/v1/keys", &Value::Object(body)))?;
    shown(made, keep, output)
}

fn rotate(args: &KeyRotateArgs, output: &Output) -> Result<Exit, Failure> {
    let grace = args.grace.as_deref().map(seconds).transpose()?;
    let client = client(&args.gate)?;
    let made = wait(async {
        let id = find(&client, &args.key).await?;
        let body = json!({"graceSeconds": grace.unwrap_or(0)});
        client.post(&format!("/v1/keys/{id}/rotate"), &body).await
    })?;
    // The folder's own key goes on working in the folder.
    let own_file = args.gate.data.folder()?.join(ADMIN_KEY);
    let is_own = *made.part("own") == true && args.gate.named_key()?.is_none() && own_file.exists();
    let keep = args.out.clone().or_else(|| is_own.then_some(own_file));
    shown(made, keep.as_deref(), output)
}

fn token(args: &KeyTokenArgs, output: &Output) -> Result<Exit, Failure> {
    let mut body = json!({"expiresInSeconds": seconds(&args.expires)?});
    if let Some(body) = body.as_object_mut() {
        if !args.scopes.is_empty() {
            body.insert("scopes".to_owned(), json!(args.scopes));
        }
        body.extend(args.policy.clone().map(|policy| ("policy".to_owned(), policy.into())));
    }
    let keep = args.out.as_deref().map(free).transpose()?;
    let made = wait(client(&args.gate)?.post("/v1/tokens", &body))?;
    shown(made, keep, output)
}

/// A file that is not there yet: a key that somebody keeps is not written over.
fn free(file: &Path) -> Result<&Path, Failure> {
    if file.exists() {
        return Err(Failure::bad_input(format!(
            "{} is there already, and was not changed",
            source::name(file)
        ))
        .with_help("remove it first, or name another file"));
    }
    Ok(file)
}

/// Shows a key that was just made, or keeps it in a file.
fn shown(mut made: Value, keep: Option<&Path>, output: &Output) -> Result<Exit, Failure> {
    let secret = made.word("secret").to_owned();
    let Some(file) = keep else {
        return Ok(output.success(&made, || {
            let secret = for_terminal(&secret);
            let key = made.part("key");
            format!(
                "{} ({})\n\n  {secret}\n\nThis is the only time it is shown.\n",
                name(key),
                key.word("id")
            )
        }));
    };
    secret_file::write(file, format!("{secret}\n").as_bytes()).map_err(|error| {
        Failure::bad_input(format!(
            "the key was made, but cannot be kept in {}: {error}; withdraw it and make another",
            source::name(file)
        ))
    })?;
    if let Some(members) = made.as_object_mut() {
        members.remove("secret");
        members.insert("file".to_owned(), json!(file));
    }
    Ok(output.success(&made, || {
        let key = made.part("key");
        format!("{} ({}) is kept in {}.\n", name(key), key.word("id"), source::name(file))
    }))
}

/// The id of the key that is meant by an id or a name.
async fn find(client: &Client, wanted: &str) -> Result<String, Failure> {
    let all = client.get("/v1/keys?tokens=true").await?;
    let keys = all.part("keys").as_array().cloned().unwrap_or_default();
    let is_active = |key: &&Value| key.word("status") == "active";
    let named: Vec<&Value> = keys
        .iter()
        .filter(|key| {
            key.word("id") == wanted || (key.word("name") == wanted && key.part("parent").is_null())
        })
        .collect();
    match named.as_slice() {
        [only] => Ok(only.word("id").to_owned()),
        [] => {
            let names: Vec<String> = keys.iter().map(|key| key.word("name").to_owned()).collect();
            let near = nearest(wanted, names.iter().map(String::as_str));
            let help = near.map_or_else(
                || "`tollgate key list` shows them".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            Err(Failure::new(tollgate_contract::error::NotFound::new("key", wanted))
                .with_help(help))
        }
        several => match several.iter().copied().filter(is_active).collect::<Vec<_>>().as_slice() {
            [only] => Ok(only.word("id").to_owned()),
            _ => Err(Failure::usage("several keys have this name".to_owned())
                .with_help("name the one you mean by its id; `tollgate key list --json` shows it")),
        },
    }
}

fn seconds(text: &str) -> Result<i64, Failure> {
    Ok((super::duration_ms(text)? / 1000).max(1))
}

fn shown_keys(keys: &Value) -> String {
    // Several keys may have one name, and a token has its key's: the id tells them apart.
    let header = ["NAME", "STATUS", "SCOPES", "POLICY", "LAST USED", "EXPIRES", "ID"];
    let mut table = table::new(&header, &[]);
    for key in keys.as_array().into_iter().flatten() {
        let scopes: Vec<String> =
            key.part("scopes").as_array().into_iter().flatten().map(word).collect();
        let policy = if key.part("policy").is_object() {
            "(own)".to_owned()
        } else {
            key.word("policy").to_owned()
        };
        // To the minute, or to the day: nobody needs more in a list.
        let time = |name: &str, digits: usize| {
            let text = key.part(name).as_str().and_then(|text| text.get(..digits));
            text.map_or("never".to_owned(), |text| text.replace('T', " "))
        };
        table.add_row([
            name(key),
            key.word("status").to_owned(),
            if scopes.len() == KeyScope::ALL.len() { "all".to_owned() } else { scopes.join(" ") },
            policy,
            time("lastUsedAt", 16),
            time("expiresAt", 10),
            key.word("id").to_owned(),
        ]);
    }
    table::text(&table)
}

fn name(key: &Value) -> String {
    Clean::new(key.word("name")).to_string()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
