//! Asks registries about the images of workloads, if the user wants that.

use std::collections::{BTreeMap, BTreeSet};

use winpool_analysis::image::{ImageReference, Images, Unresolved};

use crate::print::progress;
use crate::read::registry::{self, OptionsError, Registry, RegistryErrorKind};

/// The flags of commands that can ask registries.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Resolve {
    /// Ask registries which Windows versions each image supports, instead of reading tags. Without this flag winpool connects to
    /// no registry.
    #[arg(long)]
    pub resolve_images: bool,
    #[command(flatten)]
    pub registry: registry::RegistryOptions,
}

impl Resolve {
    /// True if registries are to be asked. Tells the user about other flags that have no effect without that.
    pub fn is_wanted(&self) -> bool {
        let registry::RegistryOptions { registry_config, registry_ca, plain_http, registry_cache, offline } =
            &self.registry;
        let has_files = [registry_config, registry_ca, registry_cache].into_iter().any(Option::is_some);
        if !self.resolve_images && (has_files || *offline || !plain_http.is_empty()) {
            eprintln!("winpool: the flags for registries have no effect without --resolve-images");
        }
        self.resolve_images
    }

    /// Looks up the images that workloads name. Without the flag it does nothing.
    ///
    /// # Errors
    /// Fails if the options cannot be used. What a registry does is never an error.
    pub async fn images(&self, names: impl FnOnce() -> BTreeSet<String>) -> Result<Images, OptionsError> {
        let mut images = Images::default();
        if self.is_wanted() {
            look_up(&Registry::new(self.registry.clone())?, &names(), &mut images).await;
        }
        Ok(images)
    }
}

/// Adds the answers for these images.
pub async fn look_up(registry: &Registry, names: &BTreeSet<String>, images: &mut Images) {
    let mut references: BTreeMap<ImageReference, Vec<&str>> = BTreeMap::new();
    for name in names {
        match name.parse::<ImageReference>() {
            Ok(reference) => references.entry(reference).or_default().push(name),
            Err(error) => images.add(name, Err(Unresolved { reason: error.to_string(), is_missing: false })),
        }
    }
    let answers = registry.resolve_all(references.keys().cloned());
    let answers = progress::waiting("asking registries", answers).await;
    for (reference, answer) in answers {
        let answer = answer.map_err(|error| Unresolved {
            reason: error.kind.to_string(),
            is_missing: matches!(error.kind, RegistryErrorKind::NotFound),
        });
        for name in references.get(&reference).into_iter().flatten() {
            images.add(name, answer.clone());
        }
    }
}

/// Lists the tags of the repositories of these images. An image whose registry does not list them is left out.
pub async fn list_tags(registry: &Registry, names: &BTreeSet<String>) -> BTreeMap<String, Vec<String>> {
    let repository = |name: &String| name.parse::<ImageReference>().ok().map(|reference| reference.with_tag(""));
    let tags = registry.tags_of_all(names.iter().filter_map(repository)).await;
    names.iter().filter_map(|name| Some((name.clone(), tags.get(&repository(name)?)?.clone()))).collect()
}
