//! A node: the fields that winpool reads, its own record there, and changes of it.

mod change;
mod object;
mod record;

pub(crate) use self::record::NodeRecord;
pub use self::{
    change::{MetadataChange, NodePlan, TaintChange},
    object::{NodeFields, NodeObject, TaintList},
    record::{Applied, LABEL_SETTLES, Watched},
};
