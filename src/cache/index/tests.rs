use serde_json::{Value, json};
use winpool_core::{
    api::{Taint, WindowsPool},
    plan::{CleanCheck, Pool, PoolEntry},
};

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn node(object: Value) -> Arc<CachedNode> {
    Arc::new(serde_json::from_value(object).unwrap())
}

/// A pool that may add its taint to node `win` until its workload check expires.
fn policy(check_expires: Instant) -> Policy {
    let pool: WindowsPool = serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": {}})).unwrap();
    let mut pool = Pool::read(&pool).unwrap();
    pool.ever_applied = vec![Taint::os_windows()];
    pool.planned_builds.insert(Build::new(20348));
    let nodes = [(Taint::os_windows(), Arc::new(BTreeSet::from(["u".into()])))].into();
    pool.clean_check = CleanCheck { nodes, valid: Some((Instant::now(), check_expires)) }.into();
    Policy::new([PoolEntry { pool: pool.into(), ready: true }], [].into())
}

#[test]
fn a_node_whose_taint_is_refused_or_reverted_waits_for_that_also_when_the_check_expires() {
    let node = node(json!({
        "metadata": {"name": "win", "uid": "u", "labels": {
            "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348",
        }},
        "status": {"nodeInfo": {"kernelVersion": "10.0.20348.2655", "operatingSystem": "windows"}},
    }));
    for (is_refused, pause, state) in [
        (true, MINUTE, State::Blocked),
        (false, MINUTE, State::Contested),
        (true, Duration::ZERO, State::Held),
        (false, Duration::ZERO, State::Held),
    ] {
        let (index, now) = (Index::default(), Instant::now());
        index.observe(&node);
        let judge = |policy| index.judge_by(policy);
        judge(policy(now));
        let checked = policy(now + MINUTE);
        judge(checked.clone());
        let assess = |policy: &Policy| {
            let watched = index.watched("win");
            assess(&node.seen, policy, Consent::Known { uid: "u", watched: &watched, now: Instant::now() })
        };
        let assessment = assess(&checked);
        assert!(assessment.plan.taints.is_some());
        if is_refused {
            let (plan, until) = (assessment.plan, Instant::now() + pause);
            index.refused(&node, NodeRefusal { plan, message: "not yours".into(), until });
        } else {
            (0..3).for_each(|_| index.written("win", &assessment));
            index.back_off(&node, assessment.plan, "node-pool-api", pause);
        }
        let expired = policy(now);
        judge(expired.clone());
        assert_eq!(index.states()[0].state, state);
        assert_eq!(index.tally("default").waits(), state == State::Held, "a check would change nothing");
        assert_eq!(index.still_waits("win", &assess(&expired)).is_some(), state != State::Held);
    }
}

#[test]
fn a_node_that_came_back_as_linux_and_refuses_to_be_cleaned_counts_for_no_pool() {
    let object = json!({"metadata": {"name": "default", "deletionTimestamp": "2026-03-01T12:00:00Z"}, "spec": {}});
    let pool: WindowsPool = serde_json::from_value(object).unwrap();
    let pool = Pool::read(&pool).unwrap().into();
    let policy = Policy::new([PoolEntry { pool, ready: true }], [].into());
    let marked = |system: &str| {
        let labels = json!({"kubernetes.io/os": system, "winpool.dev/pool": "default"});
        node(json!({"metadata": {"name": "win", "uid": "u", "labels": labels}}))
    };
    let node = marked("linux");
    let plan = assess(&node.seen, &policy, Consent::Given).plan;
    assert!(plan.pool.is_some());
    let index = Index::default();
    index.judge_by(policy);
    index.observe(&marked("windows"));
    let until = Instant::now() + MINUTE;
    index.refused(&node, NodeRefusal { plan: plan.clone(), message: "not yours".into(), until });
    assert!(index.refusal("win", &plan).is_some(), "it waits");
    assert_eq!(index.states(), [], "no event of a Windows node would ever correct that");
}

fn named(name: &str) -> Arc<CachedNode> {
    node(json!({"metadata": {"name": name, "uid": name}}))
}

fn names(index: &Index) -> Vec<String> {
    let mut names: Vec<_> = index.nodes().iter().map(|node| node.name().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_new_list_removes_the_nodes_that_it_lacks() {
    let index = Index::default();
    index.replace(&["a", "b"].map(named));
    index.observe(&named("c"));
    index.replace(&["b", "d"].map(named));
    assert_eq!(names(&index), ["b", "d"]);
    assert_eq!(index.node("b").unwrap().name(), "b");
    assert!(index.node("a").is_none());
}

#[test]
fn a_refusal_that_arrives_after_the_node_is_gone_does_not_bring_it_back() {
    let index = Index::default();
    let gone = named("a");
    index.observe(&gone);
    assert!(index.remove("a"));
    let refusal = NodeRefusal { plan: NodePlan::default(), message: "denied".into(), until: Instant::now() };
    index.refused(&gone, refusal);
    index.back_off(&gone, NodePlan::default(), "another writer", MINUTE);
    assert!(!index.look_again(&gone));
    assert_eq!(names(&index), [""; 0]);
}
