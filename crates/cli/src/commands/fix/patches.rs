//! The changes as commands for a live cluster.

use std::collections::BTreeMap;
use std::fmt::Write;

use winpool_analysis::fix::{ByHand, Fix, Fixes};
use winpool_analysis::remedy::Remedy;
use winpool_analysis::view::Written;
use winpool_analysis::workload::namespace_of;
use winpool_client::terminal::escape;
use winpool_core::api::ObjectReference;

/// Returns a `kubectl patch` command for each change. A change that the API server does not accept is left to the user.
pub fn commands(fixes: &mut Fixes, written: &Written) -> String {
    let mut text = String::new();
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    let proposed = std::mem::take(&mut fixes.changed);
    let commands = commands_of(&proposed.iter().map(|(_, fix)| (&fix.object, &fix.remedy)).collect(), written);
    for (source, fix) in proposed {
        let Fix { object, remedy, .. } = &fix;
        match commands.get(object).cloned().unwrap_or_else(|| remedy.command(object)) {
            Some(command) => {
                let words = format!("{object}: {}", remedy.text);
                // Writing to a String does not fail.
                let _ = writeln!(text, "# {}\n{command}", escape(&words));
                changed.push((source, fix));
            }
            None => unchanged.push((source, by_hand(&fix))),
        }
    }
    fixes.changed = changed;
    fixes.by_hand.extend(unchanged);
    text
}

/// Returns the command for each of these objects that was read, if there is one.
fn commands_of(
    remedies: &BTreeMap<&ObjectReference, &Remedy>,
    written: &Written,
) -> BTreeMap<ObjectReference, Option<String>> {
    let mut commands = BTreeMap::new();
    written.each_object(|value| {
        let text = |text: &serde_json::Value| text.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&value["kind"]), text(&value["metadata"]["name"]));
        let object = ObjectReference::namespaced(&kind, namespace_of(value), &name);
        if let Some(remedy) = remedies.get(&object) {
            let command = remedy.command_for(&object, value);
            commands.insert(object, command);
        }
    });
    commands
}

/// Returns what to do about an object whose pod template does not change.
fn by_hand(Fix { object, remedy, .. }: &Fix) -> ByHand {
    let decision = format!("recreate it, because its pod template cannot change: {}", remedy.text);
    ByHand { object: object.clone(), decisions: vec![decision] }
}
