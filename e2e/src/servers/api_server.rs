//! A real kube-apiserver with a state of its own.

use crate::error::{Result, text};
use crate::machine::assets::Component;
use crate::machine::guard::{Directory, Guard};
use crate::machine::process::{Launch, Process, start_on_free_port};
use crate::network::certificates::{Authority, ClientCertificate};
use crate::network::kubeconfig::{Endpoint, answers};
use crate::servers::etcd::{ENDPOINT, Etcd};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Without a controller manager no namespace ever gets its default service account, without which every pod would be
/// refused.
pub(crate) const PODS_WITHOUT_SERVICE_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";

/// A running API server, with RBAC and Node authorization, `NodeRestriction`, and the admission policies of its
/// release.
pub struct ApiServer {
    process: Process,
    endpoint: Endpoint,
    admin: ClientCertificate,
    kubeconfig: PathBuf,
    authority: Authority,
    service_account_key: PathBuf,
    serving: ClientCertificate,
    directory: Directory,
    etcd: Arc<Etcd>,
}

impl ApiServer {
    /// Starts an API server that keeps its state in `etcd` under `prefix`, and waits until it is ready.
    ///
    /// There is no controller manager: namespaces have no service accounts (pods do without), a deleted namespace
    /// stays, nothing is garbage-collected, and new nodes keep their not-ready taint.
    pub async fn start(etcd: &Arc<Etcd>, prefix: &str) -> Result<Self> {
        Self::start_with(etcd, prefix, &[PODS_WITHOUT_SERVICE_ACCOUNTS]).await
    }

    /// Starts an API server with more flags. They follow the usual ones, and so override them.
    pub async fn start_with(etcd: &Arc<Etcd>, prefix: &str, flags: &[&str]) -> Result<Self> {
        let program = Component::KubeApiserver.path().await?;
        let directory = Guard::get()?.directory("api-server")?;
        let authority = Authority::new(directory.path())?;
        let serving = authority.serving()?;
        let admin = authority.client("admin", Some("system:masters"))?;
        let (service_account_key, service_account_public_key) = authority.service_account_keys()?;

        let mut arguments = vec![
            format!("--etcd-prefix=/{prefix}"),
            format!("--tls-cert-file={}", text(&serving.certificate)?),
            format!("--tls-private-key-file={}", text(&serving.key)?),
            format!("--client-ca-file={}", text(&authority.certificate())?),
            format!("--service-account-key-file={}", text(&service_account_public_key)?),
            format!("--service-account-signing-key-file={}", text(&service_account_key)?),
            format!("--cert-dir={}", text(directory.path())?),
        ];
        arguments.extend(CONSTANT_FLAGS.iter().chain(flags).map(ToString::to_string));
        arguments.push(format!("--etcd-servers={ENDPOINT}"));

        let launch = |port| {
            let port = format!("--secure-port={port}");
            Process::start(Launch {
                name: "kube-apiserver",
                program: &program,
                arguments: arguments.iter().cloned().chain([port]).collect(),
                directory: etcd.directory(),
                logs: directory.path(),
            })
        };
        let ready = async |port| answers(connect(&Endpoint::on(port, &authority), &admin), "/readyz").await;
        let (process, port) = start_on_free_port(launch, ready).await?;

        let endpoint = Endpoint::on(port, &authority);
        let kubeconfig = directory.path().join("kubeconfig");
        endpoint.write_kubeconfig(&admin, &kubeconfig)?;
        Ok(Self {
            process,
            endpoint,
            admin,
            kubeconfig,
            authority,
            service_account_key,
            serving,
            directory,
            etcd: Arc::clone(etcd),
        })
    }

    /// Ends it with SIGKILL, starts it again on its port, and waits until it is ready.
    pub async fn restart(&self) -> Result<()> {
        self.process.start_again()?;
        // A connection of the old process would not show if the new one works.
        self.process.until(async || answers(self.connect(), "/readyz").await).await
    }

    /// A new client of an administrator. It lives as long as the async runtime that created it.
    pub fn connect(&self) -> Result<Client> {
        connect(&self.endpoint, &self.admin)
    }

    /// A new client that is `user` in `groups` (and in `system:authenticated`), by impersonation.
    ///
    /// A node's kubelet is `system:node:NAME` in `system:nodes`.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        Ok(Client::try_from(self.config_as(user, groups)?)?)
    }

    /// The configuration of a client that may do everything, to change before use.
    pub fn config(&self) -> Result<Config> {
        self.endpoint.config(&self.admin)
    }

    /// The configuration of the client that [`Self::client_as`] makes, to change before use.
    pub fn config_as(&self, user: &str, groups: &[&str]) -> Result<Config> {
        let mut config = self.config()?;
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(groups.iter().map(ToString::to_string).collect());
        Ok(config)
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:port`.
    pub fn url(&self) -> &str {
        &self.endpoint.url
    }

    /// The directory with its logs, certificates and kubeconfig.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Fails with the end of a log if the server or its etcd has ended.
    pub fn check(&self) -> Result<()> {
        self.etcd.process().check()?;
        self.process.check()
    }

    /// A kubeconfig file for a component that is `user`.
    pub(crate) fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let identity = self.authority.client(user, group)?;
        let file = identity.certificate.with_extension("kubeconfig");
        self.endpoint.write_kubeconfig(&identity, &file)?;
        Ok(file)
    }

    /// A certificate for a component that is `user` in `group`.
    pub(crate) fn identity(&self, user: &str, group: &str) -> Result<ClientCertificate> {
        self.authority.client(user, Some(group))
    }

    /// A client of another component of this control plane, which listens on `port`.
    pub(crate) fn connect_to(&self, port: u16) -> Result<Client> {
        connect(&Endpoint::on(port, &self.authority), &self.admin)
    }

    /// The certificate of the authority that its serving certificate comes from.
    pub fn authority_file(&self) -> PathBuf {
        self.authority.certificate()
    }

    pub(crate) fn serving(&self) -> &ClientCertificate {
        &self.serving
    }

    pub(crate) fn service_account_key(&self) -> &Path {
        &self.service_account_key
    }
}

fn connect(endpoint: &Endpoint, identity: &ClientCertificate) -> Result<Client> {
    Ok(Client::try_from(endpoint.config(identity)?)?)
}

const CONSTANT_FLAGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    // A loopback address may not stand in an Endpoints object.
    "--endpoint-reconciler-type=none",
    "--authorization-mode=Node,RBAC",
    // PodNodeSelector does nothing in a namespace without its annotation.
    "--enable-admission-plugins=NodeRestriction,PodNodeSelector",
    "--allow-privileged=true",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--profiling=false",
];
