//! Capability labels: they tell which RuntimeClasses a node can serve, where its build alone does not.

use crate::{
    api::{Isolation, names},
    plan::{Hosts, MetadataChange, Node, Pool},
    windows::{
        Build, ContainerRuntime,
        compatibility::{runs_by_hyperv_isolation, runs_by_process_isolation},
    },
};

const ABLE: &str = "true";

/// The label of nodes that can serve this class.
pub fn key(class: &str) -> String {
    format!("{}{class}", names::CAPABILITY_LABEL_PREFIX)
}

/// Plans the capability labels of a node of `pool`. A node without a pool loses all of them.
pub(super) fn plan(node: &Node, pool: Option<&Pool>) -> Vec<MetadataChange> {
    let mut changes = Vec::new();
    let capable = pool.iter().flat_map(|pool| &pool.declared).filter_map(|(hosts, spec)| match hosts {
        Hosts::Running(image, isolation) => Some((*image, *isolation, spec)),
        Hosts::Any | Hosts::Of(_) => None,
    });
    let mut known = Vec::new();
    for (image, isolation, spec) in capable {
        let key = key(&spec.name);
        let value = node.labels.get(&key);
        // An unknown answer changes nothing: a runtime that does not answer leaves the fields empty for a moment.
        if is_able(node, image, isolation, spec.effective_handler()).unwrap_or(value == Some(ABLE)) {
            changes.extend(MetadataChange::between(&key, value, Some(ABLE)));
            known.push(key);
        }
    }
    let labels = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX);
    let others = labels.filter(|(key, _)| !known.iter().any(|known| known == key));
    changes.extend(others.filter_map(|(key, value)| MetadataChange::between(key, Some(value), None)));
    changes
}

/// True if the node runs images of this build; `None` if that is unknown.
fn is_able(node: &Node, image: Build, isolation: Isolation, handler: &str) -> Option<bool> {
    let host = node.windows_version()?.build;
    if node.runtime_handlers.as_ref().is_some_and(|handlers| !handlers.iter().any(|name| **name == *handler)) {
        return Some(false);
    }
    match isolation {
        Isolation::HyperV => Some(runs_by_hyperv_isolation(host, image)),
        Isolation::Process if host == image => Some(true),
        Isolation::Process => {
            let runtime: ContainerRuntime = node.container_runtime.as_deref()?.parse().ok()?;
            runtime.version?;
            Some(runs_by_process_isolation(host, Some(runtime), image))
        }
    }
}
