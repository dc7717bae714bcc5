//! Pods and workloads as they were written.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use crate::workload::WorkloadManifest;

use super::reduced::{ObjectKey, identity};
use super::{Placed, Position, Reduced, Started};

/// Pods and workloads as compact JSON, which needs a tenth of the memory of parsed JSON.
#[derive(Debug, Default)]
pub struct Written {
    found: Vec<Placed<Box<str>>>,
    /// True if there is a workload, finished or not.
    has_any: bool,
    /// The workloads that may control others.
    owners: HashSet<ObjectKey>,
    pub(super) started: Started,
}

impl Written {
    pub fn add(&mut self, source: Option<Position>, object: Reduced) {
        let Reduced { text, owner, is_finished, started, controller } = object;
        if let Some(pod) = started {
            self.started.add(*pod);
        }
        if let Some((workload, controller)) = controller {
            self.started.add_controller(&workload, &controller);
        }
        self.has_any = true;
        self.found.extend((!is_finished).then_some((source, text)));
        self.owners.extend(owner);
    }

    /// True if there is no workload, not even a finished one.
    pub fn is_empty(&self) -> bool {
        !self.has_any
    }

    /// True if a workload contains this text.
    pub fn mention(&self, text: &str) -> bool {
        self.found.iter().any(|(_, written)| written.contains(text))
    }

    /// Returns the images that the workloads need.
    pub fn images(&self) -> BTreeSet<String> {
        let mut images = BTreeSet::new();
        self.each(|_, workload| images.extend(workload.pod.images().map(|(_, name)| name.to_owned())));
        images
    }

    /// Calls `visit` for each workload, except those that another workload here controls: they would repeat its findings.
    pub fn each(&self, mut visit: impl FnMut(Option<&Position>, &WorkloadManifest<'_>)) {
        for (source, text) in &self.found {
            let object = parsed(text);
            for workload in WorkloadManifest::read_all(&object).into_iter().flatten() {
                let is_owned = |(kind, name)| self.owners.contains(&identity(kind, &workload, name));
                let is_of_known =
                    || self.started.controller(&workload.object().to_string()).is_some_and(|name| self.is_owner(name));
                if !workload.owner().is_some_and(is_owned) && !is_of_known() {
                    visit(source.as_ref(), &workload);
                }
            }
        }
    }

    /// Calls `visit` for each object, as it was written.
    pub fn each_object(&self, mut visit: impl FnMut(&Value)) {
        self.found.iter().for_each(|(_, text)| visit(&parsed(text)));
    }

    /// Returns the workload of this kind and name. A workload that names no namespace is in this one.
    pub fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let is_named = |object: &Value| {
            let metadata = &object["metadata"];
            let own = metadata["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or(namespace);
            let named = metadata["name"].as_str().or(metadata["generateName"].as_str());
            object["kind"] == kind && named == Some(name) && own == namespace
        };
        let near = self.found.iter().map(|(_, text)| text).filter(|text| text.contains(name));
        near.map(|text| parsed(text)).find(is_named)
    }

    /// True for the name of a workload here: `Deployment shop/web`.
    fn is_owner(&self, name: &str) -> bool {
        let parts = name.split_once(' ').and_then(|(kind, rest)| Some((kind, rest.split_once('/')?)));
        parts.is_some_and(|(kind, (namespace, name))| {
            self.owners.contains(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
        })
    }
}

/// `Reduced` wrote this JSON.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
