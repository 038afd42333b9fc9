//! Holding a call against the trade guardrails. A violation is refused with the guardrail's name;
//! nothing is ever clipped to fit.
//!
//! What a guardrail needs to know and the input does not say, or says in another type, counts as a
//! violation. Amounts are whole cents and whole contracts. A layer is judged by itself and the layers
//! before it, so that one that comes later can only add refusals.

use serde_json::Value;
use tollgate_contract::{
    ContractTool, Guardrail, Layer, Permission, Quoted, SideEffect, json::MAX_SAFE_INTEGER,
};

use crate::{layers::Layers, region::Region, trade::TradeGuardrails};

/// What only an order says. A tool that is named like a cancellation and is told one of these places one.
const ORDER_FIELDS: [&str; 6] =
    ["quantity", "targetQuantity", "limitPrice", "maxPrice", "action", "direction"];

/// What a contract of an event market costs at most, in cents.
const WORST_PRICE_CENTS: u64 = 100;

/// A guardrail that refuses a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violated {
    pub(crate) guardrail: Guardrail,
    pub(crate) layer: Option<Layer>,
    pub(crate) problem: String,
}

/// Holds a call against the guardrails of every layer. Gives the guardrails that were looked at, and
/// the first that is violated: layer by layer, in the order in which a policy lists them.
pub(crate) fn check(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
) -> (Vec<Guardrail>, Option<Violated>) {
    let mut checked = Vec::new();
    let violated = find_violation(tool, input, layers, &mut checked);
    (checked, violated)
}

type Section<'a> = (Layer, &'a TradeGuardrails);

fn find_violation(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
    checked: &mut Vec<Guardrail>,
) -> Option<Violated> {
    let order = Order { input };
    let kind = Kind::of(tool, &order);
    let sections: Vec<Section<'_>> = layers
        .iter()
        .filter_map(|(layer, policy)| policy.trade.as_ref().map(|trade| (layer, trade)))
        .collect();

    if tool.side_effect == SideEffect::LiveTrade {
        note(checked, Guardrail::Trade);
        if !granting(&sections).any(TradeGuardrails::guards_something) {
            return Some(Violated {
                guardrail: Guardrail::Trade,
                layer: None,
                problem: "neither the server nor the key has trade guardrails, and nothing trades \
                          real money without them"
                    .to_owned(),
            });
        }
    }
    if kind.is_trade && order.wants_auto_execute() {
        note(checked, Guardrail::AllowAutoExecute);
        if let Some((layer, problem)) = auto_execute_problem(&sections, layers) {
            return Some(Violated { guardrail: Guardrail::AllowAutoExecute, layer, problem });
        }
    }
    for (at, (layer, trade)) in sections.iter().enumerate() {
        let case = Case { trade, order: &order, tool, sections: &sections, known_to: at + 1 };
        for (guardrail, test) in tests(kind, trade) {
            note(checked, guardrail);
            if let Err(problem) = test(&case) {
                return Some(Violated { guardrail, layer: Some(*layer), problem });
            }
        }
    }
    None
}

/// The sections that can open something: those that a person wrote for the server or the key. A
/// session or a call brings its own policy, and that can only narrow.
fn granting<'a>(sections: &[Section<'a>]) -> impl Iterator<Item = &'a TradeGuardrails> {
    sections.iter().filter(|(layer, _)| *layer <= Layer::Key).map(|(_, trade)| *trade)
}

fn note(checked: &mut Vec<Guardrail>, guardrail: Guardrail) {
    if !checked.contains(&guardrail) {
        checked.push(guardrail);
    }
}

