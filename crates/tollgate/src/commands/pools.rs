//! `tollgate pools`: what is used, held, booked and left.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cli::PoolsArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    table::{self, count},
};

pub(crate) fn run(args: &PoolsArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let all = wait(client.get("/v1/pools"))?;
    let pools: Vec<Value> = all
        .part("pools")
        .as_array()
        .into_iter()
        .flatten()
        .filter(|pool| args.pool.as_ref().is_none_or(|name| pool.word("id").starts_with(name)))
        .cloned()
        .collect();
    if let Some(wanted) = args.pool.as_ref().filter(|_| pools.is_empty()) {
        let known = all.part("pools").as_array().into_iter().flatten();
        return Err(Failure::not_found("pool", wanted, known.map(|pool| pool.word("id"))));
    }
    let data = json!({"pools": pools});
    Ok(output.success(&data, || shown(&pools)))
}

fn shown(pools: &[Value]) -> String {
    let header = ["POOL", "KEY", "USED", "HELD", "BOOKED", "LEFT", "LIMIT", "UNIT", "RESET"];
    let mut table = table::new(&header, &[2, 3, 4, 5, 6]);
    let number = |value: &Value| value.as_u64().map_or_else(|| "?".to_owned(), count);
    let mut is_estimated = false;
    for pool in pools {
        let estimated = pool.part("estimated").as_u64().unwrap_or(0) > 0;
        is_estimated |= estimated;
        let mark = if estimated { "~" } else { "" };
        let soft = if *pool.part("hard") == false { " (soft)" } else { "" };
        table.add_row([
            format!("{}{soft}", pool.word("id")),
            pool.part("key").as_str().unwrap_or("-").to_owned(),
            format!("{mark}{}", number(pool.part("used"))),
            number(pool.part("held")),
            number(pool.part("booked")),
            number(pool.part("left")),
            number(pool.part("limit")),
            pool.word("unit").to_owned(),
            reset(pool),
        ]);
    }
    let mut text = table::text(&table);
    if is_estimated {
        text.push_str("~ partly estimated: approvals that nobody settled count as spent\n");
    }
    text
}

/// When there is more again.
fn reset(pool: &Value) -> String {
    match (pool.word("window"), pool.word("reset_at").parse::<Timestamp>()) {
        ("concurrency", _) => "at once".to_owned(),
        ("sliding", _) => "sliding".to_owned(),
        ("bucket", _) if pool.part("left") == pool.part("limit") => "full".to_owned(),
        ("bucket", Ok(at)) if at <= Timestamp::now() => "when settled".to_owned(),
        (_, Ok(at)) => {
            let seconds = (at.as_second() - Timestamp::now().as_second()).max(0);
            match seconds {
                0..=119 => format!("in {seconds} s"),
                120..=7199 => format!("in {} min", seconds / 60),
                7200..=172_799 => format!("in {} h", seconds / 3600),
                _ => format!("in {} d", seconds / 86_400),
            }
        }
        _ => "unknown".to_owned(),
    }
}
