//! The files of a session's trace. Lines are only ever added; a new file is begun between two turns when the last one
//! is large, and the oldest files go.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::journal::{Event, EventError};

/// How much is kept of a session's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLimits {
    /// How large a file grows before the next one is begun.
    pub file_bytes: u64,
    /// How many files are kept.
    pub files: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { file_bytes: 4 * 1024 * 1024, files: 32 }
    }
}

/// The longest line that is read.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;

/// The files of one session's trace.
#[derive(Debug, Clone)]
pub struct TraceFiles {
    folder: PathBuf,
}

impl TraceFiles {
    /// The files in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Their numbers, oldest first.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The name of a file.
    pub fn name(number: u32) -> String {
        format!("{number:06}.jsonl")
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(Self::name(number))
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads a file. A last line that was cut off when a process died is left out.
    pub fn read(&self, number: u32) -> Result<Vec<Event>, EventError> {
        let file = Self::name(number);
        let wrong = |line: usize, problem: String| EventError { file: file.clone(), line, problem };
        let opened = File::open(self.path(number)).map_err(|error| wrong(0, error.to_string()))?;
        let mut reader = BufReader::new(opened);
        let (mut events, mut line) = (Vec::new(), Vec::new());
        for number in 1.. {
            line.clear();
            let read = io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|error| wrong(number, error.to_string()))?;
            if u64::try_from(read).is_ok_and(|read| read >= LONGEST_LINE) {
                return Err(wrong(number, "the line is too long".to_owned()));
            }
            if read == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let text =
                std::str::from_utf8(&line).map_err(|error| wrong(number, error.to_string()))?;
            events.push(Event::parse(text.trim_end()).map_err(|problem| wrong(number, problem))?);
        }
        Ok(events)
    }

    /// Opens the last file for adding to it.
    pub(crate) fn append_to_last(&self) -> io::Result<Option<TraceWriter>> {
        match self.numbers()?.last() {
            Some(number) => self.writer(*number).map(Some),
            None => Ok(None),
        }
    }

    /// Begins the next file, and lets the oldest go.
    pub(crate) fn begin(&self, limits: &TraceLimits) -> io::Result<TraceWriter> {
        let numbers = self.numbers()?;
        let next = numbers.last().map_or(1, |last| last + 1);
        let writer = self.writer(next)?;
        File::open(&self.folder)?.sync_all()?;
        let over = (numbers.len() + 1).saturating_sub(limits.files);
        for old in numbers.iter().take(over) {
            fs::remove_file(self.path(*old))?;
        }
        Ok(writer)
    }

    fn writer(&self, number: u32) -> io::Result<TraceWriter> {
        let path = self.path(number);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path)?;
        let mut bytes = file.metadata()?.len();
        // A line that was cut off has no end; what comes next starts a new one, and the piece is no event.
        if bytes > 0 && !ends_with_newline(&path)? {
            bytes = drop_cut_line(&path)?;
            file = options.open(&path)?;
        }
        Ok(TraceWriter { file, number, bytes })
    }
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Takes away what stands behind the last line end.
fn drop_cut_line(path: &Path) -> io::Result<u64> {
    let text = fs::read(path)?;
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let end = u64::try_from(end).unwrap_or_default();
    OpenOptions::new().write(true).open(path)?.set_len(end)?;
    Ok(end)
}

/// The file that is added to.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    file: File,
    number: u32,
    bytes: u64,
}

impl TraceWriter {
    pub(crate) fn write(&mut self, event: &Event) -> io::Result<()> {
        let line = event.line();
        self.file.write_all(line.as_bytes())?;
        self.bytes += u64::try_from(line.len()).unwrap_or_default();
        Ok(())
    }

    /// Waits until all of it is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn name(&self) -> String {
        TraceFiles::name(self.number)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn is_full(&self, limits: &TraceLimits) -> bool {
        self.bytes >= limits.file_bytes
    }
}
