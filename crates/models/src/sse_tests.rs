use proptest::prelude::*;

use super::*;

/// The events of these pieces, with what is left at the end.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Option<Event>, u64) {
    let (mut events, mut out) = (Events::default(), Vec::new());
    for piece in pieces {
        events.push(piece, &mut out).unwrap();
    }
    let left = events.finish();
    (out, left, events.replaced())
}

fn data(text: &str) -> Event {
    Event { event: String::new(), data: text.to_owned() }
}

#[test]
fn every_ending_of_a_line_is_one() {
    for text in
        ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"]
    {
        assert_eq!(read([text.as_bytes()]), (vec![data("a"), data("b")], None, 0), "{text:?}");
    }
}

#[test]
fn an_empty_piece_between_cr_and_lf_changes_nothing() {
    let pieces = [&b"data: a\r"[..], b"", b"\ndata: b\r\n", b"\r", b"", b"", b"\n"];
    assert_eq!(read(pieces), (vec![data("a\nb")], None, 0));
}

#[test]
fn fields_are_read_as_they_should_be() {
    let text = "\u{feff}: a comment\nevent: ping\ndata:one\ndata:  two\ndata\nid: 3\nretry: 9\nother\n\n\n\ndata: x\n\nevent: lost\n\ndata: rest";
    let ping = Event { event: "ping".to_owned(), data: "one\n two\n".to_owned() };
    assert_eq!(read([text.as_bytes()]), (vec![ping, data("x")], Some(data("rest")), 0));
    // Only at the very beginning is it a byte order mark.
    let text = "data: a\n\n\u{feff}data: b\n\n";
    assert_eq!(read([text.as_bytes()]).0, [data("a")]);
}

#[test]
fn what_is_no_utf8_is_replaced_and_counted() {
    let (events, _, replaced) = read([&b"data: a\xffb\ndata: \xe2\x82\n\ndata: ok\n\n"[..]]);
    assert_eq!(events, [data("a\u{fffd}b\n\u{fffd}"), data("ok")]);
    assert_eq!(replaced, 2);
}

#[test]
fn what_never_ends_is_given_up() {
    let (mut events, mut out) = (Events::default(), Vec::new());
    let piece = vec![b'x'; 1 << 20];
    assert_eq!((0..10).find(|_| events.push(&piece, &mut out).is_err()), Some(4));
    let mut events = Events::default();
    let line = [&b"data: "[..], &vec![b'x'; 1 << 20], b"\n"].concat();
    assert_eq!((0..10).find(|_| events.push(&line, &mut out).is_err()), Some(3));
    assert!(out.is_empty());
}

/// Text in which the endings of lines are many, and characters of several bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"\r".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"data: ".to_vec()),
        Just(b"event: ".to_vec()),
        Just(b":".to_vec()),
        Just("é€𝄞".as_bytes().to_vec()),
        Just("\u{feff}".as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn however_it_is_cut_it_says_the_same(bytes in stream(), sizes in prop::collection::vec(0_usize..9, 1..9)) {
        let mut pieces: Vec<&[u8]> = Vec::new();
        let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            pieces.push(piece);
            rest = behind;
            if piece.is_empty() {
                let (one, behind) = rest.split_at(1);
                pieces.push(one);
                rest = behind;
            }
        }
        prop_assert_eq!(read(pieces), read([bytes.as_slice()]));
    }
}
