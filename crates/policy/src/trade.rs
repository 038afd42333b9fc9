//! Trade guardrails. A violation is refused with the guardrail's name; nothing is ever clipped to fit.
//!
//! What a guardrail needs to know and the input does not say, or says in another type, counts as a
//! violation. Amounts are whole cents and whole contracts.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tollgate_contract::{ContractTool, Guardrail, Layer, Permission, Quoted, SideEffect};

use crate::layers::Layers;

/// What a contract of an event market costs at most, in cents.
const WORST_PRICE_CENTS: u64 = 100;

/// What one layer says about trades. Whatever is absent adds nothing, except that `allow…` must be
/// said to be true.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TradeGuardrails {
    /// Venues that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_venues: Option<Vec<String>>,
    /// Tickers that may be traded; a trailing `*` stands for any rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tickers: Option<Vec<String>>,
    /// Most that one order may cost, in cents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_order_cost_cents: Option<u64>,
    /// Most contracts that one order may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_quantity: Option<u64>,
    /// Every order needs a limit price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_limit_price: Option<bool>,
    /// May an intent execute by itself?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_auto_execute: Option<bool>,
    /// May a trading runtime be started?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_runtime_start: Option<bool>,
    /// Only dry runs of live trades.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run_only: Option<bool>,
    /// The jurisdiction must be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_jurisdiction: Option<bool>,
    /// The jurisdiction that orders are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jurisdiction: Option<String>,
    /// Jurisdictions that may not trade; `US` blocks `US-NY` too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_jurisdictions: Option<Vec<String>>,
    /// A word that every order must repeat as `confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_token: Option<ConfirmToken>,
}

/// A word that an order must repeat. Only its SHA-256 is kept and written.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfirmToken([u8; 32]);

/// What marks a token that is already hashed.
const HASHED: &str = "sha256:";

impl ConfirmToken {
    /// Keeps the hash of `word`.
    pub fn of(word: &str) -> Self {
        Self(Sha256::digest(word.as_bytes()).into())
    }

    fn matches(&self, word: &str) -> bool {
        self.0.ct_eq(&Self::of(word).0).into()
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("`confirmToken` must not be empty");
        }
        let Some(digits) = text.strip_prefix(HASHED) else {
            return Ok(Self::of(text));
        };
        let hash = tollgate_contract::InputHash::parse(digits)
            .ok_or("`sha256:` must be followed by 64 lower-case hex digits")?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl fmt::Debug for ConfirmToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfirmToken(…)")
    }
}

impl Serialize for ConfirmToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&format!("{HASHED}{hex}"))
    }
}

impl<'de> Deserialize<'de> for ConfirmToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl TradeGuardrails {
    /// Is anything limited here? An empty section guards nothing.
    fn guards_something(&self) -> bool {
        self.allowed_venues.is_some()
            || self.allowed_tickers.is_some()
            || self.max_order_cost_cents.is_some()
            || self.max_quantity.is_some()
            || self.require_limit_price == Some(true)
            || self.dry_run_only == Some(true)
            || self.require_jurisdiction == Some(true)
            || self.blocked_jurisdictions.is_some()
            || self.confirm_token.is_some()
    }
}

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

fn find_violation(
    tool: &ContractTool,
    input: &Value,
    layers: &Layers,
    checked: &mut Vec<Guardrail>,
) -> Option<Violated> {
    let kind = Kind::of(tool)?;
    let sections: Vec<(Layer, &TradeGuardrails)> = layers
        .iter()
        .filter_map(|(layer, policy)| policy.trade.as_ref().map(|trade| (layer, trade)))
        .collect();
    let order = Order { input };
    let violated = |guardrail, layer, problem: String| Some(Violated { guardrail, layer, problem });

    if tool.side_effect == SideEffect::LiveTrade {
        note(checked, Guardrail::Trade);
        if !sections.iter().any(|(_, trade)| trade.guards_something()) {
            return violated(
                Guardrail::Trade,
                None,
                "no layer has trade guardrails, and nothing trades real money without them"
                    .to_owned(),
            );
        }
    }
    if kind != Kind::RuntimeStart && order.wants_auto_execute() {
        note(checked, Guardrail::AllowAutoExecute);
        if let Some((layer, problem)) = auto_execute_problem(&sections, layers) {
            return violated(Guardrail::AllowAutoExecute, layer, problem);
        }
    }
    let known = order.known_jurisdictions(&sections);
    for (layer, trade) in &sections {
        for (guardrail, test) in tests(kind, trade) {
            note(checked, guardrail);
            if let Err(problem) = test(trade, &order, &known, tool) {
                return violated(guardrail, Some(*layer), problem);
            }
        }
    }
    None
}

