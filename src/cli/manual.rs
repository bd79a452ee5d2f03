//! `man 5 pve-autoscaler.toml`, from what the reference manual is made of.

use std::fmt::Write as _;

use roff::{Inline, Roff, bold, italic, roman};

use crate::config::reference::{self, ReferenceKey, Section};

/// The smallest file that makes nodes.
const SMALLEST: &str = r#"version = 1

[proxmox]
vmids = "9000-9999"

[template.debian]
vmid = 8000

[instance_type.small]
cores = 2
memory = "4GiB"

[pool.workers]
template = "debian"
instance_types = ["small"]
max = 5"#;

/// The page.
pub(super) fn page() -> String {
    let mut page = Roff::new();
    page.control(
        "TH",
        [
            "pve-autoscaler.toml",
            "5",
            "",
            concat!("pve-autoscaler ", env!("CARGO_PKG_VERSION")),
            "pve-autoscaler",
        ],
    );
    page.control("SH", ["NAME"]);
    page.text([roman(
        "pve-autoscaler.toml - configuration of pve-autoscaler, the node autoscaler for Kubernetes on Proxmox VE",
    )]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([roman("/etc/pve-autoscaler.toml")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text(inlines(
        "The file is TOML, owned by root, and holds no secrets. Unknown keys are errors. `pve-autoscaler check` says \
         everything that is wrong with it, with line and column; `systemctl reload pve-autoscaler` takes a change up. A file \
         with an error is not taken up: the old one stays in force.",
    ));
    page.control("SH", ["TABLES"]);
    for section in reference::sections() {
        table(&mut page, section);
    }
    page.control("SH", ["VALUES"]);
    for (name, written) in reference::values() {
        page.control("TP", []);
        page.text([italic(name)]);
        page.text(inlines(&written));
    }
    page.control("SH", ["EXAMPLE"]);
    page.text([roman("The smallest useful file:")]);
    page.control("PP", []);
    page.control("nf", []);
    for line in SMALLEST.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("PP", []);
    page.text([roman(
        "A file to copy from, with comments, is /usr/share/doc/pve-autoscaler/examples/pve-autoscaler.toml.",
    )]);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(
        "pve-autoscaler(1), pve-autoscaler-check(1), pve-autoscaler-doctor(1); /usr/share/doc/pve-autoscaler/docs: \
         configuration.md, recipes.md, hosts.md, regions.md, joining.md, networks.md, template.md",
    )]);
    page.render()
}

fn table(page: &mut Roff, section: Section) {
    page.control("SS", [section.heading.replace('`', "").as_str()]);
    page.text(inlines(&section.text));
    for key in section.keys {
        page.control("TP", []);
        page.text(head(&key));
        page.text(inlines(&key.text));
    }
}

/// A key's own line: its name, what it takes, and what counts without it.
fn head(key: &ReferenceKey) -> Vec<Inline> {
    let mut line = vec![bold(key.name.clone())];
    let mut note = String::new();
    if !key.kind.is_empty() {
        note = format!(" = {}", key.kind);
    }
    if key.default == "**required**" {
        note += " (required)";
    } else if !key.default.is_empty() {
        let _ = write!(note, " (default {})", key.default);
    }
    line.extend(inlines(&note));
    line
}

/// A sentence in Markdown: what stands between backquotes becomes bold, links are words with their file behind them.
fn inlines(text: &str) -> Vec<Inline> {
    spell_links(text)
        .split('`')
        .enumerate()
        .filter(|(_, part)| !part.is_empty())
        .map(|(index, part)| match index % 2 {
            0 => roman(part),
            _ => bold(part),
        })
        .collect()
}

/// `[words](file.md#place)` as `words (file.md)`. Of links within the page the words stay.
fn spell_links(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(middle) = rest.find("](") {
        let (Some(open), Some(close)) = (rest[..middle].rfind('['), rest[middle..].find(')'))
        else {
            break;
        };
        plain.push_str(&rest[..open]);
        let (words, target) = (&rest[open + 1..middle], &rest[middle + 2..middle + close]);
        plain.push_str(words);
        let file = target.split('#').next().unwrap_or_default();
        if !file.is_empty() && file != "configuration.md" && words != file {
            let _ = write!(plain, " ({file})");
        }
        rest = &rest[middle + close + 1..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_their_files_and_lists_keep_their_brackets() {
        assert_eq!(
            spell_links(
                "see [hosts](hosts.md) and [joining](joining.md#ids), [above](#pool), not [x]"
            ),
            "see hosts (hosts.md) and joining (joining.md), above, not [x]"
        );
    }

    #[test]
    fn no_line_of_the_page_is_taken_for_a_request_by_accident() {
        for line in page().lines().filter(|line| line.starts_with('.')) {
            let request = line.split_whitespace().next().unwrap_or_default();
            assert!(
                [
                    ".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi", ".ie", ".el"
                ]
                .contains(&request),
                "{line}"
            );
        }
    }
}
