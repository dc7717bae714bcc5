//! The options for registries.

use std::path::PathBuf;

/// The options for registries.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Registries")]
pub struct RegistryOptions {
    /// Docker configuration with the credentials of registries; `config.json` in `DOCKER_CONFIG` or ~/.docker if not set.
    #[arg(long, value_name = "FILE")]
    pub registry_config: Option<PathBuf>,
    /// Certificates to trust besides those of the system, in PEM format.
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// Registry to ask without TLS; can be repeated. This machine is asked without TLS unless --registry-ca is set.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub plain_http: Vec<String>,
    /// Directory in which manifests are cached; ~/.cache/winpool/registry if not set.
    #[arg(long, value_name = "DIRECTORY")]
    pub registry_cache: Option<PathBuf>,
    /// Ask no registry, and use only what is cached.
    #[arg(long)]
    pub offline: bool,
}