fn note(checked: &mut Vec<Guardrail>, guardrail: Guardrail) {
    if !checked.contains(&guardrail) {
        checked.push(guardrail);
    }
}

/// An intent that executes by itself is a live trade in waiting: it takes the opt-in of one.
fn auto_execute_problem(
    sections: &[(Layer, &TradeGuardrails)],
    layers: &Layers,
) -> Option<(Option<Layer>, String)> {
    if sections.is_empty() {
        return Some((
            None,
            "`autoExecute` needs a trade section that allows it, and no layer has one".to_owned(),
        ));
    }
    let refusing = sections.iter().find(|(_, trade)| trade.allow_auto_execute != Some(true));
    if let Some((layer, _)) = refusing {
        return Some((Some(*layer), "`autoExecute` is not allowed".to_owned()));
    }
    (!layers.opts_into_live_trade())
        .then(|| (None, "`autoExecute` needs every layer to let `live_trade` through".to_owned()))
}

/// What a call is to the guardrails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It places an order or an intent.
    Order,
    /// It takes one back. What it does not say cannot make it worse.
    Cancellation,
    /// It starts a trading runtime.
    RuntimeStart,
}

impl Kind {
    /// What calls of `tool` are; `None` for tools that guardrails do not concern.
    fn of(tool: &ContractTool) -> Option<Self> {
        let name = tool.name.as_str();
        if name.starts_with("runtime.") && tool.side_effect >= SideEffect::Runtime {
            return Some(Self::RuntimeStart);
        }
        let trades = tool.side_effect >= SideEffect::PaperTrade
            || (tool.side_effect >= SideEffect::UserWrite && tool.needs(&Permission::TRADE));
        trades.then_some(if name.ends_with(".cancel") { Self::Cancellation } else { Self::Order })
    }
}

type Test = fn(&TradeGuardrails, &Order<'_>, &[&str], &ContractTool) -> Result<(), String>;

/// The guardrails of one section that concern a call of this kind, in the order of a policy.
fn tests(kind: Kind, trade: &TradeGuardrails) -> Vec<(Guardrail, Test)> {
    let is_order = kind == Kind::Order;
    let is_trade = kind != Kind::RuntimeStart;
    let all: [(bool, Guardrail, Test); 11] = [
        (is_order && trade.allowed_venues.is_some(), Guardrail::AllowedVenues, allowed_venues),
        (is_order && trade.allowed_tickers.is_some(), Guardrail::AllowedTickers, allowed_tickers),
        (
            is_order && trade.max_order_cost_cents.is_some(),
            Guardrail::MaxOrderCostCents,
            max_order_cost,
        ),
        (is_order && trade.max_quantity.is_some(), Guardrail::MaxQuantity, max_quantity),
        (
            is_order && trade.require_limit_price == Some(true),
            Guardrail::RequireLimitPrice,
            require_limit_price,
        ),
        (kind == Kind::RuntimeStart, Guardrail::AllowRuntimeStart, allow_runtime_start),
        (is_order && trade.dry_run_only == Some(true), Guardrail::DryRunOnly, dry_run_only),
        (
            is_order && trade.require_jurisdiction == Some(true),
            Guardrail::RequireJurisdiction,
            require_jurisdiction,
        ),
        (is_trade && trade.jurisdiction.is_some(), Guardrail::Jurisdiction, jurisdiction),
        (
            is_order && trade.blocked_jurisdictions.is_some(),
            Guardrail::BlockedJurisdictions,
            blocked_jurisdictions,
        ),
        (is_order && trade.confirm_token.is_some(), Guardrail::ConfirmToken, confirm_token),
    ];
    all.into_iter()
        .filter(|(applies, ..)| *applies)
        .map(|(_, guardrail, test)| (guardrail, test))
        .collect()
}

/// What an input says about a trade, under the names that trading tools use.
struct Order<'a> {
    input: &'a Value,
}

