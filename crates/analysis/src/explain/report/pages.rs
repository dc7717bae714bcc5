//! The pages that show a report to people. Both say the same, with the numbers of the report.

mod html;
mod limits;
mod markdown;
mod sentences;

pub use html::{fleet as fleet_html, page as html};
pub use markdown::{fleet as fleet_markdown, page as markdown};
