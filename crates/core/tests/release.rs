//! Other writers' taints survive any history of pools, and releasing everything restores the initial state.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{converge, node, policy, pool, with_spec};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_core::api::Taint;
use winpool_core::plan::pools::pool::{Pool, WantedTaints};

/// A change of the cluster.
#[derive(Clone, Debug)]
struct Step {
    /// The taints that pools `a` and `b` want now, and the team that each selects.
    pools: [(Option<Vec<Taint>>, Option<&'static str>); 2],
    /// Another writer adds this taint, or removes it if it is there.
    foreign: Option<u8>,
}

fn taint() -> impl Strategy<Value = Taint> {
    let key = select(vec!["os", "node.kubernetes.io/os", "dedicated"]);
    (key, select(vec!["", "windows", "Windows"])).prop_map(|(key, value)| Taint::new(key, value, "NoSchedule"))
}

/// Unique by key and effect, as Kubernetes counts taints.
fn taints() -> impl Strategy<Value = Vec<Taint>> {
    vec(taint(), 1..3).prop_map(|mut taints| {
        let mut seen = BTreeSet::new();
        taints.retain(|taint| seen.insert(taint.key.clone()));
        taints
    })
}

fn step() -> impl Strategy<Value = Step> {
    let wanted = || (prop::option::of(taints()), prop::option::of(select(vec!["x", "y"])));
    ([wanted(), wanted()], prop::option::of(0..3u8)).prop_map(|(pools, foreign)| Step { pools, foreign })
}

prop_compose! {
    /// A node that winpool has never seen.
    fn fresh_node()(
        taints in prop::option::of(taints()),
        team in prop::option::of(select(vec!["x", "y"])),
        label in prop::option::of(select(vec!["10.0.20348", "wrong"])),
    ) -> Value {
        node(&json!({
            "metadata": {"labels": {"team": team, "node.kubernetes.io/windows-build": label}, "annotations": {"of": "others"}},
            "spec": {"taints": taints},
        }).to_string())
    }
}

/// The pools of a step, with the taints that each has added before.
fn pools(step: &Step, ever: &mut BTreeMap<&'static str, BTreeSet<Taint>>) -> Vec<Pool> {
    let named = ["a", "b"].into_iter().zip(&step.pools);
    named
        .map(|(name, (wanted, team))| {
            let mut pool = with_spec(pool("spec: {taintPolicy: TaintOnly}"), |spec| {
                name.clone_into(&mut spec.name);
                let taints = wanted.clone().map_or(WantedTaints::Guard, WantedTaints::Exactly);
                (spec.tolerated_taints, spec.wants) = (taints.list(), Some(taints));
                spec.node_selector = team.iter().map(|team| ("team".to_owned(), (*team).to_owned())).collect();
            });
            let known = ever.entry(name).or_default();
            known.extend(pool.spec.wanted_taints());
            pool.managed_taints = known.iter().cloned().collect();
            pool
        })
        .collect()
}

fn foreign_key(number: u8) -> String {
    format!("others.example.com/{number}")
}

/// Another writer adds a taint, or removes it.
fn toggle(node: &mut Value, number: u8) {
    let (key, spec) = (foreign_key(number), node["spec"].as_object_mut().unwrap());
    let taints = spec.entry("taints").or_insert_with(|| json!([])).as_array_mut().unwrap();
    let before = taints.len();
    taints.retain(|taint| taint["key"] != key);
    if taints.len() == before {
        taints.push(json!({"key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}));
    }
}

/// Everything that winpool may change, except `windows-build`, which stays.
fn face(node: &Value) -> Value {
    let mut labels = node["metadata"]["labels"].clone();
    labels.as_object_mut().unwrap().remove("node.kubernetes.io/windows-build");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    json!({"labels": labels, "annotations": node["metadata"]["annotations"], "taints": taints})
}

fn foreign(node: &Value) -> Vec<Value> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.into_iter().filter(|taint| taint["key"].as_str().unwrap().starts_with("others.")).collect()
}

proptest! {
    #[test]
    fn releasing_everything_restores_the_start(start in fresh_node(), steps in vec(step(), 1..8)) {
        let (mut node, mut untouched, mut ever) = (start.clone(), start, BTreeMap::new());
        for step in &steps {
            if let Some(number) = step.foreign {
                toggle(&mut node, number);
                toggle(&mut untouched, number);
            }
            let written = converge(&node, &policy(pools(step, &mut ever)));
            prop_assert_eq!(foreign(&written), foreign(&node), "others' taints survive, in order");
            node = written;
        }
        let gone = pools(steps.last().unwrap(), &mut ever).into_iter();
        let gone = gone.map(|pool| with_spec(pool, |spec| spec.deleting = true));
        let released = converge(&node, &policy(gone));
        let (mut found, mut expected) = (face(&released), face(&untouched));
        for face in [&mut found, &mut expected] {
            face["taints"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
        }
        prop_assert_eq!(found, expected);
    }
}
