//! The changes as commands for a live cluster.

use std::fmt::Write;

use winpool_answers::{
    fix::{ByHand, Fix, Fixes},
    view::Written,
};
use winpool_client::terminal::escape;

/// Returns a `kubectl patch` command for each change. A change that the API server does not accept is left to the user.
pub fn commands(found: &mut Fixes, written: &Written) -> String {
    let mut text = String::new();
    let (mut changed, mut left) = (Vec::new(), Vec::new());
    for (source, fix) in std::mem::take(&mut found.changed) {
        let Fix { object, remedy, .. } = &fix;
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let known = written.find(&object.kind, namespace, &object.name);
        match known.map_or_else(|| remedy.command(object), |known| remedy.command_for(object, &known)) {
            Some(command) => {
                let words = format!("{object}: {}", remedy.text);
                // Writing to a String does not fail.
                let _ = writeln!(text, "# {}\n{command}", escape(&words));
                changed.push((source, fix));
            }
            None => left.push((source, by_hand(&fix))),
        }
    }
    found.changed = changed;
    found.by_hand.extend(left);
    text
}

/// Returns what to do about an object whose pod template does not change.
fn by_hand(Fix { object, remedy, .. }: &Fix) -> ByHand {
    let decision = format!("recreate it, because its pod template cannot change: {}", remedy.text);
    ByHand { object: object.clone(), decisions: vec![decision] }
}
