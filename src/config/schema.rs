//! The JSON schema of the file, for editors and for the reference manual.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::file::File;

/// The schema, as `contrib/pve-autoscaler.schema.json` has it.
pub fn schema() -> Value {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<File>();
    schema.to_value()
}

/// The schema as text that ends with a newline.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}
