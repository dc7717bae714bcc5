//! Installing, upgrading and uninstalling `config/` and `charts/winpool` on a real control plane.

mod chart;
mod equal;
mod helm;
mod kustomize;
mod scene;
mod upgrade;
mod values;
