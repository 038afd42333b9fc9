//! A body as it comes, decompressed and bounded. What is beyond the bound is not decompressed at all.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::{Decompress, FlushDecompress, Status, write::MultiGzDecoder};

/// What we say that we understand.
pub(super) const ACCEPTED: &str = "gzip, br, deflate";

/// How much more than a body's bound may come over the wire: what compression adds where it saves nothing.
const OVERHEAD: u64 = 64 * 1024;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
}

impl Coding {
    /// Reads `content-encoding`. One inside another has no use but to make small bodies large.
    pub(super) fn read<'a>(values: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut found = Self::Identity;
        for word in values.flat_map(|value| value.split(',')).map(str::trim) {
            let coding = match word.to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Self::Gzip,
                "deflate" => Self::Deflate,
                "br" => Self::Brotli,
                _ => {
                    return Err("its body is compressed in a way that was not asked for".to_owned());
                }
            };
            if found != Self::Identity {
                return Err("its body is compressed more than once".to_owned());
            }
            found = coding;
        }
        Ok(found)
    }
}

/// Takes the pieces of a body.
pub(super) struct Body {
    decoder: Decoder,
    coding: Coding,
    most: u64,
    came: u64,
}

enum Decoder {
    /// Nothing came yet: how it begins says how to read it.
    Waiting,
    Identity(Kept),
    Gzip(Box<MultiGzDecoder<Kept>>),
    Deflate(Box<Inflate>),
    Brotli(Box<DecompressorWriter<Kept>>),
}

/// Is there room for more?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    Full,
}

impl Body {
    pub(super) fn new(coding: Coding, most: u64) -> Self {
        Self { decoder: Decoder::Waiting, coding, most, came: 0 }
    }

    /// Takes a piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Room, String> {
        if let (Decoder::Waiting, Some(first)) = (&self.decoder, piece.first()) {
            self.decoder = self.decoder(*first)?;
        }
        self.came = self.came.saturating_add(piece.len() as u64);
        let written = match &mut self.decoder {
            Decoder::Waiting => Ok(()),
            Decoder::Identity(kept) => kept.write_all(piece),
            Decoder::Gzip(decoder) => decoder.write_all(piece),
            Decoder::Deflate(decoder) => decoder.take(piece),
            Decoder::Brotli(decoder) => decoder.write_all(piece),
        };
        if self.kept().is_some_and(|kept| kept.full) {
            return Ok(Room::Full);
        }
        written.map_err(|_| "its body is not compressed as it says".to_owned())?;
        // What expands to nothing has no end either.
        let full = self.came > self.most.saturating_add(OVERHEAD);
        Ok(if full { Room::Full } else { Room::Left })
    }

    /// The bytes, and whether there was more. `whole` says whether all of the body was taken.
    pub(super) fn finish(mut self, whole: bool) -> Result<(Vec<u8>, bool), String> {
        let ended = match &mut self.decoder {
            Decoder::Waiting | Decoder::Identity(_) => Ok(()),
            Decoder::Gzip(decoder) => decoder.try_finish(),
            Decoder::Deflate(decoder) => decoder.ended(),
            Decoder::Brotli(decoder) => decoder.close(),
        };
        let Some(kept) = self.kept() else {
            return Ok((Vec::new(), !whole));
        };
        if whole && !kept.full {
            ended.map_err(|_| "its body ends too early".to_owned())?;
        }
        Ok((std::mem::take(&mut kept.bytes), kept.full || !whole))
    }

    fn decoder(&self, first: u8) -> Result<Decoder, String> {
        let kept = Kept { bytes: Vec::new(), most: self.most, full: false };
        Ok(match self.coding {
            Coding::Identity => Decoder::Identity(kept),
            Coding::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(kept))),
            // Two forms are sent under this name. The wrapped one begins with the method, which is 8.
            Coding::Deflate => {
                let state = Decompress::new(first & 0x0f == 8);
                Decoder::Deflate(Box::new(Inflate { state, kept, ended: false }))
            }
            // An extension with windows of up to a gigabyte, which the decoder would make room for.
            Coding::Brotli if first & 0x7f == 0x11 => {
                return Err("its body needs too much memory to be decompressed".to_owned());
            }
            Coding::Brotli => Decoder::Brotli(Box::new(DecompressorWriter::new(kept, 16 * 1024))),
        })
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        match &mut self.decoder {
            Decoder::Waiting => None,
            Decoder::Identity(kept) => Some(kept),
            Decoder::Gzip(decoder) => Some(decoder.get_mut()),
            Decoder::Deflate(decoder) => Some(&mut decoder.kept),
            Decoder::Brotli(decoder) => Some(decoder.get_mut()),
        }
    }
}

/// Decompresses a body without a checksum of its own, and knows whether it ended.
struct Inflate {
    state: Decompress,
    kept: Kept,
    ended: bool,
}

impl Inflate {
    fn take(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(16 * 1024);
        while !self.ended {
            out.clear();
            let before = self.state.total_in();
            let status = self.state.decompress_vec(piece, &mut out, FlushDecompress::None)?;
            let taken = usize::try_from(self.state.total_in() - before).unwrap_or(usize::MAX);
            piece = piece.get(taken..).unwrap_or_default();
            self.kept.write_all(&out)?;
            self.ended = status == Status::StreamEnd;
            if taken == 0 && out.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn ended(&self) -> io::Result<()> {
        if self.ended { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Keeps bytes up to a bound, and stops the decoder there.
struct Kept {
    bytes: Vec<u8>,
    most: u64,
    full: bool,
}

impl Write for Kept {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = self.most.saturating_sub(self.bytes.len() as u64);
        let fits = usize::try_from(room).unwrap_or(usize::MAX).min(piece.len());
        self.bytes.extend_from_slice(piece.get(..fits).unwrap_or_default());
        if fits < piece.len() {
            self.full = true;
            return Err(io::Error::other("full"));
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
