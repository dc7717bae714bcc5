//! Where containers of workloads have started.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::pod::PodProgress;
use winpool_core::windows::Build;

use crate::pod::Pod;

use super::View;
use super::node::SeenNode;

/// The builds of nodes, and the nodes on which containers of each workload have started.
#[derive(Clone, Debug, Default)]
pub struct Started {
    /// The known nodes; `None` for one without a Windows build.
    builds: BTreeMap<String, Option<Build>>,
    /// The nodes by the name of a workload or pod: `Deployment shop/web`.
    nodes: BTreeMap<String, BTreeSet<String>>,
    /// The controllers of workloads, such as the `CronJob` of a `Job`.
    controllers: BTreeMap<String, String>,
    /// The workloads by their controller.
    controlled: BTreeMap<String, BTreeSet<String>>,
}

impl Started {
    /// Adds the nodes, pods and workloads that are known to what was written.
    pub(super) fn of(view: &View) -> Self {
        let mut started = view.written.started.clone();
        for SeenNode { object, .. } in view.nodes.known().into_iter().flatten() {
            started.builds.entry(object.name.to_string()).or_insert_with(|| object.node.windows_build());
        }
        let pods = view.pods.known().into_iter().flatten().filter(|pod| pod.progress != PodProgress::Finished);
        for StartedPod { workload, node, .. } in pods.filter_map(StartedPod::of) {
            started.nodes.entry(workload).or_default().insert(node);
        }
        for (_, workload) in view.workloads.known().into_iter().flatten() {
            if let Some((controller, name)) = &workload.controller {
                let controller = format!("{controller} {}/{name}", workload.namespace());
                started.add_controller(&workload.object().to_string(), &controller);
            }
        }
        started
    }

    pub(super) fn add(&mut self, StartedPod { pod, workload, node }: StartedPod) {
        self.add_controller(&pod, &workload);
        for name in [pod, workload] {
            self.nodes.entry(name).or_default().insert(node.clone());
        }
    }

    pub(super) fn add_controller(&mut self, workload: &str, controller: &str) {
        if workload == controller {
            return;
        }
        self.controlled.entry(controller.to_owned()).or_default().insert(workload.to_owned());
        if let Some(former) = self.controllers.insert(workload.to_owned(), controller.to_owned())
            && former != controller
            && let Some(controlled) = self.controlled.get_mut(&former)
        {
            controlled.remove(workload);
        }
    }

    /// Returns the controller of this workload: of a pod of a Deployment, the Deployment.
    pub fn controller(&self, workload: &str) -> Option<&str> {
        self.controllers.get(workload).map(String::as_str)
    }

    /// Returns the builds of the nodes on which containers of this workload, or of those that it controls, have started.
    pub fn builds(&self, workload: &str) -> BTreeSet<Build> {
        self.hosts(workload).flatten().collect()
    }

    /// Returns the workloads of which containers have started on a Windows node. True if none has started on another one.
    pub fn on_windows(&self) -> BTreeMap<String, bool> {
        let names = self.nodes.keys().flat_map(|name| [Some(name), self.controllers.get(name)]).flatten();
        let on_windows = names.filter(|name| self.hosts(name).any(|build| build.is_some()));
        on_windows.map(|name| (name.clone(), self.hosts(name).all(|build| build.is_some()))).collect()
    }

    /// Returns the builds of the known nodes on which containers of this workload, or of those that it controls, have started.
    fn hosts<'s>(&'s self, workload: &'s str) -> impl Iterator<Item = Option<Build>> {
        let controlled = self.controlled.get(workload).into_iter().flatten().map(String::as_str);
        let nodes = controlled.chain([workload]).filter_map(|name| self.nodes.get(name)).flatten();
        nodes.filter_map(|node| self.builds.get(node)).copied()
    }
}

/// A pod with a container that has started.
#[derive(Debug)]
pub(super) struct StartedPod {
    /// Its own name: `Pod shop/web-1`.
    pod: String,
    /// The name of its workload.
    workload: String,
    node: String,
}

impl StartedPod {
    /// Returns `None` if none of its containers has started.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let name = format!("Pod {}/{}", pod.namespace, pod.name);
        Some(Self { pod: name, workload: pod.workload(), node: pod.ran_on.clone()? })
    }
}
