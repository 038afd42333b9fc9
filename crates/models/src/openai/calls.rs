//! Which call a piece of one belongs to.
//!
//! The index of a call should say so. Some servers leave it out, some give all calls the same, some repeat the id with
//! every piece and some give none.

use tollgate_contract::text::Clean;

use crate::{chat::MOST_CALLS, error::ModelError};

/// The calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    named: bool,
}

impl Calls {
    /// The place of the call that a piece with this index, id and name belongs to, and whether its name is news.
    pub(super) fn place(
        &mut self,
        index: Option<u64>,
        id: Option<&str>,
        has_name: bool,
    ) -> Result<(usize, bool), ModelError> {
        let place = self.known(index, id, has_name);
        let place = match place {
            Some(place) => place,
            None if self.0.len() < MOST_CALLS => {
                self.0.push(Call { index, id: None, named: false });
                self.0.len() - 1
            }
            None => {
                let problem = format!("it has more than {MOST_CALLS} calls");
                return Err(ModelError::TooLarge(Clean::already(problem)));
            }
        };
        let mut names = false;
        if let Some(call) = self.0.get_mut(place) {
            names = has_name && !call.named;
            call.named |= has_name;
            if call.id.is_none() {
                call.id = id.map(str::to_owned);
            }
        }
        Ok((place, names))
    }

    fn known(&self, index: Option<u64>, id: Option<&str>, has_name: bool) -> Option<usize> {
        let same_id = |call: &Call| match (&call.id, id) {
            (Some(known), Some(id)) => known == id,
            _ => false,
        };
        if let Some(place) = self.0.iter().rposition(same_id) {
            // The same id at another place, or with another name, is another call that repeats an id.
            let known = self.0.get(place);
            let elsewhere = known
                .and_then(|call| call.index)
                .zip(index)
                .is_some_and(|(known, index)| known != index);
            let is_named_again = index.is_none() && has_name && known.is_some_and(|c| c.named);
            return (!elsewhere && !is_named_again).then_some(place);
        }
        let place = match index {
            Some(index) => self.0.iter().rposition(|call| call.index == Some(index))?,
            // Without an index, a name begins a call and what has none goes on with the last.
            None if has_name => return None,
            None => self.0.len().checked_sub(1)?,
        };
        // Another id is another call, whatever its index.
        let other = id.is_some() && self.0.get(place).is_some_and(|call| call.id.is_some());
        (!other).then_some(place)
    }
}
