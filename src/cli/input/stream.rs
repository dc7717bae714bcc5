//! The bytes of one file: looked at before they are read, bounded, and with their lines counted.

use std::{
    cell::Cell,
    io::{self, Read},
};

use serde::de::IgnoredAny;

/// Bytes that are looked at before they are read, at most.
const AHEAD: usize = 64 << 10;

/// A stream of manifests.
pub(super) struct Stream<'l, R> {
    source: R,
    limit: usize,
    /// Bytes that were read from the source.
    read: usize,
    buffer: Vec<u8>,
    /// Where in `buffer` the bytes begin that were not read yet.
    at: usize,
    line: &'l Cell<u64>,
}

impl<'l, R: Read> Stream<'l, R> {
    /// Of `source`, whose bytes past `limit` are an error. `line` is the one that the next byte is on.
    pub(super) fn new(source: R, limit: usize, line: &'l Cell<u64>) -> Self {
        Self { source, limit, read: 0, buffer: Vec::with_capacity(AHEAD), at: 0, line }
    }

    /// Returns true if a JSON object comes next. If so, skips the blanks and document separators before it.
    ///
    /// A YAML mapping may begin with a brace too; the first 64 KiB have to show that it is none of JSON.
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
        // What is cut off is no error here.
        let is_json = first.is_some_and(|value| value.map_or_else(|error| error.is_eof(), |_| true));
        let before = self.buffer.len() - rest.len();
        if is_json {
            self.read_exact(&mut vec![0; before])?;
        }
        Ok(is_json)
    }

    /// Fills the buffer, as far as there is something to fill it with.
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
