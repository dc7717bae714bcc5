//! The reference pages and the lists in policies that are written from the code.

pub mod api;
pub mod assign_class;
pub mod errors;
pub mod rules;
