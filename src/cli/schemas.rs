//! JSON schemas of what the program writes for programs: the documents of `-o json` and notifications to webhooks.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::doctor::DoctorDocument;
use super::history::HistoryOutput;
use super::output::VersionedAnswer;
use super::replay::ReplayDocument;
use super::template::TemplateList;
use crate::controller::status::DaemonStatus;
use crate::model::decision::Decision;
use crate::model::notice::Notice;
use crate::model::report::Report;
use crate::model::story::{NodeStory, PodStory};

/// Each document's schema by its file, as `contrib` and the package have it; a text ends with a newline.
pub(super) fn all() -> Vec<(&'static str, String)> {
    vec![
        (
            "pve-autoscaler-plan.schema.json",
            schema_of::<VersionedAnswer<Decision>>("What plan prints"),
        ),
        // What `plan -o json` prints under `report`.
        (
            "pve-autoscaler-report.schema.json",
            schema_of::<Report>("The report of a decision"),
        ),
        (
            "pve-autoscaler-notification.schema.json",
            schema_of::<Notice>("A notification of pve-autoscaler"),
        ),
        (
            "pve-autoscaler-status.schema.json",
            schema_of::<VersionedAnswer<DaemonStatus>>("What status prints"),
        ),
        (
            "pve-autoscaler-explain-pod.schema.json",
            schema_of::<VersionedAnswer<PodStory>>("What explain pod prints"),
        ),
        (
            "pve-autoscaler-explain-node.schema.json",
            schema_of::<VersionedAnswer<NodeStory>>("What explain node prints"),
        ),
        (
            "pve-autoscaler-history.schema.json",
            schema_of::<HistoryOutput<'static>>("What history prints"),
        ),
        (
            "pve-autoscaler-replay.schema.json",
            schema_of::<ReplayDocument>("What replay prints"),
        ),
        (
            "pve-autoscaler-template-list.schema.json",
            schema_of::<TemplateList>("What template list prints"),
        ),
        (
            "pve-autoscaler-doctor.schema.json",
            schema_of::<DoctorDocument<'static>>("What doctor prints"),
        ),
    ]
}

fn schema_of<T: JsonSchema>(title: &str) -> String {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(open));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Fields come without a new version of a document. What is strict when we read our own form is not when others read it.
fn open(schema: &mut Schema) {
    for key in ["additionalProperties", "unevaluatedProperties"] {
        if schema.get(key) == Some(&Value::Bool(false)) {
            schema.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_in_contrib_are_up_to_date() {
        for (name, text) in all() {
            let file = format!("{}/contrib/{name}", env!("CARGO_MANIFEST_DIR"));
            let stored = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                stored == text,
                "{file} is out of date: run `pve-autoscaler generate DIRECTORY` and copy it"
            );
        }
    }

    #[test]
    fn a_field_that_a_newer_program_writes_breaks_no_schema() {
        for (name, text) in all() {
            for word in ["\"additionalProperties\": false", "unevaluatedProperties"] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
    }
}
