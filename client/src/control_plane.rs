//! Facts about the control plane that status reports: its version, and which of winpool's admission policies are
//! installed. They are read from time to time, because both change while the operator runs.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use futures::future::join_all;
use http::{Request, header::DATE};
use k8s_openapi::{
    api::{core::v1::Namespace, node::v1::RuntimeClass},
    jiff::{Timestamp, fmt::rfc2822::DateTimeParser},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta},
    client::Body,
    core::PartialObjectMeta,
};
use winpool_core::{
    api::names::RUNTIME_CLASS,
    plan::{Admission, AdmissionComponent, COMPONENTS, InstalledPolicy, reconcile::ControlPlaneInfo},
    pod::Class,
    windows::KubernetesVersion,
};

use crate::{
    causes::{failure, shortened},
    error::{RequestError, Unreadable, in_time},
    pages,
};

/// The time limit for reading them: a pool does not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of namespaces with a class that are kept: 2 MB.
const NAMESPACES: usize = 10_000;

pub struct ControlPlane {
    client: Client,
}

impl ControlPlane {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Reads the facts. Keeps the `known` version if the API server does not report another one.
    pub async fn ask(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let answer = tokio::time::timeout(PATIENCE, self.ask_all(known)).await;
        answer.unwrap_or_else(|_| ControlPlaneInfo { kubernetes: known, admission: Admission::unknown() })
    }

    async fn ask_all(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let kubernetes = kubernetes_version(&self.client).await.or(known);
        let admission = self.admission(|component| component.is_supported(kubernetes)).await;
        ControlPlaneInfo { kubernetes, admission }
    }

    /// Reads these admission policies, and names those that cannot be read.
    async fn admission(&self, asks: impl Fn(&AdmissionComponent) -> bool) -> Admission {
        let mut admission = Admission::default();
        let asked = COMPONENTS.iter().filter(|component| asks(component));
        let answers = join_all(asked.map(async |component| (component, self.look_up(component).await))).await;
        for (component, answer) in answers {
            match answer {
                Ok(installed) => {
                    admission.installed.insert(component.name, installed);
                }
                // Only reported: nothing waits for it.
                Err(error) => {
                    tracing::debug!(component.policy, error = failure(&error), "admission policy cannot be read");
                    admission.unreadable.insert(component.name);
                }
            }
        }
        if admission.policy("assign-class").is_some() {
            // Many large namespaces must not make everything else unknown.
            let classes = tokio::time::timeout(PATIENCE / 2, self.namespace_classes()).await;
            let classes = classes.unwrap_or(Err(RequestError::TimedOut(PATIENCE / 2)));
            let unreadable = |error: &RequestError| {
                tracing::debug!(error = failure(error), "labels of namespaces cannot be read");
            };
            admission.namespace_classes = classes.inspect_err(unreadable).ok().flatten();
        }
        admission
    }

    /// Reads the facts that a workload check needs at its start: the RuntimeClasses, the admission policies that help workloads,
    /// and the time. A policy that cannot be read helps no workload.
    pub async fn at_start(&self) -> Result<(BTreeMap<String, Class>, Admission, Timestamp), Unreadable> {
        let helps = |component: &AdmissionComponent| ["assign-class", "tolerate-windows"].contains(&component.name);
        let admission = tokio::time::timeout(PATIENCE, self.admission(helps));
        let (all, mut classes) = (Api::<RuntimeClass>::all(self.client.clone()), BTreeMap::new());
        let add = |class: RuntimeClass| drop(classes.insert(class.name_any(), Class::from(&class)));
        // Concurrently, because nodes wait for the check.
        let (time, admission, listed) = tokio::join!(
            in_time(server_time(&self.client)),
            admission,
            pages::each_patiently(&all, ListParams::default(), add)
        );
        listed.map_err(Unreadable::of("runtimeclasses"))?;
        let time = time.map_err(Unreadable::of("the time of the API server"))?;
        Ok((classes, admission.unwrap_or_default(), time.unwrap_or_else(Timestamp::now)))
    }

    /// Reads the policy of a component and its binding. A policy without a binding has no effect.
    async fn look_up(&self, component: &AdmissionComponent) -> kube::Result<Option<InstalledPolicy>> {
        let spec = async |kind: &str| {
            // Some of these kinds are newer than the oldest Kubernetes that is supported, so their types are not generated.
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
            let object = Api::<DynamicObject>::all_with(self.client.clone(), &kind).get_opt(component.policy).await?;
            Ok::<_, kube::Error>(object.map(|mut object| object.data["spec"].take()))
        };
        let Some(policy) = spec(component.kind()).await? else { return Ok(None) };
        let Some(binding) = spec(&format!("{}Binding", component.kind())).await? else { return Ok(None) };
        Ok(InstalledPolicy::read(component.policy, &policy, &binding))
    }

    /// The class in the label `winpool.dev/runtime-class` of each namespace that has it; `None` if there are more than
    /// [`NAMESPACES`].
    async fn namespace_classes(&self) -> Result<Option<BTreeMap<String, String>>, RequestError> {
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(self.client.clone());
        let (mut classes, mut is_complete) = (BTreeMap::new(), true);
        let add = |namespace: PartialObjectMeta<Namespace>| {
            let ObjectMeta { name, labels, .. } = namespace.metadata;
            let class = labels.and_then(|mut labels| labels.remove(RUNTIME_CLASS));
            // The policy reads an empty label as none.
            if let Some((name, class)) = name.zip(class.filter(|class| !class.is_empty())) {
                is_complete &= classes.len() < NAMESPACES;
                if is_complete {
                    classes.insert(name, class);
                }
            }
        };
        pages::each(&namespaces, ListParams::default().labels(RUNTIME_CLASS), add).await?;
        Ok(Some(classes).filter(|_| is_complete))
    }
}

/// The API server's time, by which the objects are dated; `None` if its answer has no date.
async fn server_time(client: &Client) -> kube::Result<Option<Timestamp>> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let answer = client.send(request).await?;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()))
}

/// The version of the API server; `None` if it does not answer or its version cannot be read.
pub async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version()).await;
    let unreadable =
        |error: &dyn Display| tracing::debug!(error = shortened(&error), "the version of Kubernetes cannot be read");
    let answer = answer.inspect_err(|error| unreadable(error)).ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor).inspect_err(|error| unreadable(error)).ok()
}
