//! Lists in pages, so that no answer grows with the cluster.

use std::fmt::Debug;

use kube::{Api, api::ListParams};
use serde::de::DeserializeOwned;

use crate::apply::{WriteError, in_time};

/// Objects asked for in one request. More gain no time, and a page of nodes with all their images is 10 KB each.
pub(crate) const PAGE: u32 = 100;

/// Hands over every object that `parameters` select, one page after the other.
///
/// # Errors
/// When they cannot be listed.
pub(crate) async fn each<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    parameters: ListParams,
    mut found: impl FnMut(K),
) -> Result<(), WriteError> {
    let mut parameters = parameters.limit(PAGE);
    loop {
        let page = in_time(api.list(&parameters)).await?;
        page.items.into_iter().for_each(&mut found);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}