impl<'a> Order<'a> {
    fn get(&self, names: &[&str]) -> Option<(&'a str, &'a Value)> {
        let map = self.input.as_object()?;
        names.iter().find_map(|name| {
            map.get_key_value(*name)
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.as_str(), value))
        })
    }

    fn text(&self, names: &[&str], what: &str) -> Result<&'a str, String> {
        match self.get(names) {
            None => Err(format!("the input does not say {what} (`{}`)", names.join("` or `"))),
            Some((name, value)) => value.as_str().ok_or_else(|| format!("`{name}` is not a text")),
        }
    }

    fn whole(&self, names: &[&str]) -> Result<Option<u64>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((name, value)) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| format!("`{name}` is not a whole number from 0")),
        }
    }

    fn quantity(&self) -> Result<u64, String> {
        self.whole(&["quantity", "targetQuantity"])?
            .ok_or_else(|| "the input does not say how many (`quantity`)".to_owned())
    }

    fn limit_price(&self) -> Result<Option<u64>, String> {
        match self.whole(&["limitPrice", "maxPrice"])? {
            Some(price) if !(1..=99).contains(&price) => {
                Err(format!("a limit price of {price} cents is not between 1 and 99"))
            }
            price => Ok(price),
        }
    }

    /// The most that the order can cost: a buyer pays the price, a seller may owe the rest of it.
    fn worst_cost_cents(&self) -> Result<u64, String> {
        let quantity = self.quantity()?;
        let price = match (
            self.limit_price()?,
            self.get(&["action"]).and_then(|(_, action)| action.as_str()),
        ) {
            (None, _) => WORST_PRICE_CENTS,
            (Some(price), Some("buy")) => price,
            (Some(price), _) => price.max(WORST_PRICE_CENTS.saturating_sub(price)),
        };
        Ok(quantity.saturating_mul(price))
    }

    /// Anything but a plain false, or silence, wants it.
    fn wants_auto_execute(&self) -> bool {
        self.get(&["autoExecute"]).is_some_and(|(_, value)| *value != Value::Bool(false))
    }

    /// What the input and the layers say about where the order is from.
    fn known_jurisdictions<'b>(&self, sections: &[(Layer, &'b TradeGuardrails)]) -> Vec<&'b str>
    where
        'a: 'b,
    {
        let said = self.get(&["jurisdiction"]).and_then(|(_, value)| value.as_str());
        said.into_iter()
            .chain(sections.iter().filter_map(|(_, trade)| trade.jurisdiction.as_deref()))
            .collect()
    }
}

fn allowed_venues(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    let venue = order.text(&["venue"], "the venue")?;
    let allowed =
        trade.allowed_venues.iter().flatten().any(|name| name.eq_ignore_ascii_case(venue));
    if allowed {
        Ok(())
    } else {
        Err(format!("the venue {} is not on the list", Quoted::new(venue)))
    }
}

