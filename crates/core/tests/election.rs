//! Leader election on any network: two candidates never lead at the same time.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use winpool_core::election::{Candidate, ElectionStep, LEASE_DURATION, has_holder};

const CANDIDATES: usize = 3;
/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A possible event; the number is that of a candidate.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Pass(Duration),
    /// It executes its next step without a fault.
    Act(usize),
    /// It begins its next step: reads, or sends a write.
    ElectionStep(usize),
    /// Its write arrives at the API server.
    Arrive(usize),
    /// It gets the answer, if there is one.
    Answer(usize),
    /// It stops waiting for the answer; the write may still arrive.
    GiveUp(usize),
    /// A write that its sender gave up arrives.
    ArriveLate(usize),
    /// Its watch shows the present Lease.
    Watch(usize),
    Release(usize),
    /// Its process is killed and started again.
    Restart(usize),
    Delete,
}

fn happening() -> impl Strategy<Value = Happening> {
    let one = 0..CANDIDATES;
    prop_oneof![
        6 => (0u64..4_000).prop_map(|ms| Happening::Pass(Duration::from_millis(ms))),
        1 => Just(Happening::Pass(LEASE_DURATION)),
        8 => one.clone().prop_map(Happening::Act),
        2 => one.clone().prop_map(Happening::ElectionStep),
        2 => one.clone().prop_map(Happening::Arrive),
        2 => one.clone().prop_map(Happening::Answer),
        1 => one.clone().prop_map(Happening::GiveUp),
        1 => (0usize..8).prop_map(Happening::ArriveLate),
        3 => one.clone().prop_map(Happening::Watch),
        1 => one.clone().prop_map(Happening::Release),
        1 => one.prop_map(Happening::Restart),
    ]
}

/// The API server has another Lease than the write was made from.
struct Refused;

struct Sent {
    lease: Lease,
    at: Instant,
    answer: Option<Result<Lease, Refused>>,
}

