//! The approval step of a call: a person is asked, and the call waits for the answer or comes back for it.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tollgate_consent::{Asked, Item, ItemState, What};
use tollgate_contract::{
    Error, Facts, canonical,
    error::{ApprovalDenied, Internal},
    id::ApprovalId,
    redact::redacted,
    text::{Clean, hex},
    verdict::AskMatch,
};

use crate::{
    Principal,
    admit::{Arrived, told_item},
    consent::{account, refused},
    gate::Inner,
    record::bounded,
    registry::Tool,
};

/// What the approval step came to.
pub(crate) enum Approval {
    /// Nobody need be asked.
    NotNeeded,
    /// A person has said yes.
    Given(Given),
    /// A person was asked, and has not answered within the caller's patience.
    Waits(Box<Item>),
}

/// A yes that is set aside for one call. It is given back unless the call starts.
pub(crate) struct Given {
    gate: Arc<Inner>,
    pub(crate) id: ApprovalId,
    /// How many people have said yes.
    approvers: u8,
}

impl Drop for Given {
    fn drop(&mut self) {
        // It makes no difference to one that was used.
        self.gate.consents.state().give_back(self.id);
    }
}

impl Given {
    /// Is it still enough?
    pub(crate) fn suffices(&self, asks: &[AskMatch]) -> bool {
        let now = self.gate.clock.now_ms();
        let state = self.gate.consents.state();
        let counts = state.item(self.id).is_some_and(|item| item.state(now) == ItemState::Approved);
        counts && approvers(asks) <= self.approvers
    }
}

/// How many people must say yes.
fn approvers(asks: &[AskMatch]) -> u8 {
    asks.iter().map(|ask| ask.approvers).max().unwrap_or(1)
}

/// What there is for a call.
enum Found {
    Yes(Given),
    Waits(Box<Item>),
    No(Error),
    /// It was used by another call.
    Gone,
    Nothing,
}

impl Arrived {
    /// Asks a person where a policy wants it.
    pub(crate) async fn approval(
        &mut self,
        principal: &Principal,
        tool: &Tool,
        asks: Vec<AskMatch>,
    ) -> Result<Approval, Error> {
        if asks.is_empty() {
            self.explain.pass(Facts::Approval { matched: asks, approval: None });
            return Ok(Approval::NotNeeded);
        }
        let binding = self.binding(principal, tool)?;
        let end = tokio::time::Instant::now() + self.options.wait;
        let mut changes = self.gate.consents.changes();
        let mut waits_for = self.options.approval;
        loop {
            changes.borrow_and_update();
            let facts = |id| Facts::Approval { matched: asks.clone(), approval: Some(id) };
            let layer = asks.first().map(|ask| ask.layer);
            let found = self.found(principal, tool, &binding, waits_for, &asks)?;
            if matches!(found, Found::Gone) && self.options.approval.is_none() {
                // The same call was made twice, and the other one has used the answer: this one is asked anew.
                waits_for = None;
                continue;
            }
            match found {
                Found::Yes(given) => {
                    self.explain.pass(facts(given.id));
                    return Ok(Approval::Given(given));
                }
                Found::Gone => {
                    let id = waits_for.unwrap_or_else(|| ApprovalId::from_parts(0, [0; 10]));
                    self.explain.refuse(layer, facts(id));
                    return Err(denied(tool, id, "it was used by another call"));
                }
                Found::No(error) => {
                    let id = waits_for.unwrap_or_else(|| ApprovalId::from_parts(0, [0; 10]));
                    self.explain.refuse(layer, facts(id));
                    return Err(error);
                }
                Found::Nothing if self.gate.closing.is_cancelled() => {
                    return Err(self.stopped(tool.contract.name.clone()));
                }
                Found::Nothing => {
                    let item = self.ask_people(principal, tool, &binding, &asks).await?;
                    waits_for = Some(item);
                }
                Found::Waits(item) => {
                    waits_for = Some(item.asked.id);
                    // A gate that stops does not keep anybody waiting for a person.
                    if tokio::time::Instant::now() >= end || self.gate.closing.is_cancelled() {
                        self.explain.ask(layer, facts(item.asked.id));
                        return Ok(Approval::Waits(item));
                    }
                    if !self.has_waited {
                        self.tell_waiting(|| json!({"waits": told_item(&item)}));
                    }
                    self.has_waited = true;
                    let left = item.ends_ms() - self.gate.clock.now_ms();
                    let left = Duration::from_millis(u64::try_from(left).unwrap_or(0).max(1));
                    tokio::select! {
                        _ = changes.changed() => {}
                        () = tokio::time::sleep(left) => {}
                        () = tokio::time::sleep_until(end) => {}
                        () = self.gate.closing.cancelled() => {}
                        () = self.cancelled.cancelled() => {
                            return Err(self.stopped(tool.contract.name.clone()));
                        }
                    }
                }
            }
        }
    }

