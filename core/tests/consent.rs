//! The two cases in which a taint may be added to a node: at once, or after a check.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::common::{self, marked, node, policy, read, tainted, taints_of, with_consent, with_spec};
use Sighting::{Changed, Listed, Registered};
use serde_json::Value;
use winpool_core::{
    api::Taint,
    plan::{AT_ONCE, Assessment, CleanCheck, Consent, LaggingClass, Pool, Sighting, Watched, assess},
};

const MINE: &str = "os=windows:NoSchedule";
const UID: &str = "uid-1";
/// Evidence and approval, as a status records them.
const APPROVED: &str = "status: {managedTaints: ['os=windows:NoSchedule'], approvedTaints: [{taint: 'os=windows:NoSchedule', since: '2026-02-01T00:00:00Z'}]}";

/// A pool whose classes are planned for the build of the bare node.
fn pool(yaml: &str) -> Pool {
    let planned_builds = read(&bare()).windows_version().map(|version| version.build).into_iter().collect();
    with_consent(common::pool(yaml), |consent| consent.planned_builds = planned_builds)
}

fn bare() -> Value {
    node("{}")
}

fn with(mut value: Value, changes: &str) -> Value {
    json_patch::merge(&mut value, &common::yaml(changes));
    value
}

fn ignored() -> Value {
    with(bare(), "metadata: {annotations: {winpool.dev/ignore: 'true'}}")
}

fn linux() -> Value {
    with(bare(), "metadata: {labels: {kubernetes.io/os: linux}}")
}

/// Sightings of a node: source, time in seconds, state, and pool.
type Event<'a> = (Sighting, u64, Value, &'a Pool);

