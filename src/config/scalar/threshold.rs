//! Limits of the kubelet's eviction.

use std::fmt;

use super::{Scalar, Size};

/// How little may be left: `"200MiB"`, `"5%"`, `1000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Thousandths of the whole.
    Percent(i64),
    /// Bytes.
    Bytes(i64),
    /// A number, of inodes or process ids.
    Count(i64),
}

impl Threshold {
    /// As a KubeletConfiguration has it.
    pub fn quantity(self) -> String {
        match self {
            Threshold::Bytes(bytes) => bytes.to_string(),
            other => other.to_string(),
        }
    }
}

impl Scalar for Threshold {
    const EXPECTED: &'static str =
        "a size such as \"200MiB\", a percentage such as \"5%\", or a number, not negative";
    const NUMBERS: bool = true;
    const NAME: &'static str = "threshold";

    fn read(text: &str) -> Option<Threshold> {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && text.len() < 12;
        if let Some(percent) = text.strip_suffix('%') {
            let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
            let plain = !whole.is_empty() && digits(whole) && tenth.len() == 1 && digits(tenth);
            let permille = whole.parse::<i64>().ok()? * 10 + tenth.parse::<i64>().ok()?;
            return plain.then_some(Threshold::Percent(permille));
        }
        if !text.is_empty() && digits(text) {
            return text.parse().ok().map(Threshold::Count);
        }
        Size::read(text).map(|size| Threshold::Bytes(size.0))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Percent(permille) if permille % 10 == 0 => write!(f, "{}%", permille / 10),
            Threshold::Percent(permille) => write!(f, "{}.{}%", permille / 10, permille % 10),
            Threshold::Bytes(bytes) => Size(*bytes).fmt(f),
            Threshold::Count(count) => count.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_and_written() {
        for (text, quantity) in [
            ("200MiB", "209715200"),
            ("5%", "5%"),
            ("7.5%", "7.5%"),
            ("1000", "1000"),
        ] {
            let read = Threshold::read(text).expect(text);
            assert_eq!(read.quantity(), quantity);
            assert_eq!(Threshold::read(&read.to_string()), Some(read));
        }
        for text in ["", "%", "-5%", "5.25%", "x", "-1", ".5%", "5.%"] {
            assert_eq!(Threshold::read(text), None, "{text}");
        }
    }
}
