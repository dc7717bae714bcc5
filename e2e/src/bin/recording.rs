//! Draws a terminal as SVG: the lines of standard input, each with the time at which it arrived. `make demo-image`
//! uses it.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The size of a character and a line, in pixels.
const LETTER: f64 = 7.85;
const LINE: usize = 19;
const MARGIN: usize = 18;

const STYLE: &str = r#"
    text { font: 13px ui-monospace, "DejaVu Sans Mono", Consolas, monospace; fill: #e6edf3; white-space: pre; }
    .command { font-weight: 600; fill: #79c0ff; }
    rect { fill: #0d1117; stroke: #3d444d; }
    @keyframes arrive { from { opacity: 0 } }
    @media (prefers-reduced-motion: no-preference) { text { animation: arrive 1ms backwards; } }
"#;

/// A line with the time at which it arrived.
struct Arrival {
    after: Duration,
    text: String,
}

fn main() -> ExitCode {
    let Some(command) = std::env::args().nth(1) else {
        eprintln!("recording: say which command it is that writes to standard input");
        return ExitCode::FAILURE;
    };
    let mut lines = vec![Arrival { after: Duration::ZERO, text: format!("$ {command}") }];
    let started = Instant::now();
    for line in std::io::stdin().lock().lines() {
        match line {
            Ok(text) => {
                eprintln!("{text}");
                lines.push(Arrival { after: started.elapsed(), text });
            }
            Err(error) => {
                eprintln!("recording: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    // The program at the other end of the pipe may have failed without a message.
    if lines.len() == 1 {
        eprintln!("recording: nothing arrived");
        return ExitCode::FAILURE;
    }
    println!("{}", drawn(&command, &lines));
    ExitCode::SUCCESS
}

fn drawn(command: &str, lines: &[Arrival]) -> String {
    let longest = lines.iter().map(|line| line.text.chars().count()).max().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "lines have fewer letters than an f64 has digits")]
    let width = (longest as f64 * LETTER).ceil() + 2.0 * MARGIN as f64;
    let height = lines.len() * LINE + 2 * MARGIN;
    let title = escaped(command);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n  \
         <title>The output of {title}</title>\n  <style>{STYLE}  </style>\n  \
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        width - 1.0,
        height - 1,
    );
    for (number, Arrival { after, text }) in lines.iter().enumerate() {
        let class = if number == 0 { " class=\"command\"" } else { "" };
        let (y, seconds) = (MARGIN + (number + 1) * LINE - 5, after.as_secs_f64());
        if text.trim().is_empty() {
            continue;
        }
        // Writing to a String never fails.
        let _ = writeln!(
            svg,
            "  <text{class} x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\" style=\"animation-delay:{seconds:.2}s\">{}</text>",
            escaped(text),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
