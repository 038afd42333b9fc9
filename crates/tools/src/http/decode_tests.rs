use std::io::Write;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

use super::*;

/// 64 MiB of nothing, in 106 bytes.
const BROTLI_BOMB: &str = "cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200ddfb3ffeffffc13f0110870500baf77ffcffff837f02200e0b0074effff8ffff07ff04401c1600e8defff1ffff0ffe0980382c00d0bdffcbffff3ffc1300715800a07bff07";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// A body that comes in pieces of `piece` bytes.
fn decoded(
    coding: Coding,
    body: &[u8],
    piece: usize,
    most: u64,
) -> Result<(Vec<u8>, bool), String> {
    let mut taken = Body::new(coding, most);
    for piece in body.chunks(piece) {
        if taken.take(piece)? == Room::Full {
            return taken.finish(false);
        }
    }
    taken.finish(true)
}

fn packed(coding: Coding, text: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Identity => text.to_vec(),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Brotli => bytes("8b068068656c6c6f2c2062726f746c690a03"),
    }
}

const ALL: [Coding; 4] = [Coding::Identity, Coding::Gzip, Coding::Deflate, Coding::Brotli];

#[test]
fn every_coding_is_understood_in_pieces_of_any_size() {
    let text = b"hello, brotli\n";
    for coding in ALL {
        for piece in [1, 3, 1_000] {
            let body = packed(coding, text);
            assert_eq!(
                decoded(coding, &body, piece, 1_000),
                Ok((text.to_vec(), false)),
                "{coding:?}"
            );
        }
    }
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    raw.write_all(text).unwrap();
    let raw = raw.finish().unwrap();
    assert_eq!(decoded(Coding::Deflate, &raw, 2, 1_000), Ok((text.to_vec(), false)));
}

#[test]
fn what_is_beyond_the_bound_is_left() {
    let text = vec![b'x'; 10_000];
    for coding in [Coding::Identity, Coding::Gzip, Coding::Deflate] {
        let body = packed(coding, &text);
        let (kept, cut) = decoded(coding, &body, 100, 4_321).unwrap();
        assert_eq!((kept.len(), cut), (4_321, true), "{coding:?}");
        let (kept, cut) = decoded(coding, &body, 100, 10_000).unwrap();
        assert_eq!((kept.len(), cut), (10_000, false), "{coding:?}");
    }
    let (kept, cut) = decoded(Coding::Brotli, &bytes(BROTLI_BOMB), 10, 4_321).unwrap();
    assert_eq!((kept.len(), cut), (4_321, true));
}

#[test]
fn what_expands_to_nothing_ends_too() {
    let empty = packed(Coding::Gzip, b"");
    let body = empty.repeat(100_000 / empty.len());
    assert_eq!(decoded(Coding::Gzip, &body, 1_000, 1_000), Ok((Vec::new(), true)));
}

#[test]
fn what_breaks_off_or_is_something_else_is_an_error() {
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli] {
        let mut body = packed(coding, &b"hello, hello, hello".repeat(10));
        body.truncate(body.len() - 5);
        let problem = decoded(coding, &body, 7, 1_000).unwrap_err();
        assert!(problem.contains("its body"), "{coding:?}: {problem}");
    }
    assert!(decoded(Coding::Gzip, b"<html>not compressed</html>", 5, 1_000).is_err());
    // A window of a gigabyte.
    let problem = decoded(Coding::Brotli, &[0x11, 0x1e, 0, 0], 4, 1_000).unwrap_err();
    assert!(problem.contains("too much memory"), "{problem}");
}

#[test]
fn one_coding_is_enough() {
    let read = |values: &[&str]| Coding::read(values.iter().copied());
    assert_eq!(read(&[]), Ok(Coding::Identity));
    assert_eq!(read(&["identity"]), Ok(Coding::Identity));
    assert_eq!(read(&["X-GZIP"]), Ok(Coding::Gzip));
    assert_eq!(read(&["identity, br"]), Ok(Coding::Brotli));
    assert!(read(&["gzip, gzip"]).unwrap_err().contains("more than once"));
    assert!(read(&["gzip", "br"]).unwrap_err().contains("more than once"));
    assert!(read(&["zstd"]).unwrap_err().contains("not asked for"));
}
