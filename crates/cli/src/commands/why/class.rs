//! `winpool why class`: the nodes and pods of a RuntimeClass, and whether it can start from zero nodes.

use winpool_analysis::explain::forecast::{Snapshot, forecast};
use winpool_analysis::explain::scale::{self, ClassExplanation, ScaleExplanation, TemplateExplanation};
use winpool_core::api::Problem;
use winpool_core::words::count;

use crate::Error;
use crate::commands::options::Common;
use crate::print::text::{BAD, BOLD, DIM, GOOD, Text, WARN};
use crate::read::assume::Assume;
use crate::read::forecast::{enforce, now};
use crate::read::gaps::Gaps;
use crate::read::view::Seen;

/// Reads cluster or manifests and explains the class.
pub async fn explain(name: &str, common: &Common, assume: &Assume) -> Result<(ClassExplanation, Gaps), Error> {
    let Seen { mut view, gaps } = common.origin.decisions().await?;
    let assumed = assume.note(&mut view)?;
    let gaps = Gaps { in_cluster: gaps.in_cluster || !view.autoscalers.unreadable.is_empty(), ..gaps };
    enforce(&mut view);
    let classes = forecast(&Snapshot::without_workloads(&view, now()))?.classes;
    let not_found = || Error::NotFound { kind: "RuntimeClass", name: name.to_owned() };
    let class = classes.get(name).ok_or_else(not_found)?;
    let mut explanation = scale::class_explanation(&view, name, class);
    explanation.scale.notes.splice(..0, assumed);
    Ok((explanation, gaps))
}

/// The answer as text.
pub fn text(ClassExplanation { node_count, pods, problems, scale: explanation }: &ClassExplanation) -> Text {
    let mut text = Text::new();
    let name = &explanation.runtime_class;
    if let Some(nodes) = node_count {
        let used = pods.map_or_else(String::new, |pods| format!(" and is used by {}", count(pods, "pod")));
        text.styled("", BOLD, &format!("RuntimeClass {name} selects {}{used}.", count(*nodes, "node")));
    }
    for Problem { reason, message, .. } in problems {
        text.styled("  ", WARN, &format!("{reason}:")).paragraph("    ", message);
    }
    match explanation.can_scale_from_zero {
        Some(true) => text.styled("", GOOD, &format!("RuntimeClass {name} can start from zero nodes.")),
        Some(false) => text.styled(
            "",
            BAD,
            &format!("RuntimeClass {name} cannot start from zero nodes: nothing creates one for it."),
        ),
        None => {
            text.styled("", WARN, &format!("winpool cannot tell if RuntimeClass {name} can start from zero nodes."))
        }
    };
    if explanation.templates.is_empty() && explanation.notes.is_empty() {
        text.paragraph(
            "  ",
            "There is neither a NodePool of Karpenter nor, in manifests, a node group with tags for cluster-autoscaler. \
             winpool render prints them.",
        );
    }
    for note in &explanation.notes {
        text.styled("  ", WARN, "Note:").paragraph("    ", note);
    }
    for TemplateExplanation { template, serves, missing, warnings } in &explanation.templates {
        let (style, does) = match serves {
            Some(true) => (GOOD, "makes nodes for it"),
            Some(false) => (BOLD, "does not create nodes for it:"),
            None => (WARN, "may create nodes for it, which depends on its instance types:"),
        };
        text.gap().styled("", style, &format!("{template} {does}"));
        for line in missing {
            text.paragraph("  ", line);
        }
        for line in warnings {
            text.styled("  ", WARN, "Warning:").paragraph("    ", line);
        }
    }
    text.gap();
    let not = "Not considered: instance types with their zones and sizes, quotas, and what is left of limits.";
    text.hanging("", "", DIM, not, "");
    text
}

/// The section of `winpool plan`: the classes that can start from zero and those that cannot.
pub fn section(text: &mut Text, stories: &[ScaleExplanation]) {
    if stories.is_empty() {
        return;
    }
    text.gap().styled("", BOLD, "Scaling from zero");
    let mut warned = Vec::new();
    for ScaleExplanation { runtime_class, templates, .. } in stories {
        let serving: Vec<&TemplateExplanation> =
            templates.iter().filter(|template| template.serves != Some(false)).collect();
        if serving.is_empty() {
            let hint = "nothing creates a node for it; winpool why class/NAME shows what is missing";
            text.styled("  ", WARN, &format!("{runtime_class}: {hint}"));
            continue;
        }
        let name = |template: &&TemplateExplanation| match template.serves {
            Some(_) => template.template.clone(),
            None => format!("{} (perhaps)", template.template),
        };
        let names: Vec<String> = serving.iter().map(name).collect();
        text.line(&format!("  {runtime_class}: {}", names.join(", ")));
        for template in serving {
            for warning in &template.warnings {
                let warning = format!("{}: {warning}", template.template);
                if !warned.contains(&warning) {
                    warned.push(warning);
                }
            }
        }
    }
    for warning in &warned {
        text.styled("  ", WARN, "Warning:").paragraph("    ", warning);
    }
}
