//! What happens to the program from outside.

use std::{process::Command, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use winpool_e2e::{Dice, Proxy};

/// Cuts the program's network, or stops the process, for a while; then leaves it alone for a while.
pub struct Faults {
    proxy: Arc<Proxy>,
    pid: u32,
    dice: Dice,
}

impl Faults {
    pub fn new(proxy: Arc<Proxy>, pid: u32) -> Self {
        Self { proxy, pid, dice: Dice(99) }
    }

    /// Until it is stopped; the network is whole and the process goes on then.
    pub async fn run(mut self, stop: CancellationToken) -> String {
        let (mut cuts, mut pauses) = (0, 0);
        while pause(&stop, self.seconds(8, 20)).await {
            // Some are longer than a Lease lasts.
            let time = self.seconds(1, 25);
            if self.dice.once_in(3) {
                self.signal("-STOP");
                pause(&stop, time).await;
                self.signal("-CONT");
                pauses += 1;
            } else {
                self.proxy.cut();
                pause(&stop, time).await;
                self.proxy.mend();
                cuts += 1;
            }
        }
        format!("{cuts} cuts of the network, {pauses} stops of the process")
    }

    fn seconds(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_secs(u64::try_from(least + self.dice.roll(most - least + 1)).unwrap())
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid.to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// Waits; tells whether there is any point in going on.
async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
