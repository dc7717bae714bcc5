//! Reads all that commands need of a live cluster, each kind once.

use kube::Client;
use kube::api::{ApiResource, ListParams};
use serde::Deserialize;
use serde_json::Value;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::pod::Pod;
use winpool_analysis::view::{Known, Reduced, Workload};

use crate::read::live::{self, ReadError, kubernetes_version};

use super::assembled::assembled;
use super::cluster::{Reader, add_related, api_of, counts, placed, resource, typed, unless_absent};
use super::seen::Seen;

/// The label of the `ReplicaSets` of a Deployment, which stands for them.
const OF_DEPLOYMENT: &str = "pod-template-hash";

/// True for the `ReplicaSet` of a Deployment.
pub(super) fn is_of_deployment(object: &Value) -> bool {
    object["kind"] == "ReplicaSet" && !object["metadata"]["labels"][OF_DEPLOYMENT].is_null()
}

/// Reads everything. What the user may not list is not known in the view.
pub async fn everything(
    client: &Client,
    version: Option<KubernetesVersion>,
    has_namespaces: bool,
) -> Result<Seen, ReadError> {
    let mut reader = Reader::new(client);
    reader.view.kubernetes = match version {
        Some(version) => Some(version),
        None => kubernetes_version(client).await,
    };
    let nodes = reader.nodes(ListParams::default()).await;
    reader.view.nodes = reader.unless_forbidden(nodes, "Windows versions are missing")?;
    let classes = reader.classes().await;
    reader.view.classes = reader.unless_forbidden(classes, "RuntimeClasses are missing")?;
    let pools = reader.pools_if_installed().await;
    reader.view.pools = reader.unless_forbidden(pools, "pools and held taints are missing")?;
    for (kind, resource) in reader.kinds().await? {
        reader.both(kind, &resource).await?;
    }
    let (_, services) = resource(client, None, "", "Service");
    let services = live::collect("services", &services, ListParams::default(), placed).await;
    reader.view.services = reader.unless_forbidden(services, "Services are not checked")?;
    reader.namespaces(None, has_namespaces).await?;
    reader.credential_specs().await?;
    add_related(client, None, &mut reader.view).await?;
    reader.note_policies();
    reader.view.sort();
    Ok(reader.done())
}

impl Reader<'_> {
    /// Reads pods or workloads of a kind, both as they were written and as the operator reads them.
    async fn both(&mut self, kind: &'static WorkloadKind, resource: &ApiResource) -> Result<(), ReadError> {
        let api = api_of(self.client, None, resource);
        let is_pod = kind.name == "Pod";
        let (mut pods, mut workloads, mut unread) = (Vec::new(), Vec::new(), None);
        let selected = if is_pod { live::unfinished_pods() } else { ListParams::default() };
        let keep = |value: Value| {
            let value = typed(value, resource);
            if is_pod {
                match Pod::deserialize(&value) {
                    Ok(pod) => pods.push(pod),
                    Err(error) => unread = Some(error),
                }
            } else if kind.has_template() && !is_of_deployment(&value) {
                match Workload::read_all(kind, &value) {
                    Ok(read) => workloads.extend(read),
                    Err(error) => unread = Some(error),
                }
            }
            self.view.written.add(None, Reduced::from(assembled(value)));
        };
        let listed = unless_absent(live::list(kind.plural, &api, selected, keep).await, kind);
        if is_pod {
            self.view.pods = Known::Complete(pods);
        } else if kind.has_template() {
            *self.view.workloads.of_kind(kind) = Known::Complete(workloads);
        }
        let (note, reason) = match (live::unless_forbidden(listed)?, unread) {
            (Some(error), _) => (format!("{error}; {}s are missing", kind.name), error.to_string()),
            (None, Some(error)) => {
                let reason = format!("an object cannot be read: {error}");
                (format!("{}: {reason}", kind.plural), reason)
            }
            (None, None) => return Ok(()),
        };
        self.notes.push(note);
        self.gaps.in_cluster |= counts(kind);
        if counts(kind) || kind.has_template() {
            self.refuse(kind, reason);
        }
        Ok(())
    }
}
