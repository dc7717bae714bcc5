//! What the demo says while it goes on.

use std::time::Instant;

/// Prints what is done, with the time since the start.
pub struct Steps {
    started: Instant,
}

impl Steps {
    /// Prints what this is about.
    pub fn start(title: &str) -> Self {
        println!("{title}\n");
        Self { started: Instant::now() }
    }

    /// What follows belongs together.
    #[expect(clippy::unused_self, reason = "reads as the other lines do")]
    pub fn chapter(&self, title: &str) {
        println!("\n{title}");
    }

    /// A step is done.
    pub fn done(&self, what: &str) {
        println!("{:>6.1} s  {what}", self.started.elapsed().as_secs_f32());
    }

    /// More about the step that is done.
    #[expect(clippy::unused_self, reason = "reads as the other lines do")]
    pub fn detail(&self, what: &str) {
        println!("          {what}");
    }

    /// All is done.
    pub fn end(&self) {
        println!("All pods run where they must; {:.1} s in all.\n", self.started.elapsed().as_secs_f32());
        println!("This cluster ends now. To try things by hand:");
        println!("  make cluster                       the same, left running; it prints a line to set KUBECONFIG");
        println!("  kubectl get winpool,runtimeclass   in another terminal, after that line");
    }
}
