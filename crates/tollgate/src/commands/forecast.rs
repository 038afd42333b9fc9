//! `tollgate forecast`: how fast pools are used up, and whether they last.

use serde_json::{Value, json};

use crate::{
    cli::ForecastArgs,
    client::{Client, wait},
    exit::Exit,
    output::{Failure, Output},
    part::Part,
    table::{self, count},
};

pub(crate) fn run(args: &ForecastArgs, output: &Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.gate, args.gate.key()?)?;
    let wanted =
        args.pool.as_deref().map_or_else(String::new, |pool| format!("&pool={}", encoded(pool)));
    let all = wait(client.get(&format!("/v1/forecast?limit={MOST}{wanted}")))?;
    let data = json!({
        "as_of": all.part("as_of"),
        "forecasts": all.part("forecasts"),
        "learned_costs": all.part("learned_costs"),
    });
    Ok(output.success(&data, || shown(&data)))
}

/// How many rows are asked for.
const MOST: usize = 2000;

/// A text as it may stand in an address.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    let letter = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(letter).collect()
}

fn shown(data: &Value) -> String {
    let forecasts = data.part("forecasts").as_array().map_or(&[][..], Vec::as_slice);
    if forecasts.is_empty() {
        return "No such pool was used yet, so that there is nothing to expect.\n".to_owned();
    }
    let header =
        ["POOL", "KEY", "LEFT", "BURN", "P50", "P90", "P99", "RISK", "LEFT UNTIL THE RESET"];
    let mut table = table::new(&header, &[2, 3, 4, 5, 6, 7]);
    let mut has_little = false;
    for one in forecasts {
        let little = one.word("basis") == "little";
        has_little |= little;
        let mark = if little { "~" } else { "" };
        let left = one.part("left").as_u64().map_or_else(|| "?".to_owned(), count);
        let known = !matches!(one.word("basis"), "not_applicable" | "none");
        let if_known = |text: String| if known { text } else { "-".to_owned() };
        table.add_row([
            one.word("pool").to_owned(),
            one.part("key").as_str().unwrap_or("-").to_owned(),
            left,
            if_known(rate(one.part("burn_per_second").as_f64().unwrap_or(0.0))),
            if_known(soon(one.part("tte_p50_seconds"))),
            if_known(soon(one.part("tte_p90_seconds"))),
            if_known(soon(one.part("tte_p99_seconds"))),
            if_known(format!("{mark}{}", percent(one.part("p_exhaust").as_f64()))),
            if_known(curve(one)),
        ]);
    }
    let mut text = table::text(&table);
    if forecasts.len() >= MOST {
        text.push_str("There are more; name a pool to see them.\n");
    }
    if has_little {
        text.push_str("~ little data: the forecast is wide\n");
    }
    text.push_str(&costs(data));
    text
}

/// How much a second, in the unit of time that reads best.
fn rate(per_second: f64) -> String {
    let per = [(1.0, "s"), (60.0, "min"), (3600.0, "h")];
    let fits = per.iter().find(|(seconds, _)| per_second * seconds >= 1.0).or(per.last());
    let (seconds, unit) = fits.copied().unwrap_or((1.0, "s"));
    let rate = per_second * seconds;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative"
    )]
    match rate {
        rate if rate >= 1000.0 => format!("{}/{unit}", count(rate as u64)),
        rate => format!("{rate:.1}/{unit}"),
    }
}

/// For how long it lasts.
fn soon(seconds: &Value) -> String {
    match seconds.as_f64() {
        None => "lasts".to_owned(),
        Some(seconds) if seconds < 1.0 => "now".to_owned(),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.0} s"),
        Some(seconds) if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        Some(seconds) if seconds < 172_800.0 => format!("{:.0} h", seconds / 3600.0),
        Some(seconds) => format!("{:.0} d", seconds / 86_400.0),
    }
}

fn percent(part: Option<f64>) -> String {
    match part.unwrap_or(0.0) * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => "<1%".to_owned(),
        percent if percent > 99.0 && percent < 100.0 => ">99%".to_owned(),
        percent => format!("{percent:.0}%"),
    }
}

/// What will probably be left, from now to the reset, as little bars.
fn curve(one: &Value) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let limit = one.part("limit").as_f64().unwrap_or(0.0);
    let points = one.part("cone").as_array().map_or(&[][..], Vec::as_slice);
    if limit <= 0.0 || points.is_empty() {
        return "-".to_owned();
    }
    let bar = |point: &Value| {
        let part = (point.part("p50").as_f64().unwrap_or(0.0) / limit).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 8")]
        let place = (part * 8.0).ceil() as usize;
        BARS.get(place).copied().unwrap_or(' ')
    };
    let bars: String = points.iter().step_by(2).map(bar).collect();
    format!("|{bars}|")
}

/// How many learned costs are shown.
const MOST_COSTS: usize = 20;

/// What work takes of pools that count more than calls.
fn costs(data: &Value) -> String {
    let costs = data.part("learned_costs").as_array().map_or(&[][..], Vec::as_slice);
    if costs.is_empty() {
        return String::new();
    }
    let mut table = table::new(&["WORK", "POOL", "SEEN", "P50", "P95"], &[2, 3, 4]);
    for cost in costs.iter().take(MOST_COSTS) {
        let number = |name: &str| cost.part(name).as_u64().map_or_else(|| "-".to_owned(), count);
        table.add_row([
            cost.word("workload_id").to_owned(),
            cost.word("pool").to_owned(),
            number("samples"),
            number("p50"),
            number("p95"),
        ]);
    }
    let more = match costs.len().saturating_sub(MOST_COSTS) {
        0 => String::new(),
        more => format!("and {more} more; --json has them all\n"),
    };
    format!("\nLearned costs:\n{}{more}", table::text(&table))
}
