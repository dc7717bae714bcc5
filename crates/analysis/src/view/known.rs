//! A part of a cluster, and how much of it is known.

use std::collections::BTreeMap;

use super::Workload;
use crate::kinds::WorkloadKind;

/// The objects of a kind. What is not known is never taken for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known<T> {
    /// All of them.
    Complete(T),
    /// Some of them: those in manifests.
    Partial(T),
    /// The user may not list them, or they cannot be read; with the reason.
    Forbidden(String),
    /// winpool did not read them, or the manifests have none.
    #[default]
    NotRead,
}

impl<T> Known<T> {
    /// Returns the objects that are known, if winpool read any.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Complete(objects) | Self::Partial(objects) => Some(objects),
            Self::Forbidden(_) | Self::NotRead => None,
        }
    }

    pub fn known_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Complete(objects) | Self::Partial(objects) => Some(objects),
            Self::Forbidden(_) | Self::NotRead => None,
        }
    }

    /// Returns a part of what is known, and the same about what is not.
    pub fn map<U>(&self, part: impl FnOnce(&T) -> U) -> Known<U> {
        match self {
            Self::Complete(objects) => Known::Complete(part(objects)),
            Self::Partial(objects) => Known::Partial(part(objects)),
            Self::Forbidden(reason) => Known::Forbidden(reason.clone()),
            Self::NotRead => Known::NotRead,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete(_))
    }

    /// Returns the reason why they are not known, if winpool tried to read them.
    pub fn refusal(&self) -> Option<&str> {
        if let Self::Forbidden(reason) = self { Some(reason) } else { None }
    }

    pub fn is_forbidden(&self) -> bool {
        self.refusal().is_some()
    }
}

impl<T> Known<Vec<T>> {
    /// Adds an object. There may be others.
    pub fn add(&mut self, object: T) {
        match self.known_mut() {
            Some(objects) => objects.push(object),
            None => *self = Self::Partial(vec![object]),
        }
    }
}

/// The objects that create pods from a template, by kind. A kind that is absent was not read, or the manifests have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workloads(BTreeMap<&'static WorkloadKind, Known<Vec<Workload>>>);

impl Workloads {
    /// Returns those of this kind, to change them.
    pub fn of_kind(&mut self, kind: &'static WorkloadKind) -> &mut Known<Vec<Workload>> {
        self.0.entry(kind).or_default()
    }

    /// Returns those of the kinds that are known, if winpool read any kind.
    pub fn known(&self) -> Option<impl Iterator<Item = (&'static WorkloadKind, &Workload)>> {
        let is_read = self.by_kind().next().is_some();
        is_read.then(|| {
            self.by_kind().flat_map(|(kind, workloads)| workloads.iter().map(move |workload| (kind, workload)))
        })
    }

    /// Returns those of each kind that is known.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static WorkloadKind, &Vec<Workload>)> {
        self.0.iter().filter_map(|(kind, workloads)| Some((*kind, workloads.known()?)))
    }

    /// Returns the resources that cannot be listed, with the reasons.
    pub fn refused(&self) -> BTreeMap<&'static str, &str> {
        self.0.iter().filter_map(|(kind, workloads)| Some((kind.plural, workloads.refusal()?))).collect()
    }
}