fn watch(start: Instant, events: &[Event<'_>]) -> Watched {
    let mut known = None;
    for (sighting, second, object, pool) in events {
        let node = read(object);
        let owner = Some(*pool).filter(|pool| pool.spec.enforces() && pool.spec.selects(&node.labels));
        known = Some(Watched::next(
            known.as_ref(),
            &node,
            owner.map(|pool| &*pool.spec),
            *sighting,
            start + Duration::from_secs(*second),
        ));
    }
    known.unwrap()
}

/// The assessment of the bare node, this many seconds after the start.
fn stand(pool: &Pool, object: &Value, watched: &Watched, now: Instant) -> Assessment {
    assess(&read(object), &policy([pool.clone()]), Consent::Known { uid: UID, watched, now })
}

fn gets_taint(assessment: &Assessment) -> bool {
    assessment.plan.taints.as_ref().is_some_and(|change| change.added.contains(&Taint::os_windows()))
}

#[test]
fn an_approved_taint_is_added_at_once_if_the_watch_saw_the_node_without_it() {
    let (approved, guarded) = (pool(APPROVED), tainted(&[MINE]));
    let younger = with_spec(approved.clone(), |spec| spec.name = "younger".to_owned());
    let elsewhere = pool(&format!("{{spec: {{nodeSelector: {{team: a}}}}, {APPROVED}}}"));
    let dry_run = pool(&format!("{{spec: {{mode: DryRun}}, {APPROVED}}}"));
    let p = &approved;
    let cases: Vec<(&str, Vec<Event<'_>>, bool)> = vec![
        ("it registered", vec![(Registered, 0, bare(), p)], true),
        ("it registered and changed since", vec![(Registered, 0, bare(), p), (Changed, 5, bare(), p)], true),
        ("it lost the taint", vec![(Listed, 0, guarded.clone(), p), (Changed, 5, bare(), p)], true),
        ("it is in the first list", vec![(Listed, 0, bare(), p)], false),
        ("an event of a node that was not known", vec![(Changed, 0, bare(), p)], false),
        ("it is in a later list", vec![(Registered, 0, bare(), p), (Listed, 5, bare(), p)], false),
        (
            "it lost the taint in a gap of the watch",
            vec![(Registered, 0, guarded.clone(), p), (Listed, 5, bare(), p)],
            false,
        ),
        (
            "it was ignored when it lost the taint",
            vec![(Registered, 0, guarded.clone(), p), (Changed, 5, ignored(), p), (Changed, 9, bare(), p)],
            false,
        ),
        ("it registered ignored", vec![(Registered, 0, ignored(), p), (Changed, 5, bare(), p)], false),
        ("it changed its owner", vec![(Registered, 0, bare(), &younger), (Changed, 5, bare(), p)], false),
        ("the selector was widened", vec![(Registered, 0, bare(), &elsewhere), (Changed, 5, bare(), p)], false),
        ("the pool was in dry run", vec![(Registered, 0, bare(), &dry_run), (Changed, 5, bare(), p)], false),
        ("it came back as Windows", vec![(Registered, 0, linux(), p), (Changed, 5, bare(), p)], false),
        (
            "it lost the taint, registered and lost it again",
            vec![(Registered, 0, bare(), p), (Changed, 5, guarded.clone(), p), (Changed, 9, bare(), p)],
            true,
        ),
    ];
    let start = Instant::now();
    for (fact, events, expected) in cases {
        let watched = watch(start, &events);
        let assessment = stand(p, &bare(), &watched, start + Duration::from_secs(10));
        assert_eq!(gets_taint(&assessment), expected, "{fact}");
        assert_eq!(assessment.held.is_empty(), expected, "{fact}");
    }
}

#[test]
fn at_once_ends_a_minute_after_the_node_lacks_the_taint() {
    let (approved, start) = (pool(APPROVED), Instant::now());
    let registered = watch(start, &[(Registered, 0, bare(), &approved), (Changed, 50, bare(), &approved)]);
    let lost = watch(start, &[(Registered, 0, tainted(&[MINE]), &approved), (Changed, 50, bare(), &approved)]);
    for (fact, watched, since) in [("registered", registered, start), ("lost", lost, start + Duration::from_secs(50))] {
        let at = |age: Duration| gets_taint(&stand(&approved, &bare(), &watched, since + age));
        assert!(at(Duration::from_millis(59_999)), "{fact}");
        assert!(!at(AT_ONCE), "{fact}");
    }
}

#[test]
fn what_pools_permit_without_a_check_needs_evidence_that_the_taint_is_recorded() {
    let (start, recorded) =
        (Instant::now(), "status: {managedTaints: ['os=windows:NoSchedule', 'os=windows:PreferNoSchedule']}");
    let prefer = "taints: [{key: os, value: windows, effect: PreferNoSchedule}]";
    for (fact, changes, at_once, listed) in [
        ("approved and recorded", APPROVED.to_owned(), true, false),
        ("not approved", recorded.to_owned(), false, false),
        ("approved and not recorded", APPROVED.replace("managedTaints: ['os=windows:NoSchedule'], ", ""), false, false),
        ("taintPolicy Always", format!("{{spec: {{taintPolicy: Always}}, {recorded}}}"), true, true),
        ("taintPolicy Always, not recorded", "{spec: {taintPolicy: Always}}".to_owned(), false, false),
        ("PreferNoSchedule", format!("{{spec: {{{prefer}}}, {recorded}}}"), true, true),
        ("taintPolicy Never", format!("{{spec: {{taintPolicy: Never}}, {APPROVED}}}"), false, false),
    ] {
        let pool = pool(&changes);
        for (sighting, expected) in [(Registered, at_once), (Listed, listed)] {
            let watched = watch(start, &[(sighting, 0, bare(), &pool)]);
            let assessment = stand(&pool, &bare(), &watched, start);
            let added = assessment.plan.taints.is_some_and(|change| !change.added.is_empty());
            assert_eq!(added, expected, "{fact}, {sighting:?}");
        }
    }
}

#[test]
fn a_clean_check_permits_a_taint_on_the_nodes_that_it_covers_until_it_expires() {
    let start = Instant::now();
    let clean = |uid: &str, taint: &str, until: Option<Instant>| {
        let nodes = [(taint.parse().unwrap(), Arc::new([Arc::from(uid)].into()))].into();
        let clean_check = CleanCheck { nodes, valid: until.map(|until| (start, until)) };
        with_consent(pool("status: {managedTaints: ['os=windows:NoSchedule']}"), |consent| {
            consent.clean_check = clean_check;
        })
    };
    let end = start + Duration::from_mins(1);
    for (fact, pool, second, expected) in [
        ("it covers the node", clean(UID, MINE, Some(end)), 59, true),
        ("it is too old", clean(UID, MINE, Some(end)), 60, false),
        ("another node of the same name", clean("uid-0", MINE, Some(end)), 5, false),
        ("another taint", clean(UID, "a=b:NoSchedule", Some(end)), 5, false),
        ("it never ended", clean(UID, MINE, None), 5, false),
        ("the taint is not recorded", Pool { managed_taints: vec![], ..clean(UID, MINE, Some(end)) }, 5, false),
    ] {
        let watched = watch(start, &[(Listed, 0, bare(), &pool)]);
        let assessment = stand(&pool, &bare(), &watched, start + Duration::from_secs(second));
        assert_eq!(gets_taint(&assessment), expected, "{fact}");
    }
}

#[test]
fn a_class_that_does_not_tolerate_a_taint_yet_holds_only_the_nodes_that_it_selects() {
    let start = Instant::now();
    let lagging = |selector: &[(&str, &str)], taint: &str| LaggingClass {
        name: "windows-2022".to_owned(),
        selector: selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: vec![taint.parse().unwrap()],
        is_missing: false,
    };
    let os = ("kubernetes.io/os", "windows");
    for (fact, class, changes, expected) in [
        ("its build", lagging(&[os, ("node.kubernetes.io/windows-build", "10.0.20348")], MINE), "{}", false),
        ("another build", lagging(&[os, ("node.kubernetes.io/windows-build", "10.0.17763")], MINE), "{}", true),
        (
            "the build that the label will have",
            lagging(&[("node.kubernetes.io/windows-build", "10.0.20348")], MINE),
            "metadata: {labels: {node.kubernetes.io/windows-build: 10.0.1}}",
            false,
        ),
        ("any build", lagging(&[os], MINE), "{}", false),
        ("a class without a selector", lagging(&[], MINE), "{}", false),
        (
            "a capability label that the node may get",
            lagging(&[os, ("runs.winpool.dev/10.0.20348", "true")], MINE),
            "{}",
            false,
        ),
        ("another team", lagging(&[os, ("team", "b")], MINE), "metadata: {labels: {team: a}}", true),
        ("another taint", lagging(&[os], "a=b:NoSchedule"), "{}", true),
    ] {
        for base in [APPROVED.to_owned(), format!("{{spec: {{taintPolicy: Always}}, {APPROVED}}}")] {
            let pool = with_consent(pool(&base), |consent| consent.lagging = vec![class.clone()]);
            let object = with(bare(), changes);
            let watched = watch(start, &[(Registered, 0, object.clone(), &pool)]);
            assert_eq!(gets_taint(&stand(&pool, &object, &watched, start)), expected, "{fact}: {base}");
        }
    }
}

#[test]
fn a_node_of_a_build_that_is_new_to_the_pool_waits_until_its_class_is_planned() {
    let start = Instant::now();
    for (spec, expected) in
        [("", false), ("spec: {taintPolicy: Always}, ", false), ("spec: {runtimeClassDiscovery: Disabled}, ", true)]
    {
        let known = pool(&format!("{{{spec}{APPROVED}}}"));
        let new = with_consent(known.clone(), |consent| consent.planned_builds.clear());
        for (pool, expected) in [(known, true), (new, expected)] {
            let watched = watch(start, &[(Registered, 0, bare(), &pool)]);
            assert_eq!(
                gets_taint(&stand(&pool, &bare(), &watched, start)),
                expected,
                "{spec} {:?}",
                pool.consent.planned_builds
            );
        }
    }
}

#[test]
fn a_taint_of_a_younger_pool_at_registration_comes_off_while_the_owner_holds_it() {
    let start = Instant::now();
    let registered = |pool: &str| marked(tainted(&[MINE]), pool, &[MINE]);
    let held = pool("status: {managedTaints: ['os=windows:NoSchedule']}");
    let always = pool("{spec: {taintPolicy: Always}, status: {managedTaints: ['os=windows:NoSchedule']}}");
    for (fact, owner, sighting, claimed_by, comes_off) in [
        ("the owner holds it", &held, Registered, "younger", true),
        ("the owner approves it", &pool(APPROVED), Registered, "younger", false),
        ("the owner needs no check", &always, Registered, "younger", false),
        ("the owner put it on", &held, Registered, "default", false),
        ("nobody saw the node register", &held, Listed, "younger", false),
    ] {
        let object = registered(claimed_by);
        let watched = watch(start, &[(sighting, 0, object.clone(), owner)]);
        let assessment = stand(owner, &object, &watched, start);
        let removed = assessment.plan.taints.is_some_and(|change| change.removed == [Taint::os_windows()]);
        assert_eq!(removed, comes_off, "{fact}");
    }
    assert_eq!(taints_of(&registered("younger")), [MINE]);
}
