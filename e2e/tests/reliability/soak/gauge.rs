//! Memory, threads and open files of a process.

use std::fmt;
use std::time::{Duration, Instant};
use winpool_e2e::machine::usage::Usage;

/// The interval between two readings.
const INTERVAL: Duration = Duration::from_secs(2);

/// One reading.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub resident_mb: f64,
    pub threads: usize,
    /// Connections among them.
    pub files: usize,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB, {} threads, {} open files", self.resident_mb, self.threads, self.files)
    }
}

/// Reads the usage of a process.
pub struct Gauge(u32);

impl Gauge {
    pub fn of(pid: u32) -> Self {
        Self(pid)
    }

    pub fn now(&self) -> Reading {
        let entries = |directory: &str| std::fs::read_dir(format!("/proc/{}/{directory}", self.0)).unwrap().count();
        let resident_mb = Usage::of(self.0).unwrap().resident_mb;
        Reading { resident_mb, threads: entries("task"), files: entries("fd") }
    }

    /// Reads at intervals for this time.
    pub async fn record(&self, time: Duration) -> Course {
        let (began, mut readings) = (Instant::now(), Vec::new());
        while began.elapsed() < time {
            readings.push((began.elapsed().as_secs_f64(), self.now()));
            tokio::time::sleep(INTERVAL).await;
        }
        Course(readings)
    }
}

/// Readings by time in seconds.
pub struct Course(Vec<(f64, Reading)>);

impl Course {
    fn second_half(&self) -> &[(f64, Reading)] {
        &self.0[self.0.len() / 2..]
    }

    /// The slope in the second half in megabytes per second, by least squares.
    fn slope(&self) -> f64 {
        let readings = self.second_half();
        let mean = |of: &dyn Fn(&(f64, Reading)) -> f64| {
            let (sum, count) =
                readings.iter().fold((0.0, 0.0), |(sum, count), reading| (sum + of(reading), count + 1.0));
            sum / count
        };
        let (time, memory) = (mean(&|(time, _)| *time), mean(&|(_, reading)| reading.resident_mb));
        let together = mean(&|(at, reading)| (at - time) * (reading.resident_mb - memory));
        together / mean(&|(at, _)| (at - time).powi(2))
    }

    /// The growth in the second half at that slope.
    pub fn gain_mb(&self) -> f64 {
        let readings = self.second_half();
        let time = readings.last().map_or(0.0, |last| last.0 - readings[0].0);
        self.slope() * time
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = |of: fn(&Reading) -> usize| self.0.iter().map(|(_, reading)| of(reading)).max().unwrap_or_default();
        let memory = |readings: &[(f64, Reading)]| {
            let all = readings.iter().map(|(_, reading)| reading.resident_mb);
            (all.clone().fold(f64::MAX, f64::min), all.fold(0.0, f64::max))
        };
        let ((low, high), (later_low, later_high)) = (memory(&self.0[..self.0.len() / 2]), memory(self.second_half()));
        write!(
            f,
            "memory {low:.1} to {high:.1} MB in the first half, {later_low:.1} to {later_high:.1} MB in the second, which \
             gains {:+.2} MB ({:+.3} MB a minute); at most {} threads and {} open files",
            self.gain_mb(),
            self.slope() * 60.0,
            most(|reading| reading.threads),
            most(|reading| reading.files),
        )
    }
}

#[test]
fn a_slope_is_distinguished_from_noise() {
    let course = |memory: fn(f64) -> f64| {
        let reading = |second: f64| Reading { resident_mb: memory(second), threads: 1, files: 1 };
        Course((0..200).map(f64::from).map(|second| (second, reading(second))).collect())
    };
    let steady = course(|second| if second < 100.0 { second } else { 20.0 + (second % 2.0) });
    assert!(steady.gain_mb().abs() < 0.1, "{steady}");
    let leak = course(|second| 20.0 + second / 10.0);
    assert!((leak.gain_mb() - 9.9).abs() < 0.1, "{leak}");
}
