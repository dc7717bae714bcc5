//! The client of the API server, its requests and their errors.

pub mod asked;
pub(crate) mod autoscalers;
pub mod causes;
pub mod client;
pub mod error;
pub(crate) mod pages;
pub mod pods;
pub mod requests;
pub(crate) mod together;