/// An intent that executes by itself is a live trade in waiting: it takes the opt-in of one.
fn auto_execute_problem(
    sections: &[Section<'_>],
    layers: &Layers,
) -> Option<(Option<Layer>, String)> {
    let refuse = |layer, problem: &str| Some((layer, problem.to_owned()));
    if granting(sections).next().is_none() {
        return refuse(
            None,
            "`autoExecute` needs a trade section of the server or the key that allows it",
        );
    }
    let refusing = sections.iter().find(|(_, trade)| trade.allow_auto_execute != Some(true));
    if let Some((layer, _)) = refusing {
        return refuse(Some(*layer), "`autoExecute` is not allowed");
    }
    if !layers.opts_into_live_trade() {
        return refuse(None, "`autoExecute` needs every layer to let `live_trade` through");
    }
    None
}

/// What a call is to the guardrails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// It places an order or an intent, or takes one back.
    is_trade: bool,
    /// It places one. What a cancellation does not say cannot make it worse.
    is_order: bool,
    /// It starts a trading runtime.
    is_start: bool,
}

impl Kind {
    fn of(tool: &ContractTool, order: &Order<'_>) -> Self {
        let name = tool.name.as_str();
        let is_trade = tool.side_effect >= SideEffect::PaperTrade
            || (tool.side_effect >= SideEffect::UserWrite
                && (tool.needs(&Permission::TRADE) || tool.needs(&Permission::EXECUTION)));
        let is_cancellation = name.ends_with(".cancel") && order.get(&ORDER_FIELDS).is_none();
        Self {
            is_trade,
            is_order: is_trade && !is_cancellation,
            is_start: name.starts_with("runtime.") && tool.side_effect >= SideEffect::Runtime,
        }
    }
}

/// One section, and what it is judged on.
struct Case<'a> {
    trade: &'a TradeGuardrails,
    order: &'a Order<'a>,
    tool: &'a ContractTool,
    sections: &'a [Section<'a>],
    /// How many of the sections are this one and those before it.
    known_to: usize,
}

