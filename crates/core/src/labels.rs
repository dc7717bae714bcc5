//! Labels of a node, in a form that many nodes can share.

use std::sync::Arc;

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

    /// The labels with these keys.
    pub fn with_keys(&self, has: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|pair| has(&pair.0)).cloned().collect())
    }

    /// True if the labels include every pair of `selector`.
    pub fn matches<'a>(&self, selector: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
        selector.into_iter().all(|(key, value)| self.get(key) == Some(value))
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
