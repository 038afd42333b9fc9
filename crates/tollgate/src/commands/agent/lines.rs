//! What is typed while something else goes on. A thread reads, because a terminal cannot be asked to stop waiting.

use std::{
    io::{self, BufRead},
    thread,
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The longest line.
const LONGEST: u64 = 1024 * 1024;

/// The lines of the standard input. Reading begins when the first one is wanted.
#[derive(Default)]
pub(super) struct Lines {
    heard: Option<UnboundedReceiver<String>>,
}

impl Lines {
    /// The next line, without its end; nothing once there is no more. Whoever stops waiting for it misses none.
    pub(super) async fn next(&mut self) -> Option<String> {
        self.heard.get_or_insert_with(listen).recv().await
    }

    /// Forgets what was typed before anybody asked: it answers nothing that was not on the screen yet.
    pub(super) fn forget(&mut self) {
        // What the terminal still holds, and what was read. Where it is no terminal, there is nothing to forget.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        let heard = self.heard.get_or_insert_with(listen);
        while heard.try_recv().is_ok() {}
    }
}

fn listen() -> UnboundedReceiver<String> {
    let (tell, heard) = unbounded_channel();
    // It ends with the process, or with the input.
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = io::Read::take(&mut input, LONGEST).read_until(b'\n', &mut line);
            if !read.is_ok_and(|count| count > 0) {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            if tell.send(text.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
        }
    });
    heard
}