/// The Lease on the API server, and its candidates.
struct World {
    now: Instant,
    version: u64,
    lease: Option<Lease>,
    candidates: Vec<(Candidate, Option<Sent>)>,
    given_up: Vec<Lease>,
    processes: usize,
    changes_of_leader: usize,
    last_leader: Option<usize>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: Instant::now(),
            version: 0,
            lease: None,
            candidates: Vec::new(),
            given_up: Vec::new(),
            processes: 0,
            changes_of_leader: 0,
            last_leader: None,
        };
        for _ in 0..CANDIDATES {
            let candidate = world.process();
            world.candidates.push((candidate, None));
        }
        world
    }

    fn process(&mut self) -> Candidate {
        self.processes += 1;
        Candidate::new(format!("process-{}", self.processes))
    }

    /// Like the API server, accepts a write only if it was made from the present Lease.
    fn write(&mut self, lease: Lease) -> Result<Lease, Refused> {
        let current = self.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if lease.metadata.resource_version != current {
            return Err(Refused);
        }
        self.version += 1;
        let mut written = lease;
        written.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(written.clone());
        Ok(written)
    }

    fn happen(&mut self, happening: Happening) {
        let (now, lease) = (self.now, self.lease.clone());
        match happening {
            Happening::Pass(time) => self.now += time,
            Happening::Act(one) => {
                // The first step may be a read.
                for part in [
                    Happening::ElectionStep(one),
                    Happening::ElectionStep(one),
                    Happening::Arrive(one),
                    Happening::Answer(one),
                ] {
                    self.happen(part);
                }
            }
            Happening::ElectionStep(one) => {
                let (candidate, sent) = &mut self.candidates[one];
                if sent.is_some() {
                    return;
                }
                match candidate.next(now) {
                    ElectionStep::Read => candidate.observe(lease, now),
                    ElectionStep::Wait(_) => {}
                    ElectionStep::Acquire | ElectionStep::Renew => {
                        *sent = Some(Sent { lease: candidate.claim(Timestamp::UNIX_EPOCH), at: now, answer: None });
                    }
                }
            }
            Happening::Arrive(one) => {
                let Some(lease) = self.candidates[one].1.as_ref().filter(|sent| sent.answer.is_none()) else { return };
                let answer = self.write(lease.lease.clone());
                self.candidates[one].1.as_mut().unwrap().answer = Some(answer);
            }
            Happening::Answer(one) => {
                let (candidate, pending) = &mut self.candidates[one];
                match pending.take() {
                    Some(sent) if now - sent.at >= PATIENCE => self.given_up.push(sent.lease),
                    Some(Sent { answer: Some(Ok(lease)), at, .. }) => candidate.accepted(lease, at, now),
                    Some(Sent { answer: Some(Err(Refused)), .. }) => candidate.doubt(),
                    unanswered => *pending = unanswered,
                }
            }
            Happening::GiveUp(one) => {
                if let Some(sent) = self.candidates[one].1.take()
                    && sent.answer.is_none()
                {
                    self.given_up.push(sent.lease);
                }
            }
            Happening::ArriveLate(which) => {
                if which < self.given_up.len() {
                    let lease = self.given_up.swap_remove(which);
                    let _ = self.write(lease);
                }
            }
            Happening::Watch(one) => self.candidates[one].0.notice(lease, now),
            Happening::Release(one) => {
                // Like the operator: the Lease is read first, and no write is sent any more.
                self.candidates[one].0.observe(lease, now);
                if let Some(free) = self.candidates[one].0.release(Timestamp::UNIX_EPOCH) {
                    assert!(self.write(free).is_ok());
                }
                self.restart(one);
            }
            Happening::Restart(one) => self.restart(one),
            Happening::Delete => self.lease = None,
        }
    }

    fn restart(&mut self, one: usize) {
        let candidate = self.process();
        let (_, sent) = std::mem::replace(&mut self.candidates[one], (candidate, None));
        self.given_up.extend(sent.map(|sent| sent.lease));
    }

    fn at_most_one_leads(&mut self) {
        let leads = |(_, (candidate, _)): &(usize, &(Candidate, Option<Sent>))| candidate.term(self.now).is_some();
        let leaders: Vec<usize> = self.candidates.iter().enumerate().filter(leads).map(|(one, _)| one).collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at the same time");
        if !leaders.is_empty() && leaders.first() != self.last_leader.as_ref() {
            self.last_leader = leaders.first().copied();
            self.changes_of_leader += 1;
        }
    }

    /// The network works again: every candidate gets all answers at once, for the duration of a Lease.
    fn settle(&mut self) {
        for _ in 0..=LEASE_DURATION.as_secs() {
            for one in 0..CANDIDATES {
                for happening in
                    [Happening::Answer(one), Happening::GiveUp(one), Happening::Watch(one), Happening::Act(one)]
                {
                    self.happen(happening);
                    self.at_most_one_leads();
                }
            }
            self.happen(Happening::Pass(Duration::from_secs(1)));
        }
    }
}

fn hold(happenings: Vec<Happening>, mut world: World) {
    for happening in happenings {
        world.happen(happening);
        world.at_most_one_leads();
    }
    world.settle();
    assert!(world.candidates.iter().all(|(candidate, _)| !candidate.history_went_back()));
    let leaders = world.candidates.iter().filter(|(candidate, _)| candidate.term(world.now).is_some()).count();
    assert_eq!(leaders, 1, "a candidate leads once the network works again");
    assert!(has_holder(world.lease.as_ref().unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_two_candidates_lead_at_once(
        happenings in vec(happening(), 0..120)
    ) {
        hold(happenings, World::new());
    }

    /// Only once: a deleted Lease has no version, so one that was created and deleted in between would not be noticed.
    /// And no candidate starts meanwhile that cannot know of the holder.
    #[test]
    fn no_two_lead_at_once_when_a_user_deletes_the_lease(
        before in vec(happening(), 0..60), after in vec(happening(), 0..60)
    ) {
        let mut world = World::new();
        world.settle();
        let keeps_processes = |happening: &Happening| !matches!(happening, Happening::Release(_) | Happening::Restart(_));
        let (before, after) = (before.into_iter(), after.into_iter());
        let all = before.chain([Happening::Delete]).chain(after).filter(keeps_processes);
        hold(all.collect(), world);
    }
}

#[test]
fn random_faults_change_the_leader_often_enough() {
    let strategy = vec(happening(), 120);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let changes: usize = (0..100)
        .map(|_| {
            let mut world = World::new();
            for happening in strategy.new_tree(&mut runner).unwrap().current() {
                world.happen(happening);
                world.at_most_one_leads();
            }
            world.changes_of_leader
        })
        .sum();
    assert!(changes > 60, "{changes} changes of the leader in 100 runs");
}
