//! CPU time and memory of a process.

use crate::error::{FileContext, Result};
use std::io;
use std::path::Path;

/// The CPU time and memory that a process has used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time.
    pub cpu_seconds: f64,
    pub resident_mb: f64,
    pub peak_mb: f64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Self> {
        let cpu_seconds = read(&format!("/proc/{pid}/stat"), cpu_seconds)?;
        let memory = |key: &'static str| read(&format!("/proc/{pid}/status"), |text| megabytes(text, key));
        Ok(Self { cpu_seconds, resident_mb: memory("VmRSS:")?, peak_mb: memory("VmHWM:")? })
    }

    pub fn of_this_process() -> Result<Self> {
        Self::of(std::process::id())
    }
}

fn read(file: &str, value: impl Fn(&str) -> Option<f64>) -> Result<f64> {
    let text = std::fs::read_to_string(file);
    text.and_then(|text| value(&text).ok_or(io::ErrorKind::InvalidData.into())).when("read", Path::new(file))
}

/// The second field is the name in parentheses; after it come state, parent, …, utime (14th), stime (15th).
fn cpu_seconds(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
    // Linux counts in hundredths of a second here (USER_HZ), whatever its own clock does.
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// They are written as `VmRSS:      1234 kB`.
fn megabytes(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().ok()? * 1024.0 / 1e6)
}
