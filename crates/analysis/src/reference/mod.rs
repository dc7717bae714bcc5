//! The reference pages that are written from the code.

pub mod api;
pub mod errors;
pub mod rules;
