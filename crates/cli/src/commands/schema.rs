//! The JSON Schema of what commands print with `-o json`.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use winpool_analysis::explain::difference::Difference;
use winpool_analysis::explain::forecast::Forecast;
use winpool_analysis::explain::node::NodeExplanation;
use winpool_analysis::explain::pod::PodExplanation;
use winpool_analysis::explain::report::{Fleet, Report};
use winpool_analysis::explain::scale::ClassExplanation;
use winpool_analysis::explain::status::ClusterStatus;
use winpool_analysis::explain::upgrade::Upgrade;
use winpool_analysis::snapshot::ClusterSnapshot;

use super::{blockers, builds, check, images};

const DESCRIPTION: &str = "What winpool prints with -o json and -o yaml. Each property describes the output of the command of \
                           its name. Releases may add properties.";

pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let commands = [
        ("blockers", generator.subschema_for::<blockers::BlockersReport>()),
        ("builds", generator.subschema_for::<Vec<builds::WindowsRelease>>()),
        ("check", generator.subschema_for::<check::CheckReport>()),
        ("diff", generator.subschema_for::<Difference>()),
        ("images", generator.subschema_for::<images::ImagesReport>()),
        ("plan", generator.subschema_for::<Forecast>()),
        ("plan --assume", generator.subschema_for::<Upgrade>()),
        ("report", generator.subschema_for::<Report>()),
        ("report FILE...", generator.subschema_for::<Fleet>()),
        ("snapshot", generator.subschema_for::<ClusterSnapshot>()),
        ("status", generator.subschema_for::<ClusterStatus>()),
        ("why class", generator.subschema_for::<ClassExplanation>()),
        ("why node", generator.subschema_for::<NodeExplanation>()),
        ("why pod", generator.subschema_for::<PodExplanation>()),
        ("why workload", generator.subschema_for::<PodExplanation>()),
    ];
    let commands: Map<String, Value> =
        commands.into_iter().map(|(command, schema)| (command.to_owned(), schema.to_value())).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of winpool",
        "description": DESCRIPTION,
        "type": "object",
        "properties": commands,
        "$defs": generator.take_definitions(true),
    })
}
