//! `[telemetry]`.

use super::{SMALL, messages};
use crate::config::parse;

fn with(text: &str) -> String {
    format!("{SMALL}\n[telemetry]\n{text}\n")
}

#[test]
fn without_an_endpoint_there_are_no_traces() {
    for text in [SMALL.to_owned(), with(""), with("timeout = \"5s\"")] {
        let settings = parse(&text, "test.toml").expect("it is right");
        assert_eq!(settings.telemetry, None);
    }
}

#[test]
fn an_endpoint_gets_the_path_of_traces_once() {
    for (endpoint, url) in [
        ("http://a.example:4318", "http://a.example:4318/v1/traces"),
        ("http://a.example:4318/", "http://a.example:4318/v1/traces"),
        ("https://a.example/otlp", "https://a.example/otlp/v1/traces"),
        ("http://a.example/v1/traces", "http://a.example/v1/traces"),
    ] {
        let text = with(&format!("otlp_endpoint = \"{endpoint}\""));
        let settings = parse(&text, "test.toml").expect("it is right");
        let telemetry = settings.telemetry.expect("it is there");
        assert_eq!(telemetry.url, url);
        assert_eq!(settings.warnings, Vec::<String>::new());
    }
}

#[test]
fn what_cannot_be_is_said() {
    for (text, said) in [
        (
            "otlp_endpoint = \"tempo:4318\"",
            "such as http://tempo.example:4318",
        ),
        ("otlp_endpoint = \"http://a:b@c/\"", "headers_file"),
        ("otlp_endpoint = \"http://a/?x=1\"", "no ?"),
        (
            "headers_file = \"/etc/x\"",
            "of no use without otlp_endpoint",
        ),
        (
            "otlp_endpoint = \"http://a\"\nheaders_file = \"x\"",
            "absolute path",
        ),
        ("timeout = \"0s\"", "expected 1s to 1m"),
    ] {
        let said_so = messages(&with(text));
        assert!(said_so.contains(said), "{text}: {said_so}");
    }
    let open = with("otlp_endpoint = \"http://a\"\nheaders_file = \"/etc/x\"");
    let warnings = parse(&open, "test.toml").expect("it is right").warnings;
    assert!(warnings[0].contains("as they are"), "{warnings:?}");
}
