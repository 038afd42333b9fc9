//! `system.time`: what time it is, by the gate's clock.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Permission, SideEffect, Stability, Violations,
};

/// `system.time` takes nothing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeInput {}

/// What `system.time` gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SystemTime")]
pub struct Time {
    /// Date and time in UTC, as RFC 3339 writes them.
    pub utc: String,
    /// Milliseconds since 1970.
    pub unix_ms: i64,
}

/// Declares `system.time`.
pub fn time_declaration() -> Result<Declaration<TimeInput, Time>, Violations> {
    Declaration::new("system.time", "The current time by the gate's clock, in UTC.")
        .stability(Stability::Stable)
        .permissions([Permission::READ_PUBLIC])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
}

/// Does the work of `system.time`, at the moment `now`.
pub fn time(now: Timestamp) -> Time {
    Time { utc: format!("{now:.3}"), unix_ms: now.as_millisecond() }
}

#[cfg(test)]
mod tests {
    use tollgate_contract::schema::Schema;

    use super::*;

    #[test]
    fn the_time_is_told_in_utc_to_the_millisecond() {
        let told = time(Timestamp::from_millisecond(1_700_000_000_123).unwrap());
        assert_eq!(
            told,
            Time { utc: "2023-11-14T22:13:20.123Z".to_owned(), unix_ms: 1_700_000_000_123 }
        );
        let declared = time_declaration().unwrap();
        let schema = Schema::compile(declared.tool().output_schema.as_ref().unwrap()).unwrap();
        assert_eq!(schema.problems(&serde_json::to_value(told).unwrap()), []);
    }
}
