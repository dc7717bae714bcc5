//! The output of the demo.

use std::time::Instant;

/// Prints the present step, with the time since the start.
pub struct Steps {
    started: Instant,
}

impl Steps {
    /// Prints the subject of the demo.
    pub fn start(title: &str) -> Self {
        println!("{title}\n");
        Self { started: Instant::now() }
    }

    /// Begins a group of steps.
    #[expect(clippy::unused_self, reason = "reads as the other lines do")]
    pub fn chapter(&self, title: &str) {
        println!("\n{title}");
    }

    pub fn done(&self, what: &str) {
        println!("{:>6.1} s  {what}", self.started.elapsed().as_secs_f32());
    }

    /// Prints details of the step that has ended.
    #[expect(clippy::unused_self, reason = "reads as the other lines do")]
    pub fn detail(&self, what: &str) {
        println!("          {what}");
    }

    pub fn end(&self) {
        println!("Every pod runs on a node that can run it; {:.1} s in total.\n", self.started.elapsed().as_secs_f32());
        println!("This cluster ends now. To try things by hand:");
        println!(
            "  make cluster                       such a cluster that keeps running; it prints a line to set KUBECONFIG"
        );
        println!("  kubectl get winpool,runtimeclass   in another terminal, after that line");
    }
}
