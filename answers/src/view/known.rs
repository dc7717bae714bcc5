//! A part of a cluster, and how much of it is known.

/// The objects of a kind. What is not known is never taken for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Known<T> {
    /// All of them.
    Complete(T),
    /// Some of them: those in manifests, or those of the kinds that the user may list.
    Partial(T),
    /// The user may not list them; with the API server's message.
    Forbidden(String),
    /// winpool did not read them, or the manifests have none.
    #[default]
    NotRead,
}

impl<T> Known<T> {
    /// Returns the objects that are known, if winpool read any.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Complete(objects) | Self::Partial(objects) => Some(objects),
            Self::Forbidden(_) | Self::NotRead => None,
        }
    }

    pub fn known_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Complete(objects) | Self::Partial(objects) => Some(objects),
            Self::Forbidden(_) | Self::NotRead => None,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete(_))
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden(_))
    }
}

impl<T> Known<Vec<T>> {
    /// Adds an object. There may be others.
    pub fn add(&mut self, object: T) {
        match self.known_mut() {
            Some(objects) => objects.push(object),
            None => *self = Self::Partial(vec![object]),
        }
    }

    /// Returns the objects that are known.
    pub fn all(&self) -> &[T] {
        self.known().map_or(&[], Vec::as_slice)
    }
}
