//! The API server: how it is reached, asked and understood.

pub mod asked;
pub(crate) mod autoscalers;
pub mod causes;
pub mod client;
pub mod error;
pub(crate) mod pages;
pub mod pods;
pub mod requests;
pub(crate) mod together;
