//! The rules for workloads that are meant for Windows, and for those that could land there by mistake.
//!
//! One table of [rules](rules::rules) serves the command line, the reference and the admission policy `advise`: a rule
//! that is a test of one field is data, from which both the check here and the CEL expression are made.
//!
//! - `rule`: what a rule is; `field`: rules that test one field.
//! - `rejected`: what the API server refuses; `unsupported`: what it accepts and Windows cannot do; `placement` and what
//!   is below it: whether the pod finds a node on which its image starts; `recommended`: what the documentation advises;
//!   `objects`: Services and nodes.
//! - `workload`: how manifests are read; `facts`: what is known of the cluster.
//! - `advise`: the admission policy; `reference`: the table as a document.

pub mod advise;
pub mod facts;
pub mod field;
pub mod objects;
mod placement;
pub mod recommended;
pub mod reference;
mod rejected;
pub mod rule;
pub mod rules;
mod unsupported;
pub mod workload;

pub use facts::Facts;
pub use placement::images::UNKNOWN_ID;
pub(crate) use placement::images::verdict as image_verdict;
pub use rule::{Consequence, Finding, Rule, Severity};
pub use rules::{check, check_images, rule, rules};
pub use workload::Workload;
