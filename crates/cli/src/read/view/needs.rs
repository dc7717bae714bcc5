//! What commands need of a cluster. A view has nothing else, so that it stays small.

use crate::manifests::Copies;

/// The objects in manifests that a command needs.
pub trait Needs {
    /// True if the command needs pods and workloads as the operator reads them, and what it reads of the control plane.
    const DECODED: bool;
    /// True if the command needs pods and workloads as they were written.
    const WRITTEN: bool;
    /// True if the command needs other objects that rules read, such as Services.
    const OBJECTS: bool = !Self::DECODED;
    /// True if the command needs pods that have finished.
    const FINISHED: bool = false;
    /// The treatment of several objects with one kind, namespace and name.
    const COPIES: Copies;
}

/// The needs of commands that make the operator's decisions.
#[derive(Debug)]
pub struct Decisions;

/// The needs of commands that explain where pods can be scheduled and started.
#[derive(Debug)]
pub struct Placement;

/// The needs of commands that read each workload as it was written.
#[derive(Debug)]
pub struct Rules;

/// The needs of commands that change each workload where it is written.
#[derive(Debug)]
pub struct Fixes;

/// The needs of commands that do all of this.
#[derive(Debug)]
pub struct Everything;

impl Needs for Decisions {
    const DECODED: bool = true;
    const WRITTEN: bool = false;
    const COPIES: Copies = Copies::LastWins;
}

impl Needs for Placement {
    const DECODED: bool = true;
    const WRITTEN: bool = true;
    const FINISHED: bool = true;
    const COPIES: Copies = Copies::LastWins;
}

impl Needs for Rules {
    const DECODED: bool = false;
    const WRITTEN: bool = true;
    const COPIES: Copies = Copies::EqualOnce;
}

impl Needs for Fixes {
    const DECODED: bool = false;
    const WRITTEN: bool = true;
    const COPIES: Copies = Copies::Kept;
}

impl Needs for Everything {
    const DECODED: bool = true;
    const WRITTEN: bool = true;
    const OBJECTS: bool = true;
    const COPIES: Copies = Copies::LastWins;
}
