//! What a report does not know.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::view::{Known, View};

pub(super) const IMAGES: &str = "images";
pub(super) const INSTALLATION: &str = "installation";
pub(super) const MANIFESTS: &str = "manifests";
pub(super) const POOL: &str = "pool";

/// Something that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lack {
    /// The objects that winpool did not see, such as `nodes`.
    pub what: String,
    /// The reason, such as the message of the API server.
    pub why: String,
    /// The part that the report lacks because of that.
    pub effect: String,
}

impl Lack {
    fn new(what: &str, why: &str, effect: &str) -> Self {
        Self { what: what.to_owned(), why: why.to_owned(), effect: effect.to_owned() }
    }

    /// The installation of winpool, or a part of it, is not known.
    pub fn installation(why: &str) -> Self {
        Self::new(INSTALLATION, why, "The state of winpool is incomplete.")
    }

    /// The platforms of images are not known.
    pub fn images() -> Self {
        let effect = "Workloads with these images are judged by their tags; winpool images shows each image.";
        Self::new(IMAGES, "A registry did not answer.", effect)
    }

    /// A part of the manifests cannot be read.
    pub fn manifests() -> Self {
        Self::new(MANIFESTS, "A file or an object cannot be read.", "It is missing everywhere.")
    }

    /// A pool is not valid.
    pub fn pool(why: &str) -> Self {
        Self::new(POOL, why, "The report is without this pool.")
    }
}

/// Returns what this view does not show, and after it what else is not known.
pub(super) fn all(view: &View, others: Vec<Lack>) -> Vec<Lack> {
    let parts = [
        ("nodes", why(&view.nodes), "The Windows versions and their ends of support are missing."),
        ("windowspools", why(&view.pools), "Pools, and the taints that winpool holds, are missing."),
        ("runtimeclasses", why(&view.classes), "RuntimeClasses are missing, and pins by a RuntimeClass may be."),
        ("pods", why(&view.pods), "Failing pods are missing. Nothing shows where workloads run."),
        ("services", forbidden(&view.services), "Services are not checked."),
        ("gmsacredentialspecs", forbidden(&view.credential_specs), "Names of GMSACredentialSpecs are not checked."),
    ];
    let parts = parts.into_iter().filter_map(|(what, why, effect)| Some(Lack::new(what, &why?, effect)));
    let unlisted = view.workloads.refused().into_iter().map(|(what, why)| {
        Lack::new(what, why, "Such workloads are missing, also in the numbers of what is pinned and what can move.")
    });
    parts.chain(unlisted).chain(others).collect()
}

fn why<T>(part: &Known<Vec<T>>) -> Option<String> {
    let none = || "The manifests have none that winpool can read.".to_owned();
    forbidden(part).or_else(|| matches!(part, Known::NotRead).then(none))
}

fn forbidden<T>(part: &Known<Vec<T>>) -> Option<String> {
    part.refusal().map(str::to_owned)
}
