//! Faults during the long run.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError, Schedule};

const PERCENT: u8 = 10;

/// Injects faults all the time. At intervals the network is cut, responses are held back, or the process is stopped.
pub struct Faults {
    proxy: Arc<FaultProxy>,
    pid: u32,
    dice: Dice,
}

impl Faults {
    pub fn new(proxy: Arc<FaultProxy>, pid: u32) -> Self {
        Self { proxy, pid, dice: Dice::new(99) }
    }

    /// Runs until it is stopped. Returns the faults.
    pub async fn run(mut self, stop: CancellationToken) -> String {
        let mut troubles = BTreeMap::<&str, usize>::new();
        for seed in 0.. {
            self.proxy.inject(move |passing| {
                let fault = Schedule::new(seed, PERCENT).fault(passing.asked, passing.number);
                // After these two, winpool backs off from a node for 10 minutes.
                fault
                    .filter(|fault| !matches!(fault, Fault::Refuse(InjectedError::FailedTest | InjectedError::Invalid)))
            });
            if !pause(&stop, self.seconds(8, 20)).await {
                break;
            }
            *troubles.entry(self.trouble(&stop).await).or_default() += 1;
        }
        self.proxy.calm();
        let faults = self.proxy.passed().iter().filter(|passed| passed.fault.is_some()).count();
        let troubles: Vec<String> = troubles.iter().map(|(what, count)| format!("{count} {what}")).collect();
        format!("{faults} of {} requests with a fault; {}", self.proxy.passed().len(), troubles.join(", "))
    }

    /// Some are longer than the duration of a Lease.
    async fn trouble(&mut self, stop: &CancellationToken) -> &'static str {
        let time = self.seconds(1, 25);
        match self.dice.roll(3) {
            0 => {
                self.proxy.cut();
                pause(stop, time).await;
                self.proxy.mend();
                "cuts of the network"
            }
            1 => {
                self.proxy.inject(|_| Some(Fault::Swallow));
                pause(stop, time).await;
                "silences"
            }
            _ => {
                self.signal("-STOP");
                pause(stop, time).await;
                self.signal("-CONT");
                "stops of the process"
            }
        }
    }

    fn seconds(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_secs(u64::try_from(least + self.dice.roll(most - least + 1)).unwrap())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid.to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// Waits. Returns false if it was stopped meanwhile.
async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
