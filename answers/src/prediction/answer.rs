//! The end of a workload check: who counts against each question.

use std::{collections::BTreeMap, sync::Arc};

use winpool_core::plan::{CheckAnswer, PODS};

use super::{
    Mask, bits,
    seen::{Confirmed, SeenWorkload},
    state::WorkloadCheck,
};

impl WorkloadCheck {
    /// Ends the check and returns its results by pool.
    pub fn finish(mut self) -> BTreeMap<String, CheckAnswer> {
        for (key, template) in std::mem::take(&mut self.newest_sets).into_values().flat_map(|newest| newest.empty) {
            self.workloads.entry(key).or_default().template = Some(Box::new(template));
        }
        let mut answers: BTreeMap<String, CheckAnswer> = BTreeMap::new();
        let mut held = 0;
        for (name, seen) in std::mem::take(&mut self.workloads) {
            let against = self.counts_against(&seen);
            held |= against;
            let strays = seen.others.filter(|_| seen.started).map_or(0, |others| others.stray_count);
            let count = seen.count + strays;
            for bit in bits(against) {
                let answer = answers.entry(self.scope.questions[bit].pool.clone()).or_default();
                answer.unschedulable.insert(name.clone(), count as usize);
            }
        }
        let used_classes = Arc::new(std::mem::take(&mut self.used_classes));
        for (bit, question) in self.scope.questions.iter().enumerate() {
            let answer = answers.entry(question.pool.clone()).or_default();
            answer.unlisted.clone_from(&self.unlisted);
            answer.used_classes = Arc::clone(&used_classes);
            if held & (1 << bit) != 0 || self.unlisted.contains_key(PODS) {
                answer.held.insert(question.taint.clone());
            } else {
                let uids = question.candidates.iter().map(|index| Arc::clone(&self.scope.nodes[*index].uid));
                answer.clean.insert(question.taint.clone(), Arc::new(uids.collect()));
            }
        }
        answers
    }

    /// The questions that this workload counts against.
    fn counts_against(&self, seen: &SeenWorkload) -> Mask {
        if seen.is_ignored {
            return 0;
        }
        let others = seen.others.as_deref();
        let bound = self.resolve(&seen.bound) | others.filter(|_| seen.started).map_or(0, |others| others.strays);
        let moving = others.map_or(0, |others| self.resolve(&others.moving));
        let Some(template) = &seen.template else { return bound | moving };
        let of_pods = seen.of_pods.filter(|_| template.is_shown_by_pods).unwrap_or(Mask::MAX);
        let next = template.untolerated & of_pods;
        let bound = if template.is_rolling_out { bound } else { bound & next };
        bound | moving | self.resolve(&template.found) & next
    }

    fn resolve(&self, found: &Confirmed) -> Mask {
        let sure = |choice: usize| self.choices[choice].1 == Some(false);
        found.unsure.iter().filter(|(choice, _)| sure(*choice)).fold(found.sure, |all, (_, mask)| all | mask)
    }
}
