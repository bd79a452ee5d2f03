//! Amounts in words, for reasons. Exact integer arithmetic; what is shown is rounded down.

use super::resources::is_huge_pages;

const KI: i64 = 1 << 10;
const MI: i64 = 1 << 20;
const GI: i64 = 1 << 30;

/// Stands for what cannot be read of what a pod asks for, and for more than can be counted.
pub const UNCOUNTED: i64 = i64::MAX;

/// Stands for the reason of a pause for which nobody gave one.
pub const NO_REASON: &str = "no reason given";

/// An amount of a resource as a person writes it: `3.8` cores, `1.5Gi`, `110`. Numbers that stand for none are said in words:
/// [`UNCOUNTED`], and what is left when that is taken away.
pub fn amount(resource: &str, amount: i64) -> String {
    match resource {
        _ if amount == UNCOUNTED => "an amount that cannot be read or counted".to_owned(),
        _ if amount < -(UNCOUNTED / 2) => "less than nothing".to_owned(),
        "cpu" => cores(amount),
        "memory" | "ephemeral-storage" | "storage" => bytes(amount),
        name if is_huge_pages(name) => bytes(amount),
        _ => amount.to_string(),
    }
}

/// Millicores in cores: `2`, `0.25`.
pub fn cores(milli: i64) -> String {
    let sign = if milli < 0 { "-" } else { "" };
    let milli = milli.unsigned_abs();
    let fraction = format!("{:03}", milli % 1000);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{}", milli / 1000)
    } else {
        format!("{sign}{}.{fraction}", milli / 1000)
    }
}

/// Thousandths in percent: `25 %`, `0.5 %`.
pub fn percent(permille: i64) -> String {
    match permille % 10 {
        0 => format!("{} %", permille / 10),
        part => format!("{}.{} %", permille / 10, part.abs()),
    }
}

/// Bytes in the largest binary unit that leaves a whole part, with one decimal.
pub fn bytes(amount: i64) -> String {
    let (unit, name) = match amount.saturating_abs() {
        0..KI => return amount.to_string(),
        KI..MI => (KI, "Ki"),
        MI..GI => (MI, "Mi"),
        _ => (GI, "Gi"),
    };
    let tenths = (amount % unit).saturating_abs().saturating_mul(10) / unit;
    if tenths == 0 {
        format!("{}{name}", amount / unit)
    } else {
        format!("{}.{tenths}{name}", amount / unit)
    }
}

/// A price in millionths per hour, in whole units: `0.035`.
pub fn price(millionths: i64) -> String {
    let sign = if millionths < 0 { "-" } else { "" };
    let all = millionths.unsigned_abs();
    let text = format!("{sign}{}.{:06}", all / 1_000_000, all % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Names in words, the first ones only when they are many: `a`, `a and b`, `a and 13 others`.
pub fn some<T: std::fmt::Display>(names: &[T]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [one, other] => format!("{one} and {other}"),
        [first, others @ ..] => format!("{first} and {} others", others.len()),
    }
}

/// All names in words: `a`, `a and b`, `a, b and c`.
pub fn each<T: std::fmt::Display>(names: &[T]) -> String {
    let (last, before) = match names {
        [] => return "none".to_owned(),
        [one] => return one.to_string(),
        [before @ .., last] => (last, before),
    };
    let before: Vec<String> = before.iter().map(ToString::to_string).collect();
    format!("{} and {last}", before.join(", "))
}

/// A host with its region, where that has a name of its own: `pve1 in east`. The region of a file with one is `default`.
pub fn at(region: &str, host: &str) -> String {
    match region {
        "" | "default" => host.to_owned(),
        region => format!("{host} in {region}"),
    }
}

/// A number with its noun: `1 node`, `2 nodes`, `2 addresses`.
pub fn count<N: std::fmt::Display + PartialEq + From<u8> + Copy>(number: N, one: &str) -> String {
    let many = if one.ends_with("ss") { "es" } else { "s" };
    let many = if number == N::from(1) { "" } else { many };
    format!("{number} {one}{many}")
}

/// A number with its noun and verb: `1 node is`, `2 nodes are`.
pub fn are<N: std::fmt::Display + PartialEq + From<u8> + Copy>(number: N, one: &str) -> String {
    let verb = if number == N::from(1) { "is" } else { "are" };
    format!("{} {verb}", count(number, one))
}

/// Names in a row; `none` when there is none.
pub fn names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(name.as_ref());
    }
    if text.is_empty() {
        text.push_str("none");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(cores(5000), "5");
        assert_eq!(cores(3800), "3.8");
        assert_eq!(cores(-250), "-0.25");
        assert_eq!(bytes(512), "512");
        assert_eq!(bytes(GI + GI / 2), "1.5Gi");
        assert_eq!(bytes(-3 * MI), "-3Mi");
        assert_eq!(amount("pods", 110), "110");
        assert_eq!(amount("storage", GI), "1Gi");
        for resource in ["cpu", "memory", "hugepages-2Mi", "example.com/gpu"] {
            let uncounted = "an amount that cannot be read or counted";
            assert_eq!(amount(resource, UNCOUNTED), uncounted);
            assert_eq!(amount(resource, 3800 - UNCOUNTED), "less than nothing");
        }
        assert_eq!(bytes(i64::MIN), "-8589934592Gi");
        assert_eq!(price(35_000), "0.035");
        assert_eq!(price(-2_000_000), "-2");
    }

    #[test]
    fn one_is_one_and_none_is_said() {
        assert_eq!(each::<&str>(&[]), "none");
        assert_eq!(each(&["a"]), "a");
        assert_eq!(each(&["a", "b"]), "a and b");
        assert_eq!(each(&["a", "b", "c"]), "a, b and c");
        assert_eq!(count(0_usize, "node"), "0 nodes");
        assert_eq!(count(1_u32, "node"), "1 node");
        assert_eq!(are(1_u64, "node"), "1 node is");
        assert_eq!(are(2_i64, "node"), "2 nodes are");
        assert_eq!(names(["a", "b"]), "a, b");
        assert_eq!(names::<&str>([]), "none");
    }
}
