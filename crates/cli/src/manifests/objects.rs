//! Objects that are given several times: generated files contain copies, and `-f` may name a file and its directory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use winpool_core::words::count;

use winpool_analysis::view::Position;

use super::manifest::{Copies, Keep, Manifest};

/// Replaced objects that notes name, at most.
const NAMED: usize = 3;

/// Identifies an object.
pub(super) struct Identity {
    /// Group, kind, namespace and name.
    object: [String; 4],
    /// A hash of its uid, which no variant shares with it, or else of its contents.
    variant: u64,
    contents: u64,
}

impl Identity {
    /// Returns `None` if the object has no name.
    pub(super) fn of(manifest: &Manifest) -> Option<Self> {
        let text = |field: &str| manifest.value.get("metadata")?.get(field)?.as_str().filter(|text| !text.is_empty());
        let namespace = text("namespace").unwrap_or_default();
        let object = [manifest.group(), &manifest.kind, namespace, text("name")?].map(str::to_owned);
        // Items of a typed list do not repeat their type.
        let is_content = |key: &str| !["apiVersion", "kind"].contains(&key);
        let fields = manifest.value.as_object()?.iter().filter(|(key, _)| is_content(key));
        let contents = hash(&fields.collect::<Vec<_>>());
        Some(Self { object, variant: text("uid").map_or(contents, |uid| hash(&uid)), contents })
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The objects that a command keeps.
pub struct Objects<K> {
    pub found: Vec<(Position, K)>,
    /// The number of objects and empty lists in the input, kept or not.
    pub(super) seen: usize,
    /// The places in `found` by object and, if variants are kept, by variant. Each has the hash of the contents.
    places: HashMap<([String; 4], Option<u64>), (usize, u64)>,
    /// Descriptions of the first objects that replaced others.
    named: Vec<String>,
    replaced: usize,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { found: Vec::new(), seen: 0, places: HashMap::new(), named: Vec::new(), replaced: 0 }
    }
}

impl<K: Keep> Objects<K> {
    /// Adds an object, unless it is a copy. `name` is its kind and name.
    pub(super) fn add(&mut self, source: Position, name: &str, identity: Option<Identity>, part: K) {
        let Some(Identity { object, variant, contents }) = identity.filter(|_| K::COPIES != Copies::Kept) else {
            return self.found.push((source, part));
        };
        let key = (object, (K::COPIES == Copies::EqualOnce).then_some(variant));
        let (place, before) = self.places.entry(key).or_insert((self.found.len(), contents));
        let Some(earlier) = self.found.get_mut(*place) else { return self.found.push((source, part)) };
        if *before == contents {
            return;
        }
        self.replaced += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{source}: {name} replaces the one of {}, as with kubectl apply", earlier.0));
        }
        (*before, *earlier) = (contents, (source, part));
    }

    /// Returns notes about the objects that replaced others.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let more = self.replaced - self.named.len();
        let more = (more > 0).then(|| format!("{} more replaced an earlier one", count(more, "object")));
        self.named.iter().cloned().chain(more)
    }
}
