//! The change of a WindowsPool that helps the pods of a class.

use serde_json::json;
use winpool_core::{
    api::{HostMatch, ObjectReference},
    plan::GuardedPool,
};

use super::result::Remedy;

/// A change of a WindowsPool that lets pods of a class run on every node that runs their images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolChange {
    pool: String,
    /// The class, if the pool declares it; all others if not.
    declared: Option<String>,
}

impl PoolChange {
    /// Returns the change for the pods of a class that belongs to this pool, unless the pool has it already.
    pub fn of(pool: &GuardedPool, class: &str) -> Option<Self> {
        let name = pool.metadata.name.clone()?;
        let spec = &pool.pool().ok()?.spec;
        let declared = spec.runtime_classes.iter().find(|declared| declared.name == class);
        let host_match = declared.map_or(spec.runtime_class_host_match, |declared| declared.host_match);
        let declared = declared.map(|declared| declared.name.clone());
        (host_match == HostMatch::Exact).then_some(Self { pool: name, declared })
    }

    /// Changes the pool.
    pub fn apply(&self, pools: &mut [GuardedPool]) {
        let own = pools.iter_mut().filter(|pool| pool.metadata.name.as_ref() == Some(&self.pool));
        for pool in own {
            pool.change_spec(|spec| match &self.declared {
                None => spec.runtime_class_host_match = HostMatch::Compatible,
                Some(name) => {
                    let mut classes = spec.runtime_classes.iter_mut();
                    if let Some(class) = classes.find(|class| class.name == *name) {
                        class.host_match = HostMatch::Compatible;
                    }
                }
            });
        }
    }

    pub fn remedy(&self, pools: &[GuardedPool]) -> Remedy {
        let (change, spec) = match &self.declared {
            None => (
                "runtimeClassHostMatch: Compatible".to_owned(),
                Some(json!({"runtimeClassHostMatch": HostMatch::Compatible})),
            ),
            Some(name) => {
                let mut changed = pools.to_vec();
                self.apply(&mut changed);
                let own = changed.iter().find(|pool| pool.metadata.name.as_ref() == Some(&self.pool));
                // A merge patch replaces a list as a whole.
                let classes = own.and_then(|pool| pool.pool().ok()).map(|pool| json!(pool.spec.runtime_classes));
                let spec = classes.map(|classes| json!({"runtimeClasses": classes}));
                (format!("hostMatch: Compatible for RuntimeClass {name}"), spec)
            }
        };
        Remedy {
            object: ObjectReference::windows_pool(&self.pool),
            change,
            patch: spec.map(|spec| json!({"spec": spec})),
        }
    }
}
