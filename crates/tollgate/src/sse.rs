//! Reading a stream of server-sent events, whatever pieces it comes in.

/// What has arrived and is not yet a whole event.
#[derive(Debug, Default)]
pub(crate) struct Events {
    left: Vec<u8>,
}

impl Events {
    /// Takes a piece, and gives the data of every event that is whole with it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<String> {
        self.left.extend_from_slice(piece);
        let mut whole = Vec::new();
        while let Some(end) = self.left.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.left.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&event);
            let data: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|data| data.strip_prefix(' ').unwrap_or(data))
                .collect();
            // A comment keeps the connection alive and says nothing.
            if !data.is_empty() {
                whole.push(data.join("\n"));
            }
        }
        whole
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
            let mut all = events.push(first);
            all.extend(events.push(second));
            assert_eq!(all, ["{\"x\":\n1}", "two"], "cut at {cut}");
        }
    }
}