type Test = fn(&Case<'_>) -> Result<(), String>;

/// The guardrails of one section that concern a call of this kind, in the order of a policy.
fn tests(kind: Kind, trade: &TradeGuardrails) -> impl Iterator<Item = (Guardrail, Test)> {
    let Kind { is_trade, is_order, is_start } = kind;
    let is_set = |flag: Option<bool>| is_order && flag == Some(true);
    let all: [(bool, Guardrail, Test); 11] = [
        (is_order && trade.allowed_venues.is_some(), Guardrail::AllowedVenues, allowed_venues),
        (is_order && trade.allowed_tickers.is_some(), Guardrail::AllowedTickers, allowed_tickers),
        (is_order && trade.max_order_cost_cents.is_some(), Guardrail::MaxOrderCostCents, max_cost),
        (is_order && trade.max_quantity.is_some(), Guardrail::MaxQuantity, max_quantity),
        (is_set(trade.require_limit_price), Guardrail::RequireLimitPrice, require_limit_price),
        (is_start, Guardrail::AllowRuntimeStart, allow_runtime_start),
        (is_set(trade.dry_run_only), Guardrail::DryRunOnly, dry_run_only),
        (is_set(trade.require_jurisdiction), Guardrail::RequireJurisdiction, require_jurisdiction),
        (is_trade && trade.jurisdiction.is_some(), Guardrail::Jurisdiction, jurisdiction),
        (
            is_order && trade.blocked_jurisdictions.is_some(),
            Guardrail::BlockedJurisdictions,
            blocked_jurisdictions,
        ),
        (is_order && trade.confirm_token.is_some(), Guardrail::ConfirmToken, confirm_token),
    ];
    all.into_iter().filter(|(applies, ..)| *applies).map(|(_, guardrail, test)| (guardrail, test))
}

/// Passes when `holds`, else tells the problem.
fn require(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// What an input says about a trade, under the names that trading tools use.
struct Order<'a> {
    input: &'a Value,
}

impl<'a> Order<'a> {
    /// The first of these names that is given, with what it says. Null counts as absent.
    fn get(&self, names: &[&str]) -> Option<(&'a str, &'a Value)> {
        let map = self.input.as_object()?;
        names.iter().find_map(|name| {
            let (key, value) = map.get_key_value(*name)?;
            (!value.is_null()).then_some((key.as_str(), value))
        })
    }

    fn text(&self, names: &[&str], what: &str) -> Result<&'a str, String> {
        match self.get(names) {
            None => Err(format!("the input does not say {what} (`{}`)", names.join("` or `"))),
            Some((name, value)) => value.as_str().ok_or_else(|| format!("`{name}` is not a text")),
        }
    }

    /// Every whole number that is given under these names. A tool may read either name, so whatever
    /// is said under each of them counts.
    fn whole(&self, names: &[&str]) -> Result<Vec<u64>, String> {
        let given = names.iter().filter_map(|name| self.get(&[name]));
        given
            .map(|(name, value)| {
                whole(value).ok_or_else(|| format!("`{name}` is not a whole number from 0"))
            })
            .collect()
    }

    /// The largest quantity that the order gives.
    fn quantity(&self) -> Result<u64, String> {
        let given = self.whole(&["quantity", "targetQuantity"])?;
        given
            .into_iter()
            .max()
            .ok_or_else(|| "the input does not say how many (`quantity`)".to_owned())
    }

    fn limit_prices(&self) -> Result<Vec<u64>, String> {
        let prices = self.whole(&["limitPrice", "maxPrice"])?;
        match prices.iter().find(|price| !(1..=99).contains(*price)) {
            Some(price) => Err(format!("a limit price of {price} cents is not between 1 and 99")),
            None => Ok(prices),
        }
    }

    /// The most that the order can cost: a buyer pays the price, a seller may owe the rest of it.
    fn worst_cost_cents(&self) -> Result<u64, String> {
        let action = self.get(&["action"]).and_then(|(_, action)| action.as_str());
        let prices = self.limit_prices()?.into_iter().map(|price| match action {
            Some("buy") => price,
            _ => price.max(WORST_PRICE_CENTS.saturating_sub(price)),
        });
        let price = prices.max().unwrap_or(WORST_PRICE_CENTS);
        Ok(self.quantity()?.saturating_mul(price))
    }

    /// Anything but a plain false, or silence, wants it.
    fn wants_auto_execute(&self) -> bool {
        self.get(&["autoExecute"]).is_some_and(|(_, value)| *value != Value::Bool(false))
    }

    /// Where the order says that it is from.
    fn jurisdiction(&self) -> Result<Option<Region>, String> {
        match self.get(&["jurisdiction"]) {
            None => Ok(None),
            Some((_, Value::String(place))) if place.trim().is_empty() => Ok(None),
            Some((_, Value::String(place))) => Region::parse(place).map(Some),
            Some(_) => Err("`jurisdiction` is not a text".to_owned()),
        }
    }
}

/// A whole number from 0, also when it is written as `5.0`.
fn whole(value: &Value) -> Option<u64> {
    let is_whole =
        |float: &f64| *float >= 0.0 && float.fract() == 0.0 && *float <= MAX_SAFE_INTEGER as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole, positive and small"
    )]
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|float| float as u64))
}

fn allowed_venues(case: &Case<'_>) -> Result<(), String> {
    let venue = case.order.text(&["venue"], "the venue")?;
    let allowed = case.trade.allowed_venues.iter().flatten();
    require(allowed.into_iter().any(|name| name.eq_ignore_ascii_case(venue)), || {
        format!("the venue {} is not on the list", Quoted::new(venue))
    })
}

/// An order may name what it trades in more than one way; every name it gives must be allowed.
fn allowed_tickers(case: &Case<'_>) -> Result<(), String> {
    const NAMES: [&str; 3] = ["ticker", "marketId", "tokenId"];
    case.order.text(&NAMES, "what is traded")?;
    for name in NAMES.into_iter().filter(|name| case.order.get(&[name]).is_some()) {
        let ticker = case.order.text(&[name], "what is traded")?;
        let mut allowed = case.trade.allowed_tickers.iter().flatten();
        require(allowed.any(|pattern| ticker_matches(pattern, ticker)), || {
            format!("the ticker {} is not on the list", Quoted::new(ticker))
        })?;
    }
    Ok(())
}

