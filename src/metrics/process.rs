//! The standard metrics of a process, from `/proc/self`. They are absent on systems without it.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::reference;

/// Reads `/proc/self` on each scrape.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            ConstGauge::new(bytes).encode(reference::RESIDENT_MEMORY.encode(&mut encoder)?)?;
        }
        if let Some(seconds) = cpu_seconds() {
            ConstCounter::new(seconds).encode(reference::CPU.encode(&mut encoder)?)?;
        }
        if let Some(time) = start_time() {
            ConstGauge::new(time).encode(reference::START_TIME.encode(&mut encoder)?)?;
        }
        if let Some(files) = open_files() {
            ConstGauge::new(files).encode(reference::OPEN_FILES.encode(&mut encoder)?)?;
        }
        Ok(())
    }
}

/// Clock ticks per second. Linux shows programs 100, even if the kernel itself uses another number.
const TICKS: f64 = 100.0;

/// `VmRSS` of proc(5), which the kernel gives in KiB.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// `utime` and `stime` of proc(5).
fn cpu_seconds() -> Option<f64> {
    Some((stat_ticks(14)? + stat_ticks(15)?) / TICKS)
}

/// The time at which the machine started, `btime` of proc(5), plus the process's `starttime`.
fn start_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + stat_ticks(22)? / TICKS)
}

/// A field of `/proc/self/stat`, numbered as in proc(5).
fn stat_ticks(field: usize) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name, may contain spaces and parentheses.
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_whitespace().nth(field - 3)?.parse().ok()
}

fn open_files() -> Option<i64> {
    i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn this_process_started_before_now_and_uses_memory_time_and_files() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let started = start_time().unwrap();
        assert!(started <= now + 1.0 && started > now - 86_400.0, "{started} {now}");
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(cpu_seconds().unwrap() >= 0.0);
        let before = open_files().unwrap();
        assert!(before >= 3, "{before}");
    }
}
