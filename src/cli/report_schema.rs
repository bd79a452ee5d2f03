//! The JSON schema of a decision's report: what `plan -o json` prints under `report`.

use schemars::generate::SchemaSettings;

use crate::model::report::Report;

/// The schema, as `contrib/pve-autoscaler-report.schema.json` has it; it ends with a newline.
pub(super) fn schema_text() -> String {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let schema = generator.into_root_schema_for::<Report>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_contrib_is_up_to_date() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/contrib/pve-autoscaler-report.schema.json"
        );
        let stored = std::fs::read_to_string(file).expect("the schema is there");
        assert!(
            stored == schema_text(),
            "contrib/pve-autoscaler-report.schema.json is out of date: run `pve-autoscaler generate DIRECTORY` and copy it"
        );
    }
}
