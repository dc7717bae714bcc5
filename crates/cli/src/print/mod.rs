//! What commands print.

pub mod diff;
pub mod forecast;
pub mod located;
pub mod notes;
pub mod output;
pub mod progress;
pub mod text;