/// An order may name what it trades in more than one way; every name it gives must be allowed.
fn allowed_tickers(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    const NAMES: [&str; 3] = ["ticker", "marketId", "tokenId"];
    order.text(&NAMES, "what is traded")?;
    for name in NAMES {
        let Some((_, value)) = order.get(&[name]) else {
            continue;
        };
        let ticker = value.as_str().ok_or_else(|| format!("`{name}` is not a text"))?;
        if !trade.allowed_tickers.iter().flatten().any(|pattern| ticker_matches(pattern, ticker)) {
            return Err(format!("the ticker {} is not on the list", Quoted::new(ticker)));
        }
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

fn max_order_cost(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    let most = trade.max_order_cost_cents.unwrap_or_default();
    let cost = order.worst_cost_cents()?;
    if cost <= most {
        Ok(())
    } else {
        Err(format!("the order can cost {cost} cents, and {most} is the most"))
    }
}

fn max_quantity(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    let most = trade.max_quantity.unwrap_or_default();
    let quantity = order.quantity()?;
    if quantity <= most {
        Ok(())
    } else {
        Err(format!("the order is for {quantity} contracts, and {most} is the most"))
    }
}

fn require_limit_price(
    _: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    match order.limit_price()? {
        Some(_) => Ok(()),
        None => Err("the order has no limit price (`limitPrice`)".to_owned()),
    }
}

fn allow_runtime_start(
    trade: &TradeGuardrails,
    _: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    if trade.allow_runtime_start == Some(true) {
        Ok(())
    } else {
        Err("starting a trading runtime is not allowed".to_owned())
    }
}

fn dry_run_only(
    _: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    tool: &ContractTool,
) -> Result<(), String> {
    let is_dry = order.get(&["dryRun"]).is_some_and(|(_, value)| *value == Value::Bool(true));
    if is_dry || tool.side_effect != SideEffect::LiveTrade {
        Ok(())
    } else {
        Err("only dry runs are allowed (`dryRun: true`)".to_owned())
    }
}

fn require_jurisdiction(
    _: &TradeGuardrails,
    order: &Order<'_>,
    known: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    order.jurisdiction_is_text()?;
    if known.is_empty() {
        Err("the jurisdiction is not known (`jurisdiction`)".to_owned())
    } else {
        Ok(())
    }
}

fn jurisdiction(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    order.jurisdiction_is_text()?;
    let declared = trade.jurisdiction.as_deref().unwrap_or_default();
    match order.get(&["jurisdiction"]).and_then(|(_, value)| value.as_str()) {
        Some(said) if !said.eq_ignore_ascii_case(declared) => Err(format!(
            "the order says {}, and the policy says {}",
            Quoted::new(said),
            Quoted::new(declared)
        )),
        _ => Ok(()),
    }
}

fn blocked_jurisdictions(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    known: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    order.jurisdiction_is_text()?;
    if known.is_empty() {
        return Err(
            "the jurisdiction is not known, so it may be a blocked one (`jurisdiction`)".to_owned()
        );
    }
    let blocked = known.iter().find(|place| {
        trade.blocked_jurisdictions.iter().flatten().any(|block| lies_in(place, block))
    });
    match blocked {
        Some(place) => Err(format!("the jurisdiction {} is blocked", Quoted::new(place))),
        None => Ok(()),
    }
}

impl Order<'_> {
    fn jurisdiction_is_text(&self) -> Result<(), String> {
        match self.get(&["jurisdiction"]) {
            Some((_, value)) if !value.is_string() => {
                Err("`jurisdiction` is not a text".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Is `place` the region `block` or a part of it, as `US-NY` is of `US`?
fn lies_in(place: &str, block: &str) -> bool {
    let (place, block) = (place.trim().to_ascii_lowercase(), block.trim().to_ascii_lowercase());
    place == block || place.strip_prefix(&block).is_some_and(|rest| rest.starts_with('-'))
}

fn confirm_token(
    trade: &TradeGuardrails,
    order: &Order<'_>,
    _: &[&str],
    _: &ContractTool,
) -> Result<(), String> {
    let word = order.get(&["confirm"]).and_then(|(_, value)| value.as_str());
    let confirmed = match (&trade.confirm_token, word) {
        (Some(token), Some(word)) => token.matches(word),
        _ => false,
    };
    if confirmed {
        Ok(())
    } else {
        Err("the order does not repeat the confirmation word (`confirm`)".to_owned())
    }
}

#[cfg(test)]
#[path = "trade_tests.rs"]
mod tests;
