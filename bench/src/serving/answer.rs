//! Just enough HTTP/1.1 to tell where an answer ends and whether it is a good one.

use std::error::Error;

/// An answer, read whole.
pub(crate) struct Answer {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Reads an answer, which must be a 200 with a length.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Box<dyn Error>> {
        let end = end_of(bytes)?.ok_or("an answer is cut short")?;
        let head = head_length(bytes).ok_or("an answer has no head")?;
        let text = std::str::from_utf8(bytes.get(..head).unwrap_or_default())?;
        let lines = text.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        Ok(Self {
            headers: lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
            body: bytes.get(head..end).unwrap_or_default().to_vec(),
        })
    }
}

/// Where the first answer in `bytes` ends; `None` while it is not all there. What is no 200 is an error.
pub(crate) fn end_of(bytes: &[u8]) -> Result<Option<usize>, Box<dyn Error>> {
    let Some(head) = head_length(bytes) else { return Ok(None) };
    let text = bytes.get(..head).unwrap_or_default();
    if !text.starts_with(b"HTTP/1.1 200 ") {
        return Err(format!("not a 200: {}", String::from_utf8_lossy(bytes)).into());
    }
    let length = length_of(text).ok_or("an answer does not say how long it is")?;
    let end = head + length;
    Ok((bytes.len() >= end).then_some(end))
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// The number behind `content-length:`. hyper writes names in small letters.
fn length_of(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\r\ncontent-length: ";
    let at = head.windows(NAME.len()).position(|part| part == NAME)? + NAME.len();
    let digits = head.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let mut number: usize = 0;
    for digit in digits {
        number = number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
    }
    Some(number)
}
