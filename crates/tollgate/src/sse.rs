//! Reading a stream of server-sent events, whatever pieces it comes in.

/// The most bytes of one event.
const LARGEST: usize = 64 * 1024 * 1024;

/// What has arrived and is not yet a whole event.
#[derive(Debug, Default)]
pub(crate) struct Events {
    left: Vec<u8>,
    /// How much of it was searched for an end.
    searched: usize,
}

/// One event: its name, where it has one, and its data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Events {
    /// Takes a piece, and gives every event that is whole with it; `None` if an event is too
    /// large to be one.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<Vec<Event>> {
        self.left.extend_from_slice(piece);
        let mut whole = Vec::new();
        while let Some(end) = self.end() {
            let event: Vec<u8> = self.left.drain(..end).collect();
            self.searched = 0;
            let text = String::from_utf8_lossy(&event);
            let values = |field: &str| -> Vec<&str> {
                let values = text.lines().filter_map(|line| line.strip_prefix(field));
                values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect()
            };
            let (name, data) = (values("event:"), values("data:"));
            // A comment keeps the connection alive and says nothing.
            if !data.is_empty() {
                let name = name.last().copied().unwrap_or_default().to_owned();
                whole.push(Event { name, data: data.join("\n") });
            }
        }
        (self.left.len() <= LARGEST).then_some(whole)
    }

    /// Where the first event ends. What was searched before is not searched again.
    fn end(&mut self) -> Option<usize> {
        let rest = self.left.get(self.searched..).unwrap_or_default();
        let found = rest.windows(2).position(|pair| pair == b"\n\n");
        let end = found.map(|at| self.searched + at + 2);
        self.searched = self.left.len().saturating_sub(1);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text =
            b": hello\n\nevent: a\ndata: {\"x\":\ndata: 1}\n\nid: 2\ndata: two\n\ndata: half";
        for cut in 0..text.len() {
            let mut events = Events::default();
            let (first, second) = text.split_at(cut);
            let mut all = events.push(first).unwrap();
            all.extend(events.push(second).unwrap());
            let event = |name: &str, data: &str| Event { name: name.into(), data: data.into() };
            assert_eq!(all, [event("a", "{\"x\":\n1}"), event("", "two")], "cut at {cut}");
        }
    }

    #[test]
    fn an_event_that_never_ends_is_given_up() {
        let mut events = Events::default();
        let piece = vec![b'x'; 1 << 20];
        assert_eq!((0..100).find(|_| events.push(&piece).is_none()), Some(64));
    }
}
