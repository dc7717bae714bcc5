//! Reads all that commands need of a live cluster, each kind once.

use kube::Client;
use kube::api::ListParams;
use winpool_analysis::kubernetes::KubernetesVersion;

use crate::read::live::{self, ReadError};

use super::cluster::{Form, Reader, add_related, placed, resource};
use super::seen::Seen;

/// Reads everything. What the user may not list is not known in the view.
pub async fn everything(
    client: &Client,
    version: Option<KubernetesVersion>,
    has_namespaces: bool,
) -> Result<Seen, ReadError> {
    let mut reader = Reader::new(client);
    let lacks = ["Windows versions are missing", "RuntimeClasses are missing", "pools and held taints are missing"];
    reader.surroundings(version, lacks).await?;
    for (kind, resource) in reader.kinds().await? {
        if let Some(error) = reader.objects(kind, &resource, Form::Both, None).await? {
            reader.notes.push(format!("{error}; {}s are missing", kind.name));
            reader.refuse(kind, error.to_string());
        }
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
