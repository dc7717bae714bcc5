//! The API server: how it is reached, asked and understood.

pub mod causes;
pub mod client;
pub(crate) mod pages;
pub mod pods;
pub mod requests;
pub(crate) mod together;
