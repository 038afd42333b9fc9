//! `tollgate identities`: the credentials that the governor knows.

use serde_json::{Map, Value};

use crate::{
    cli::IdentityCommand,
    client::{self, Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    place::GateArgs,
    table,
};

pub(crate) fn run(
    command: Option<IdentityCommand>,
    gate: &GateArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let client = |gate: &GateArgs| Client::new(gate, gate.key()?);
    match command {
        None => {
            let client = client(gate)?;
            let all = wait(client.get("/v1/identities"))?;
            Ok(output.success(&all, || list(all.part("identities"))))
        }
        Some(IdentityCommand::Register(args)) => {
            let mut body = Map::new();
            body.insert("identity_id".to_owned(), args.name.into());
            for (name, text) in [("group", args.group), ("kind", args.kind)] {
                body.extend(text.map(|text| (name.to_owned(), Value::from(text))));
            }
            let made = wait(client(&args.gate)?.post("/v1/identities", &Value::Object(body)))?;
            Ok(output.success(&made, || format!("{} is known.\n", made.word("identity_id"))))
        }
        Some(IdentityCommand::Delete(args)) => {
            let path = format!("/v1/identities/{}", client::in_path(&args.name));
            let gone = wait(client(&args.gate)?.delete(&path))?;
            Ok(output.success(&gone, || {
                format!(
                    "{} is forgotten. The record of what was done stays, under a name that leads nowhere.\n",
                    args.name
                )
            }))
        }
    }
}

fn list(identities: &Value) -> String {
    let mut table = table::new(&["IDENTITY", "GROUP", "KIND", "SINCE", "IN EVENTS"], &[]);
    for identity in identities.as_array().into_iter().flatten() {
        let or_none = |name: &str| identity.part(name).as_str().unwrap_or("-").to_owned();
        table.add_row([
            identity.word("identity_id").to_owned(),
            or_none("group"),
            or_none("kind"),
            identity.word("since").get(..16).unwrap_or_default().replace('T', " "),
            identity.word("pseudonym").to_owned(),
        ]);
    }
    table::text(&table)
}
