//! A stream of bytes with lookahead, a size limit and a count of lines.

use std::cell::Cell;
use std::io::{self, Read};

use serde::de::IgnoredAny;

/// The size of the lookahead, in bytes.
const AHEAD: usize = 64 << 10;

pub(super) struct Stream<'l, R> {
    source: R,
    limit: usize,
    /// The number of bytes read from the source.
    read: usize,
    buffer: Vec<u8>,
    /// The position in `buffer` of the next byte.
    at: usize,
    line: &'l Cell<u64>,
}

impl<'l, R: Read> Stream<'l, R> {
    /// Returns a stream over `source` that fails after `limit` bytes. `line` is the line of the next byte.
    pub(super) fn new(source: R, limit: usize, line: &'l Cell<u64>) -> Self {
        Self { source, limit, read: 0, buffer: Vec::with_capacity(AHEAD), at: 0, line }
    }

    /// True if a JSON object comes next. If so, skips the blanks and document separators before it.
    ///
    /// A YAML mapping may begin with a brace too. winpool decides by the first 64 KiB.
    pub(super) fn json_is_next(&mut self) -> io::Result<bool> {
        self.fill()?;
        let mut rest = self.buffer.as_slice();
        loop {
            rest = rest.trim_ascii_start();
            match rest.strip_prefix(b"---") {
                Some(after) if after.first().is_none_or(u8::is_ascii_whitespace) => rest = after,
                _ => break,
            }
        }
        if !rest.starts_with(b"{") {
            return Ok(false);
        }
        let first = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>().next();
        // The end of the lookahead is not an error.
        let is_json = first.is_some_and(|value| value.map_or_else(|error| error.is_eof(), |_| true));
        let before = self.buffer.len() - rest.len();
        if is_json {
            self.read_exact(&mut vec![0; before])?;
        }
        Ok(is_json)
    }

    /// Fills the buffer from the source.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let missing = AHEAD.saturating_sub(self.buffer.len());
        self.read += (&mut self.source).take(missing as u64).read_to_end(&mut self.buffer)?;
        if self.read > self.limit {
            return Err(io::Error::other(format!("it is longer than {} bytes", self.limit)));
        }
        Ok(())
    }
}

impl<R: Read> Read for Stream<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() {
            self.fill()?;
        }
        let count = self.buffer.get(self.at..).unwrap_or_default().read(into)?;
        self.at += count;
        let ends: u64 = into.iter().take(count).map(|byte| u64::from(*byte == b'\n')).sum();
        self.line.set(self.line.get() + ends);
        Ok(count)
    }
}
