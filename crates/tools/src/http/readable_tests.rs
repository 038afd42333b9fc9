use super::*;

fn read(bytes: &[u8], content_type: &str) -> Readable {
    let said = Some(content_type).filter(|said| !said.is_empty());
    readable(bytes, said, &Url::parse("https://example.com/").unwrap(), 1_000, false)
}

#[test]
fn the_charset_is_respected() {
    let russian = b"\xcf\xf0\xe8\xe2\xe5\xf2";
    let japanese = b"\x93\xfa\x96\x7b";
    let meta = |charset: &str, body: &[u8]| {
        [b"<html><head><meta charset=\"", charset.as_bytes(), b"\"></head><body>", body].concat()
    };
    let old_meta = |charset: &str, body: &[u8]| {
        let head = format!("<meta http-equiv=Content-Type content='text/html; charset={charset}'>");
        [head.as_bytes(), body].concat()
    };
    let utf16 = |mark: [u8; 2], text: &str, little: bool| {
        let units = text.encode_utf16();
        let body =
            units.flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() });
        mark.into_iter().chain(body).collect::<Vec<u8>>()
    };
    for (bytes, content_type, text) in [
        (russian.to_vec(), "text/plain; charset=windows-1251", "Привет"),
        (russian.to_vec(), "text/plain; charset=\"Windows-1251\"; x=y", "Привет"),
        (meta("windows-1251", russian), "text/html", "Привет"),
        (old_meta("windows-1251", russian), "text/html", "Привет"),
        // What the server says counts more than what the page says.
        (meta("utf-8", russian), "text/html; charset=windows-1251", "Привет"),
        (japanese.to_vec(), "text/html; charset=Shift_JIS", "日本"),
        (meta("shift_jis", japanese), "text/html", "日本"),
        // A mark counts most.
        (utf16([0xff, 0xfe], "日本", true), "text/plain; charset=windows-1251", "日本"),
        (utf16([0xfe, 0xff], "日本", false), "text/plain", "日本"),
        ("\u{feff}日本".as_bytes().to_vec(), "text/plain; charset=latin1", "日本"),
        ("日本".as_bytes().to_vec(), "text/plain", "日本"),
        (b"caf\xe9".to_vec(), "text/plain", "café"),
        (b"caf\xe9".to_vec(), "text/plain; charset=no-such-thing", "café"),
        (meta("utf-16", "日本".as_bytes()), "text/html", "日本"),
        (
            b"<?xml version='1.0' encoding='windows-1251'?><a>\xcf</a>".to_vec(),
            "text/xml",
            "<?xml version='1.0' encoding='windows-1251'?><a>П</a>",
        ),
    ] {
        assert_eq!(read(&bytes, content_type).text, text, "{content_type} {bytes:?}");
    }
}

#[test]
fn kinds_of_things_are_told_apart() {
    for content_type in [
        "text/plain",
        "application/json",
        "application/ld+json; charset=utf-8",
        "text/csv",
        "application/xml",
        "image/svg+xml",
        "application/yaml",
        "TEXT/MARKDOWN",
        "",
    ] {
        assert_eq!(read(b"<p>x</p>", content_type).text, "<p>x</p>", "{content_type}");
    }
    for content_type in ["text/html", "application/xhtml+xml", "Text/HTML;charset=utf-8"] {
        assert_eq!(read(b"<p>x</p>", content_type).text, "x", "{content_type}");
    }
    assert_eq!(read(b"  <!DOCTYPE html><p>x</p>", "").text, "x");
    for (bytes, content_type) in [
        (&b"\x89PNG"[..], "image/png"),
        (b"PK\x03\x04", "application/zip"),
        (b"a\0b", ""),
        (b"\xff\xd8\xff", ""),
        (b"text", "application/octet-stream"),
    ] {
        let read = read(bytes, content_type);
        assert_eq!(read.text, "");
        assert!(read.note.unwrap().contains(&format!("{} bytes of", bytes.len())));
    }
}

#[test]
fn a_cut_in_a_character_does_not_change_the_charset() {
    let text = "日本";
    let base = Url::parse("https://example.com/").unwrap();
    let read = readable(&text.as_bytes()[..5], Some("text/plain"), &base, 1_000, true);
    assert_eq!((read.text.as_str(), read.cut), ("日\u{fffd}", true));
}

#[test]
fn what_a_terminal_would_act_on_is_left_out() {
    assert_eq!(read(b"a\x1b[31mb\x07\r\nc\rd\te\x00", "text/plain").text, "a[31mb\nc\nd\te");
}
