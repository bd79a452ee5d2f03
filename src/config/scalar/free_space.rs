//! What of a storage stays free.

use std::fmt;

use super::{Scalar, Size};
use crate::model::hosts::StorageFloor;

/// Thousandths of a whole.
const WHOLE: i64 = 1000;

/// What stays free of a storage: `"100GiB"`, `"10%"`, `"7.5%"`. Nothing of it is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace(pub StorageFloor);

impl FreeSpace {
    /// The bound; `None` where nothing is to stay free.
    pub fn bound(self) -> Option<StorageFloor> {
        match self.0 {
            StorageFloor::Bytes(0) | StorageFloor::Permille(0) => None,
            bound => Some(bound),
        }
    }
}

impl Scalar for FreeSpace {
    const EXPECTED: &'static str =
        "a size such as \"100GiB\", or a percentage of the storage below 100 such as \"10%\"";
    const NAME: &'static str = "free-space";

    fn read(text: &str) -> Option<FreeSpace> {
        let Some(percent) = text.strip_suffix('%') else {
            let size = Size::read(text)?;
            return Some(FreeSpace(StorageFloor::Bytes(size.0)));
        };
        let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !(1..=2).contains(&whole.len()) || tenth.len() != 1 || !digits(whole) || !digits(tenth) {
            return None;
        }
        let permille = whole.parse::<i64>().ok()? * 10 + tenth.parse::<i64>().ok()?;
        (permille < WHOLE).then_some(FreeSpace(StorageFloor::Permille(permille)))
    }
}

impl fmt::Display for FreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            StorageFloor::Bytes(bytes) => Size(bytes).fmt(f),
            StorageFloor::Permille(part) if part % 10 == 0 => write!(f, "{}%", part / 10),
            StorageFloor::Permille(part) => write!(f, "{}.{}%", part / 10, part % 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_percentages_are_read_and_written() {
        for (text, bound) in [
            ("100GiB", Some(StorageFloor::Bytes(100 << 30))),
            ("10%", Some(StorageFloor::Permille(100))),
            ("7.5%", Some(StorageFloor::Permille(75))),
            ("99.9%", Some(StorageFloor::Permille(999))),
            ("0%", None),
            ("0B", None),
        ] {
            let read = FreeSpace::read(text).expect(text);
            assert_eq!(read.bound(), bound, "{text}");
            assert_eq!(FreeSpace::read(&read.to_string()), Some(read), "{text}");
        }
        for text in [
            "", "%", "100%", "-5%", "5.25%", "x", "10", ".5%", "5.%", "-1GiB",
        ] {
            assert_eq!(FreeSpace::read(text), None, "{text}");
        }
    }
}
