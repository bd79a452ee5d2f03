//! What the YAML reader says to programmers, for people who typed the YAML.

/// What it says, and what that means to whoever wrote the text.
const WORDS: [(&str, &str); 8] = [
    (
        "cannot deserialize null into string; use Option<String>",
        "a key is null, or there is none before its colon",
    ),
    ("expected string scalar", "a key must be text"),
    (", set DuplicateKeyPolicy in Options if acceptable", ""),
    (
        " so cannot be stored into string. If you just use !!binary for documentation/annotation, set ignore_binary_tag_for_string in Options",
        "",
    ),
    (" rejected by the configured policy", ", which JSON has not"),
    (
        "recursive references require weak recursion types",
        "an alias stands inside what it names",
    ),
    ("invalid u64", "expected a whole number"),
    ("invalid i64", "expected a whole number"),
];

/// The reader's message without words that mean something in a program alone.
pub fn reword(message: &str) -> String {
    let mut text = message.to_owned();
    for (said, meant) in WORDS {
        text = text.replace(said, meant);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// By the reader itself: a new version of it may have other words.
    #[test]
    fn a_mistake_in_yaml_is_told_without_words_of_a_program() {
        for (yaml, words) in [
            (": x\n", "a key is null, or there is none before its colon"),
            ("a:\n  ~: b\n", "line 2 column 3: a key is null"),
            ("[a]: b\n", "a key must be text"),
            ("a: 1\na: 2\n", "duplicate mapping key: a"),
            ("a: !!binary /w==\n", "!!binary scalar is not valid UTF-8"),
            ("a: .inf\n", "non-finite float `.inf`, which JSON has not"),
            ("&a [*a]\n", "an alias stands inside what it names"),
            ("a: !!int b\n", "expected a whole number"),
        ] {
            let read: Result<Value, _> = serde_saphyr::from_str(yaml);
            let error = read.expect_err(yaml).to_string();
            let told = reword(&error);
            assert!(told.contains(words), "{yaml:?}: {told}");
            for word in [
                "Option",
                "Policy",
                "policy",
                "u64",
                "i64",
                "deserialize",
                "weak",
            ] {
                assert!(!told.contains(word), "{yaml:?}: {told}");
            }
        }
    }
}
