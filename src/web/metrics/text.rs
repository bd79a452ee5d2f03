//! The metrics in Prometheus' own text format, from the OpenMetrics text that the encoder writes.
//!
//! The two differ in three points that `promtool check metrics` minds: in Prometheus' format a counter's family has
//! the name of its series, `_total` and all; there is no `# EOF`; and a gauge may not be named like a counter or
//! like a part of a histogram. The names that kproximate and cluster-autoscaler gave to such gauges are kept for
//! their dashboards, so their type is left open (`untyped`).

use std::fmt::Write as _;

/// What ends the names of series of which a gauge is none.
const RESERVED: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];

/// OpenMetrics text in Prometheus' format, version 0.0.4.
pub(super) fn prometheus(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) = family(line) {
            let (name, kind) = named(name, kind);
            if let Some(help) = help.take() {
                let _ = writeln!(out, "# HELP {name} {help}");
            }
            let _ = writeln!(out, "# TYPE {name} {kind}");
        } else if !line.starts_with("# ") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn family(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}

/// A family's name and type in Prometheus' format.
fn named<'a>(name: &str, kind: &'a str) -> (String, &'a str) {
    match kind {
        "counter" => (format!("{name}_total"), kind),
        "gauge" if RESERVED.iter().any(|end| name.ends_with(end)) => (name.to_owned(), "untyped"),
        "unknown" => (name.to_owned(), "untyped"),
        _ => (name.to_owned(), kind),
    }
}
