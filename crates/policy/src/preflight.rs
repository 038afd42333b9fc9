//! What can be done without a key. An SDK asks this before any request leaves the process; the gate
//! asks it again.

use tollgate_contract::{ContractTool, CostEffect, Mode, Permission, SideEffect, Surface};

/// Does calling `tool` on this surface, in this mode, need a key?
///
/// Without one: looking at contracts, replaying, and on the SDK surface a tool that is on the
/// anonymous allowlist and has no effects and no user data. A mistake in one field of a contract does
/// not open a tool: all of them must agree.
pub fn needs_key(tool: &ContractTool, surface: Surface, mode: Mode) -> bool {
    match (mode, surface) {
        (Mode::InspectOnly | Mode::ReplayOnly, _) => false,
        (Mode::Live, Surface::Agent) => true,
        (Mode::Live, Surface::Sdk) => !is_free_for_everyone(tool),
    }
}

fn is_free_for_everyone(tool: &ContractTool) -> bool {
    tool.access.anonymous_allowed
        && !tool.auth_required
        && tool.side_effect == SideEffect::None
        && tool.cost_effect == CostEffect::None
        && !tool.needs(&Permission::USER_DATA)
}
