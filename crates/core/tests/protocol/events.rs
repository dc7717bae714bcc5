//! Actions of users, kubelets, other controllers and workloads.

use serde_json::{Value, json};
use winpool_core::api::names;

use super::cluster::{self, Kind, Node, NodeFacts, TEAM, Work};
use super::state::World;

/// An action of others. It waits until it is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Create(&'static str, &'static str),
    /// A pool gets another spec.
    Change(&'static str, &'static str),
    Delete(&'static str),
    /// A node registers, for this team.
    Join(&'static str, &'static str),
    /// A node is deleted, and may register again.
    Leave(&'static str),
    /// A node comes back as Linux under its old name.
    Reimage(&'static str),
    /// A kubelet that starts with another build of Windows writes the label of the build, and then reports the version.
    Relabel(&'static str, &'static str),
    Report(&'static str, &'static str),
    /// A node goes to another team.
    Move(&'static str, &'static str),
    Ignore(&'static str, bool),
    /// A user removes this taint, whoever added it.
    Untaint(&'static str, &'static str),
    /// Other writers of a node add, change and remove a taint of their own.
    Taint(&'static str, &'static str, &'static str, End),
    Retaint(&'static str, &'static str, &'static str),
    TakeBack(&'static str, &'static str),
    /// A node claims in its annotation that winpool added this taint too.
    Forge(&'static str, &'static str),
    /// A node gets a label under one of winpool's prefixes.
    Invent(&'static str, &'static str),
    /// An admission policy that refuses every change of taints is installed, or removed.
    RefuseTaints(bool),
    /// The same for one that reverts every change of taints.
    RevertTaints(bool),
    /// winpool loses the permission to watch pods, or gets it.
    DenyPods(bool),
    /// A write that changes nothing that winpool reads: a heartbeat.
    Beat(&'static str),
    /// A workload of this kind and class is created. Its pods run on the nodes that it fits.
    Arrive(&'static str, Kind, Option<&'static str>),
    /// A workload and its pods are deleted.
    Remove(&'static str),
    /// A user adds the missing tolerations.
    Fix(&'static str),
}

/// The place in the list at which a taint is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    First,
    Last,
}

impl Event {
    /// Executes it, if it is possible.
    pub fn apply(&self, world: &mut World, born_tainted: bool) -> Option<()> {
        match self {
            Self::Remove(name) => world.works.retain(|work| work.name != *name),
            Self::RefuseTaints(refuses) => world.refuses_taints = *refuses,
            Self::RevertTaints(reverts) => world.reverts_taints = *reverts,
            Self::DenyPods(denied) => world.denies_pods = *denied,
            Self::Create(..) | Self::Change(..) | Self::Delete(..) => self.apply_to_pools(world)?,
            Self::Join(name, team) => world.join(name, team, born_tainted)?,
            Self::Leave(name) => world.leave(name)?,
            Self::Arrive(name, kind, class) => world.arrive(name, *kind, *class),
            Self::Fix(name) => world.works.iter_mut().find(|work| work.name == *name)?.tolerates = true,
            Self::Reimage(name)
            | Self::Relabel(name, _)
            | Self::Report(name, _)
            | Self::Move(name, _)
            | Self::Ignore(name, _)
            | Self::Untaint(name, _)
            | Self::Taint(name, ..)
            | Self::Retaint(name, ..)
            | Self::TakeBack(name, _)
            | Self::Forge(name, _)
            | Self::Invent(name, _)
            | Self::Beat(name) => {
                let node = world.nodes.truth().get(name)?.clone();
                let mut taints = world.others.get(name)?.0.clone();
                let after = self.apply_to_node(&node, &mut taints)?;
                world.others.insert(name, (taints, after.words.clone()));
                world.put_node(name, &after);
            }
        }
        Some(())
    }

    fn apply_to_pools(&self, world: &mut World) -> Option<()> {
        let mut pools = world.pools.truth().clone();
        match self {
            Self::Create(name, spec) if !pools.contains_key(name) => {
                world.made += 1;
                pools.insert(name, cluster::new_pool(name, spec, world.made));
            }
            Self::Change(name, spec) => {
                let mut object = pools.get(name).filter(|pool| !pool.is_deleting())?.object.clone();
                object["spec"] = serde_yaml::from_str(spec).unwrap();
                object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64()? + 1);
                pools.insert(name, cluster::pool(object));
            }
            Self::Delete(name) => {
                let mut object = pools.get(name).filter(|pool| !pool.is_deleting())?.object.clone();
                if object.pointer("/metadata/finalizers").is_some_and(|list| list != &json!([])) {
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-03T00:00:00Z");
                    object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64()? + 1);
                    pools.insert(name, cluster::pool(object));
                } else {
                    pools.remove(name);
                }
            }
            _ => return None,
        }
        world.pools.push(pools);
        Some(())
    }

    /// Other writers are correct: they lose no other writer's taints. Their taints carry `timeAdded`.
    fn apply_to_node(&self, on: &NodeFacts, others: &mut Vec<Value>) -> Option<Node> {
        let mut node = on.object.clone();
        let mut taints = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let has_key = |key: &'static str| move |taint: &Value| taint["key"] == key;
        match self {
            Self::Taint(_, key, value, end) => {
                if taints.iter().any(has_key(key)) {
                    return None;
                }
                let taint =
                    json!({"key": key, "value": value, "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"});
                for list in [&mut taints, others] {
                    list.insert(if *end == End::First { 0 } else { list.len() }, taint.clone());
                }
            }
            Self::Retaint(_, key, value) => {
                for list in [&mut taints, others] {
                    list.iter_mut().find(|taint| has_key(key)(taint) && cluster::is_foreign(taint))?["value"] =
                        json!(value);
                }
            }
            Self::TakeBack(_, key) => {
                for list in [&mut taints, others] {
                    let place = list.iter().position(|taint| has_key(key)(taint) && cluster::is_foreign(taint))?;
                    list.remove(place);
                }
            }
            Self::Untaint(_, key) => {
                let place = taints.iter().position(|taint| has_key(key)(taint) && !cluster::is_foreign(taint))?;
                taints.remove(place);
            }
            Self::Forge(_, claim) => {
                let applied = node.pointer("/metadata/annotations/winpool.dev~1applied").and_then(Value::as_str);
                let mut applied: Value = serde_json::from_str(applied?).unwrap();
                applied["taints"].as_array_mut().unwrap().push(json!(claim));
                node["metadata"]["annotations"][names::APPLIED] = json!(applied.to_string());
            }
            Self::Invent(_, label) => {
                node["metadata"]["labels"][format!("{}{label}", names::CAPABILITY_LABEL_PREFIX)] = json!("true");
            }
            Self::Beat(_) => {}
            Self::Reimage(_) => {
                node["metadata"]["labels"][names::OS] = json!("linux");
                node["status"]["nodeInfo"] = json!({"kernelVersion": "6.8.0", "operatingSystem": "linux"});
            }
            Self::Relabel(_, build) => node["metadata"]["labels"][names::WINDOWS_BUILD] = json!(build),
            Self::Report(_, version) => node["status"]["nodeInfo"]["kernelVersion"] = json!(version),
            Self::Move(_, team) => node["metadata"]["labels"][TEAM] = json!(team),
            Self::Ignore(_, true) => node["metadata"]["annotations"][names::IGNORE] = json!("true"),
            Self::Ignore(_, false) => {
                node["metadata"]["annotations"].as_object_mut()?.remove(names::IGNORE)?;
            }
            _ => return None,
        }
        if taints.is_empty() {
            node["spec"].as_object_mut()?.remove("taints");
        } else {
            node["spec"]["taints"] = json!(taints);
        }
        Some(cluster::node(node))
    }
}

impl World {
    fn arrive(&mut self, name: &'static str, kind: Kind, class: Option<&'static str>) {
        let mut work = Work { name, kind, class, tolerates: false, pods: Vec::new() };
        let nodes = self.nodes.truth().iter();
        work.pods = match kind {
            Kind::Other => vec![nodes.map(|(name, _)| *name).next()],
            _ => nodes
                .filter(|(_, node)| node.seen.node.taints.taints().is_empty())
                .map(|(name, _)| Some(*name))
                .collect(),
        };
        self.works.push(work);
    }

    fn join(&mut self, name: &'static str, team: &str, born_tainted: bool) -> Option<()> {
        if self.nodes.truth().contains_key(name) {
            return None;
        }
        self.made += 1;
        let mut object = cluster::bare_node(name, team, self.made);
        // Kubelets register with this label.
        object["metadata"]["labels"][names::WINDOWS_BUILD] = json!("10.0.20348");
        if born_tainted {
            object = cluster::as_registered(object, self.pools.truth().values().map(|pool| &**pool));
        }
        let node = cluster::node(object);
        self.others.insert(name, (Vec::new(), node.words.clone()));
        self.put_node(name, &node);
        Some(())
    }

    fn leave(&mut self, name: &str) -> Option<()> {
        let mut nodes = self.nodes.truth().clone();
        nodes.remove(name)?;
        self.nodes.push(nodes);
        self.others.remove(name);
        for work in &mut self.works {
            work.pods.retain(|node| *node != Some(name));
        }
        Some(())
    }

    /// Stores the node under a new version.
    pub fn put_node(&mut self, name: &'static str, node: &NodeFacts) {
        let mut nodes = self.nodes.truth().clone();
        let mut object = node.object.clone();
        object["metadata"]["resourceVersion"] = json!(object["metadata"]["resourceVersion"].as_u64().unwrap_or(0) + 1);
        nodes.insert(name, cluster::node(object));
        self.nodes.push(nodes);
    }
}
