//! The JSON schema of the file, for editors and for the reference manual.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::file::ConfigFile;

/// Keys that must be there and are plain text, which is empty where they are not.
const REQUIRED: [(&str, [&str; 2]); 1] = [("Build", ["storage", "kubernetes"])];

/// The schema, as `contrib/pve-autoscaler.schema.json` has it.
pub fn schema() -> Value {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<ConfigFile>();
    let mut value = schema.to_value();
    for definition in value["$defs"]
        .as_object_mut()
        .into_iter()
        .flat_map(|definitions| definitions.values_mut())
    {
        tidy(definition);
    }
    for (table, keys) in REQUIRED {
        let definition = &mut value["$defs"][table];
        let mut required = definition["required"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        required.extend(keys.map(Value::from));
        definition["required"] = required.into();
    }
    tidy(&mut value);
    value
}

/// The schema as text that ends with a newline.
pub fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

/// The types keep a required key as an `Option`, so that all that is missing can be said at once;
/// its default is null. TOML has no null: such a key is required, and no key may be null.
fn tidy(definition: &mut Value) {
    let mut required = Vec::new();
    let properties = definition
        .get_mut("properties")
        .and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let Some(property) = property.as_object_mut() else {
            continue;
        };
        if property.get("default").is_some_and(Value::is_null) {
            property.remove("default");
            required.push(name.clone());
        }
        if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
            if let [only] = &types[..] {
                let only = only.clone();
                property.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(mut kinds)) = property.remove("anyOf") {
            kinds.retain(|kind| kind["type"] != "null");
            match kinds.first() {
                Some(Value::Object(only)) if kinds.len() == 1 => property.extend(only.clone()),
                _ => {
                    property.insert("anyOf".to_owned(), Value::Array(kinds));
                }
            }
        }
    }
    if !required.is_empty() {
        definition["required"] = json!(required);
    }
}
