//! JSON schemas of what the program writes: a decision's report, which `plan -o json` prints under `report`, and a
//! notification, which webhooks get.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::model::notice::Notice;
use crate::model::report::Report;

/// The report's, as `contrib/pve-autoscaler-report.schema.json` has it; it ends with a newline.
pub(super) fn report() -> String {
    schema_of::<Report>()
}

/// A notification's, as `contrib/pve-autoscaler-notification.schema.json` has it; it ends with a newline.
pub(super) fn notification() -> String {
    schema_of::<Notice>()
}

fn schema_of<T: JsonSchema>() -> String {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let schema = generator.into_root_schema_for::<T>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_in_contrib_are_up_to_date() {
        for (name, text) in [("report", report()), ("notification", notification())] {
            let file = format!(
                "{}/contrib/pve-autoscaler-{name}.schema.json",
                env!("CARGO_MANIFEST_DIR")
            );
            let stored = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                stored == text,
                "{file} is out of date: run `pve-autoscaler generate DIRECTORY` and copy it"
            );
        }
    }
}