    /// What an answer is bound to: the caller, the session, the tool and the exact input.
    fn binding(&self, principal: &Principal, tool: &Tool) -> Result<String, Error> {
        let (key, _) = account(principal)?;
        let input = canonical::canonical(&self.call.input)
            .map_err(|_| Internal::new("an input without a canonical form was let through"))?;
        let session = self
            .call
            .session
            .as_deref()
            .map_or([b"-", "".as_bytes()], |session| [b"s", session.as_bytes()]);
        let [kind, session] = session;
        let key = key.to_string();
        let parts: [&[u8]; 6] = [
            b"approval",
            key.as_bytes(),
            kind,
            session,
            tool.contract.name.as_str().as_bytes(),
            input.as_bytes(),
        ];
        Ok(hex(&self.gate.seal.hash(&parts)).to_string())
    }

    /// What there is: by its name, or by what it is bound to.
    fn found(
        &self,
        principal: &Principal,
        tool: &Tool,
        binding: &str,
        wanted: Option<ApprovalId>,
        asks: &[AskMatch],
    ) -> Result<Found, Error> {
        let (key, _) = account(principal)?;
        let now = self.gate.clock.now_ms();
        let needed = approvers(asks);
        let mut state = self.gate.consents.state();
        let item = match wanted {
            Some(id) => state.item(id).filter(|item| item.asked.key == key).cloned(),
            None => state.of_call(key, binding, needed, now).cloned(),
        };
        let item = item.or_else(|| match wanted {
            // A no holds for the same call until its time is over.
            None => state.denied(key, binding, now).cloned(),
            Some(_) => None,
        });
        let Some(item) = item else {
            return Ok(match wanted {
                Some(id) => Found::No(denied(tool, id, "there is no such approval for this key")),
                None => Found::Nothing,
            });
        };
        let id = item.asked.id;
        let no = |problem: &str| Ok(Found::No(denied(tool, id, problem)));
        if item.binding() != Some(binding) {
            return no(
                "it was for another call: the tool, the session or the arguments have changed",
            );
        }
        if item.asked.approvers < needed {
            return no("it was for fewer people than must answer now; ask again");
        }
        match item.state(now) {
            ItemState::Pending => Ok(Found::Waits(Box::new(item))),
            ItemState::Approved if state.take(id, now) => {
                let gate = Arc::clone(&self.gate);
                Ok(Found::Yes(Given { gate, id, approvers: item.asked.approvers }))
            }
            // Another call has it and may give it back.
            ItemState::Approved if wanted == self.options.approval && wanted.is_some() => {
                Ok(Found::Waits(Box::new(item)))
            }
            ItemState::Approved | ItemState::Used => Ok(Found::Gone),
            ItemState::Expired => no("nobody answered in time, or the answer was not used in time"),
            ItemState::Denied => {
                let last = item.answers.last();
                let who = last.map_or("a person", |answer| answer.by_name.as_str());
                let why = last.and_then(|answer| answer.reason.as_deref());
                no(&why.map_or(format!("{who} said no"), |why| format!("{who} said no: {why}")))
            }
        }
    }

    /// Asks people, unless somebody has asked the same meanwhile.
    async fn ask_people(
        &self,
        principal: &Principal,
        tool: &Tool,
        binding: &str,
        asks: &[AskMatch],
    ) -> Result<ApprovalId, Error> {
        let _turn = self.gate.changing.lock().await;
        let (key, key_name) = account(principal)?;
        let now = self.gate.clock.now_ms();
        let approvers = approvers(asks);
        let known = self.gate.consents.state().of_call(key, binding, approvers, now).cloned();
        if let Some(item) = known {
            return Ok(item.asked.id);
        }
        let contract = &tool.contract;
        let hash = self.input_hash.ok_or_else(|| Internal::new("an input without a hash"))?;
        let mut shown = redacted(&self.call.input).into_owned();
        shorten(&mut shown);
        let shown = bounded(std::borrow::Cow::Owned(shown)).into_owned();
        let asked = Asked {
            id: self.gate.approval_id()?,
            what: What::Call {
                tool: contract.name.clone(),
                side_effect: contract.side_effect,
                cost_effect: contract.cost_effect,
                hidden: shown != self.call.input,
                input: shown,
                input_hash: hash,
                binding: binding.to_owned(),
                call: self.about.call_id,
                run: self.about.run_id,
                because: asks
                    .iter()
                    .filter_map(|ask| ask.reason.as_ref().map(ToString::to_string))
                    .collect(),
            },
            key,
            key_name,
            session: self.call.session.clone(),
            reason: None,
            approvers,
            since_ms: now,
            until_ms: now + self.gate.consents.answer_within_ms(),
        };
        let id = asked.id;
        let change = self.gate.consents.state().ask(asked).map_err(refused)?;
        self.gate.consent(&[change]).await?;
        Ok(id)
    }
}

/// The most of one text that a person is shown.
const MOST_SHOWN: usize = 2_000;

/// Cuts long texts of an input, so that the rest of it can be shown to a person all the same.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            if length > MOST_SHOWN {
                let head: String = text.chars().take(MOST_SHOWN).collect();
                *text = format!("{head}… ({length} characters in all)");
            }
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(members) => members.values_mut().for_each(shorten),
        _ => {}
    }
}

fn denied(tool: &Tool, id: ApprovalId, problem: &str) -> Error {
    ApprovalDenied::new(tool.contract.name.clone(), id, Clean::new(problem)).into()
}
