//! Progress and notes on standard error.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use winpool_client::terminal::escape_lines;

/// Prints a note to standard error.
pub fn note(text: &str) {
    eprintln!("winpool: {}", escape_lines(text));
}

/// Waits for `work`, such as requests to registries. After a second, a terminal shows `what`.
pub async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    ProgressLine::new(what.to_owned()).during(work).await
}

/// Runs `work`, such as a plan for a large cluster. After a second, a terminal shows `what`.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let progress = ProgressLine::new(what.to_owned());
    if !progress.is_shown {
        return work();
    }
    let (working, done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let progress = &progress;
        scope.spawn(move || {
            while done.recv_timeout(progress.patience) == Err(RecvTimeoutError::Timeout) {
                progress.show();
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// The time until the line appears on a terminal, and between two updates of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clears the line and returns to its beginning.
const CLEAR: &str = "\r\u{1b}[K";

/// A line on standard error that shows progress. It appears only on a terminal, and is cleared at the end.
pub struct ProgressLine {
    what: String,
    count: AtomicUsize,
    is_shown: bool,
    patience: Duration,
    was_shown: AtomicBool,
    since: Instant,
}

impl ProgressLine {
    pub fn new(what: String) -> Self {
        Self {
            what,
            count: AtomicUsize::new(0),
            is_shown: io::stderr().is_terminal(),
            patience: PATIENCE,
            was_shown: AtomicBool::new(false),
            since: Instant::now(),
        }
    }

    pub fn one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the result and shows progress.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(self.patience), if self.is_shown => self.show(),
            }
        }
    }

    fn show(&self) {
        self.was_shown.store(true, Ordering::Relaxed);
        eprint!("{CLEAR}{}", line(&self.what, self.count.load(Ordering::Relaxed), self.since.elapsed()));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if *self.was_shown.get_mut() {
            eprint!("{CLEAR}");
        }
    }
}

/// `reading pods: 12,000 (3 s)…`
fn line(what: &str, count: usize, since: Duration) -> String {
    let count = if count == 0 { String::new() } else { format!(": {}", with_commas(count)) };
    format!("{what}{count} ({} s)…", since.as_secs())
}

/// `12,000`.
fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_the_work_and_its_duration() {
        assert_eq!(line("reading pods", 12_345, Duration::from_millis(3900)), "reading pods: 12,345 (3 s)…");
        assert_eq!(line("planning", 0, Duration::from_secs(1)), "planning (1 s)…");
    }

    #[tokio::test]
    async fn progress_is_shown_after_the_patience() {
        let mut progress = ProgressLine::new("waiting".to_owned());
        (progress.is_shown, progress.patience) = (true, Duration::ZERO);
        let until_shown = async {
            while !progress.was_shown.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        progress.during(until_shown).await;
        let mut quick = ProgressLine::new("waiting".to_owned());
        quick.is_shown = true;
        quick.during(async {}).await;
        assert!(!quick.was_shown.load(Ordering::Relaxed));
    }

    #[test]
    fn thousands_are_kept_apart() {
        for (number, text) in [(7, "7"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }
}
