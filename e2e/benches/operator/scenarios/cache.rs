//! Memory of cached nodes: generated JSON, decoded page by page into the operator's cache and counted in its index, in a
//! process of its own.

use crate::Result;
use crate::options::Options;
use crate::process::print;
use crate::report::{Report, Row};

/// So many nodes may take so many MB, and so many at most.
const LARGEST: (usize, f64, f64) = (100_000, 150.0, 200.0);

/// Measures it at each size.
#[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
pub async fn run(options: &Options, report: &mut Report<'_>) -> Result<()> {
    for count in &options.decoded {
        let result = print(&["decode-nodes", &count.to_string()], None).await?;
        let number = |key: &str| result[key].as_f64().ok_or("a child prints no number");
        let (megabytes, bytes) = (number("megabytes")?, number("bytes")?);
        let what = |text: &str| format!("{count} nodes of {bytes} bytes: {text}");
        report.add(Row::value(what("memory of the cache"), "MB", megabytes));
        report.add(Row::value(what("for each"), "KB", megabytes * 1e3 / *count as f64));
        report.add(Row::value(what("memory of the index"), "MB", number("index")?));
        let largest = *count == LARGEST.0;
        let limited = |row: Row, megabytes| if largest { row.at_most(megabytes) } else { row };
        report.add(limited(Row::value(what("memory of the process"), "MB", number("resident")?), LARGEST.1));
        report.add(limited(Row::value(what("peak of the process"), "MB", number("peak")?), LARGEST.2));
    }
    Ok(())
}