fn ticker_matches(pattern: &str, ticker: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => {
            ticker.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
        }
        None => pattern.eq_ignore_ascii_case(ticker),
    }
}

fn max_cost(case: &Case<'_>) -> Result<(), String> {
    let most = case.trade.max_order_cost_cents.unwrap_or_default();
    let cost = case.order.worst_cost_cents()?;
    require(cost <= most, || format!("the order can cost {cost} cents, and {most} is the most"))
}

fn max_quantity(case: &Case<'_>) -> Result<(), String> {
    let most = case.trade.max_quantity.unwrap_or_default();
    let quantity = case.order.quantity()?;
    require(quantity <= most, || {
        format!("the order is for {quantity} contracts, and {most} is the most")
    })
}

fn require_limit_price(case: &Case<'_>) -> Result<(), String> {
    require(!case.order.limit_prices()?.is_empty(), || {
        "the order has no limit price (`limitPrice`)".to_owned()
    })
}

fn allow_runtime_start(case: &Case<'_>) -> Result<(), String> {
    require(case.trade.allow_runtime_start == Some(true), || {
        "starting a trading runtime is not allowed".to_owned()
    })
}

fn dry_run_only(case: &Case<'_>) -> Result<(), String> {
    let is_dry = case.order.get(&["dryRun"]).is_some_and(|(_, value)| *value == Value::Bool(true));
    require(is_dry || case.tool.side_effect != SideEffect::LiveTrade, || {
        "only dry runs are allowed (`dryRun: true`)".to_owned()
    })
}

/// Is it known where the order is from: by the input, this layer or one before it?
fn is_place_known(case: &Case<'_>) -> Result<bool, String> {
    let said = case.order.jurisdiction()?.is_some();
    let mut declared = case.sections.iter().take(case.known_to);
    Ok(said || declared.any(|(_, trade)| trade.jurisdiction.is_some()))
}

fn require_jurisdiction(case: &Case<'_>) -> Result<(), String> {
    require(is_place_known(case)?, || "the jurisdiction is not known (`jurisdiction`)".to_owned())
}

fn jurisdiction(case: &Case<'_>) -> Result<(), String> {
    match (case.order.jurisdiction()?, &case.trade.jurisdiction) {
        (Some(said), Some(declared)) if said != *declared => {
            Err(format!("the order says {said}, and the policy says {declared}"))
        }
        _ => Ok(()),
    }
}

fn blocked_jurisdictions(case: &Case<'_>) -> Result<(), String> {
    require(is_place_known(case)?, || {
        "the jurisdiction is not known, so it may be a blocked one (`jurisdiction`)".to_owned()
    })?;
    let said = case.order.jurisdiction()?;
    // A place that any layer declares counts here, also a later one's: it can only block more.
    let declared = case.sections.iter().filter_map(|(_, trade)| trade.jurisdiction.as_ref());
    let mut places = said.iter().chain(declared);
    let blocked: Vec<&Region> = case.trade.blocked_jurisdictions.iter().flatten().collect();
    match places.find(|place| blocked.iter().any(|block| place.overlaps(block))) {
        Some(place) => Err(format!("the jurisdiction {place} is blocked, or a part of it is")),
        None => Ok(()),
    }
}

fn confirm_token(case: &Case<'_>) -> Result<(), String> {
    let word = case.order.get(&["confirm"]).and_then(|(_, value)| value.as_str());
    let confirmed = match (&case.trade.confirm_token, word) {
        (Some(token), Some(word)) => token.matches(word),
        _ => false,
    };
    require(confirmed, || "the order does not repeat the confirmation word (`confirm`)".to_owned())
}
