//! Labels of a node, in a form that many nodes can share.

use std::{collections::BTreeMap, sync::Arc};

/// One label. Most pairs occur on thousands of nodes, so a cache stores each of them once.
pub type LabelPair = Arc<(Box<str>, Box<str>)>;

/// Labels sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Arc<[LabelPair]>);

impl Labels {
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|pair| pair.0.as_ref().cmp(key)).ok()?;
        self.0.get(index).map(|pair| pair.1.as_ref())
    }

    /// The labels whose key starts with `prefix`.
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().map(|pair| (pair.0.as_ref(), pair.1.as_ref()));
        pairs.filter(move |(key, _)| key.starts_with(prefix))
    }

    /// True if the labels include every pair of `selector`.
    pub fn matches<'a>(&self, selector: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
        selector.into_iter().all(|(key, value)| self.get(key) == Some(value))
    }

    /// These labels after changes: each sets a key to a value, or removes it. The other pairs are shared.
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let changes: BTreeMap<_, _> = changes.into_iter().collect();
        if changes.is_empty() {
            return self.clone();
        }
        let kept = self.0.iter().filter(|pair| !changes.contains_key(pair.0.as_ref())).cloned();
        let set = changes.iter().filter_map(|(key, value)| Some(Arc::new(((*key).into(), (*value)?.into()))));
        kept.chain(set).collect()
    }
}

impl FromIterator<LabelPair> for Labels {
    fn from_iter<I: IntoIterator<Item = LabelPair>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable();
        Self(pairs.into())
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        pairs.into_iter().map(|(key, value)| Arc::new((key.into(), value.into()))).collect()
    }
}
