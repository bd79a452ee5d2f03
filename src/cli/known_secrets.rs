//! Secrets of the configuration file, told by the keys that they stand at: what a person may write there is a secret as a whole, and
//! looks like any other text. Pure.

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::redact::BLOT;
use crate::model::words;

/// Texts for cloud-init: whole files of a person's own, with passwords in any form.
const CLOUD_INIT: [&str; 3] = ["user_data", "vendor_data", "network_config"];

/// What the configuration keeps secret.
#[derive(Debug, Default)]
pub(super) struct KnownSecrets(Vec<(String, String)>);

impl KnownSecrets {
    /// A text without the addresses that the configuration keeps secret, wherever they are quoted.
    pub(super) fn blotted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (secret, stand_in) in &self.0 {
            if text.contains(secret) {
                text = text.replace(secret, stand_in);
            }
        }
        text
    }
}

/// The configuration without what is a secret by its key, and what that was. Texts for cloud-init stay such as `check` takes.
///
/// # Errors
/// It is no TOML: nobody can tell where in it a secret begins and ends.
pub(super) fn of_configuration(text: &str) -> anyhow::Result<(String, KnownSecrets)> {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        anyhow::bail!(
            "it is no TOML, so its secrets cannot be told from the rest; check.txt says where it is wrong"
        );
    };
    let mut known = KnownSecrets::default();
    each(document.get_mut("notification"), |notification| {
        if let Some(text) = text_at(notification, "url") {
            let shown = only_host(text.as_str());
            if shown != text {
                known.0.push((text, shown.clone()));
                put(notification, "url", &shown);
            }
        }
        if let Some(text) = text_at(notification, "body") {
            put(notification, "body", &lines(&text));
        }
    });
    each(document.get_mut("template"), |template| {
        let texts = template.get_mut("cloud_init");
        let Some(texts) = texts.and_then(Item::as_table_like_mut) else {
            return;
        };
        for key in CLOUD_INIT {
            if let Some(text) = text_at(texts, key) {
                // Each keeps the form that the program asks for.
                let shown = match key {
                    "network_config" => format!("version: 2 # {}", lines(&text)),
                    _ => format!("#cloud-config\n# {}\n", lines(&text)),
                };
                put(texts, key, &shown);
            }
        }
    });
    // The longest first: one may be the beginning of another.
    known
        .0
        .sort_by_key(|(secret, _)| std::cmp::Reverse(secret.len()));
    Ok((without_commented(&document.to_string()), known))
}

/// A web address up to its host.
fn only_host(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return BLOT.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    if path.len() <= 1 && host == authority {
        return url.to_owned();
    }
    format!("{scheme}://{host}/{BLOT}")
}

/// What stands for a text.
fn lines(text: &str) -> String {
    format!("<redacted: {}>", words::count(text.lines().count(), "line"))
}

/// Addresses in lines that are commented out.
fn without_commented(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let comment = line.trim_start().strip_prefix('#');
        let at = line
            .find("://")
            .filter(|_| comment.is_some_and(|comment| comment.trim_start().starts_with("url")));
        let Some(at) = at else {
            return line.to_owned();
        };
        let begin = line[..at]
            .rfind(['"', '\'', ' ', '='])
            .map_or(0, |at| at + 1);
        let rest = &line[begin..];
        let end = rest.find(['"', '\'', ' ', '\n']).unwrap_or(rest.len());
        format!(
            "{}{}{}",
            &line[..begin],
            only_host(&rest[..end]),
            &rest[end..]
        )
    });
    lines.collect()
}

/// Every table below a table of tables.
fn each(tables: Option<&mut Item>, mut change: impl FnMut(&mut dyn TableLike)) {
    let Some(tables) = tables.and_then(Item::as_table_like_mut) else {
        return;
    };
    for (_, table) in tables.iter_mut() {
        if let Some(table) = table.as_table_like_mut() {
            change(table);
        }
    }
}

fn text_at(table: &dyn TableLike, key: &str) -> Option<String> {
    Some(table.get(key)?.as_str()?.to_owned())
}

/// Puts another text in place of a value, and leaves its comment.
fn put(table: &mut dyn TableLike, key: &str, text: &str) {
    if let Some(value) = table.get_mut(key).and_then(Item::as_value_mut) {
        let decor = value.decor().clone();
        *value = Value::from(text);
        *value.decor_mut() = decor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn what_is_a_secret_by_its_key_goes_in_every_form_of_table() {
        let text = r##"# url = "https://hooks.slack.com/services/OLD"
[notification]
chat = { kind = "webhook", url = "https://ops:pw@hooks.slack.com/services/T0/SECRET" } # ours
[notification.push]
kind = "webhook"
url = "https://ntfy.example.org:8443/?auth=SECRET"
body = '{"key": "SECRET"}'
[notification.plain]
kind = "webhook"
url = "https://hooks.example.org/"
[template.debian.cloud_init]
storage = "local"
user_data = """
#cloud-config
chpasswd: { list: "root:SECRET" }
"""
vendor_data = "#!/bin/sh\necho SECRET\n"
network_config = "version: 2\nwifis: {a: {password: SECRET}}"
"##;
        let (shown, known) = of_configuration(text).expect("TOML");
        for words in [
            "# url = \"https://hooks.slack.com/<redacted>\"",
            "url = \"https://hooks.slack.com/<redacted>\" } # ours",
            "url = \"https://ntfy.example.org:8443/<redacted>\"",
            "url = \"https://hooks.example.org/\"",
            "body = \"<redacted: 1 line>\"",
            "# <redacted: 2 lines>",
            "version: 2 # <redacted: 2 lines>",
        ] {
            assert!(shown.contains(words), "{words} is not in {shown}");
        }
        assert!(
            !shown.contains("SECRET") && !shown.contains("OLD"),
            "{shown}"
        );
        assert_eq!(
            known.blotted("POST https://ntfy.example.org:8443/?auth=SECRET: 404"),
            "POST https://ntfy.example.org:8443/<redacted>: 404"
        );
        assert!(of_configuration("user_data = \"\"\"\nSECRET").is_err());
    }

    #[test]
    fn what_check_takes_stays_valid() {
        let text = "version = 1\n[template.a]\nvmid = 100\n[template.a.cloud_init]\nstorage = \"local\"\nuser_data = \"#!/bin/sh\\n\"\nvendor_data = \"#include\\nhttps://x/\"\nnetwork_config = \"version: 1\"\n[proxmox]\nvmids = \"9000-9099\"\n[instance_type.s]\ncores = 1\nmemory = \"2GiB\"\n[pool.p]\ntemplate = \"a\"\ninstance_types = [\"s\"]\nmax = 1\n";
        config::parse(text, "file").expect("it is valid");
        let (shown, _) = of_configuration(text).expect("TOML");
        assert_ne!(shown, text);
        config::parse(&shown, "file").expect("it is valid");
    }
}
