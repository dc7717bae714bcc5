//! The rules for workloads that are for Windows, and for workloads that could run there by mistake.
//!
//! The CLI, the reference and the admission policy `advise` use the same table of [rules](rules::rules). A rule that
//! tests one field is data, from which both the check and the CEL expression are made. The comment above a rule has its
//! examples, which the tests and the reference read.
//!
//! - `rule`: the types of rules; `field`: rules that test one field.
//! - `wellformed`: objects that the API server refuses whatever their system.
//! - `rejected`: fields that the API server refuses; `admission`: what it refuses in a namespace.
//! - `storage`: file systems of volumes.
//! - `unsupported`: fields that the API server accepts and Windows does not support.
//! - `placement` and its submodules: scheduling, and images that start.
//! - `linux`: Linux images and programs in pods for Windows; `cloud`: what holds in one cloud.
//! - `recommended`: advice of the documentation; `gmsa`: identities; `objects`: Services and nodes.
//! - `survey`: the findings about everything in a view.
//! - `facts`: the cluster.
//! - `advise`: the admission policy; `reference`: the reference page.

mod admission;
pub mod advise;
mod cloud;
pub mod facts;
pub mod field;
pub mod gmsa;
mod linux;
pub mod objects;
mod placement;
pub mod recommended;
mod rejected;
pub mod rule;
pub mod rules;
mod storage;
mod survey;
mod unsupported;
pub mod wellformed;

pub(crate) use admission::{FORBIDDEN, NAMESPACE_CONFLICT, OTHER_QUEUE};
pub use facts::Facts;
pub(crate) use placement::classes::{CONTRADICTS_SELECTOR, CORRECT_HANDLER, NOT_FOUND};
pub use placement::classes::{before_naming, to_create};
pub use placement::images::UNKNOWN_ID;
pub(crate) use rejected::REFUSED;
pub use rule::Rule;
pub use rules::{
    check, check_errors, check_errors_of_existing, check_everywhere, check_images, check_landing, check_spread,
    check_tolerations, check_warnings, rule, rules,
};
pub use survey::survey;
