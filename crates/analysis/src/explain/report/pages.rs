//! The page that shows a report to people.

mod html;
mod limits;
mod sentences;

pub use html::{fleet as fleet_html, page as html};
