//! Sets of a host's logical CPUs, written as PVE's `affinity` and the kernel's lists are: `0-3,8`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The highest number of a CPU that is read (the kernel's `NR_CPUS` is 8192 at most).
pub const MAX_CPU: u16 = 8191;

/// Logical CPUs by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct CpuSet(
    /// A bit for each, without words of zeros at the end.
    Vec<u64>,
);

impl CpuSet {
    /// None.
    pub fn new() -> CpuSet {
        CpuSet::default()
    }

    /// Reads a list such as `0-3,8`; `None` when it is none, an empty text too.
    pub fn read(text: &str) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            set.extend(first..=last);
        }
        Some(set)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a CPU is one of them.
    pub fn contains(&self, cpu: u16) -> bool {
        let word = self.0.get(usize::from(cpu / 64));
        word.is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Adds one.
    pub fn insert(&mut self, cpu: u16) {
        let at = usize::from(cpu / 64);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (cpu % 64);
    }

    /// All of them, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let end = u16::try_from(self.0.len() * 64).unwrap_or(u16::MAX);
        (0..end).filter(|cpu| self.contains(*cpu))
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn with(&self, other: &CpuSet) -> CpuSet {
        let words = self.0.len().max(other.0.len());
        let word = |of: &CpuSet, at: usize| of.0.get(at).copied().unwrap_or(0);
        CpuSet(
            (0..words)
                .map(|at| word(self, at) | word(other, at))
                .collect(),
        )
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn both(&self, other: &CpuSet) -> CpuSet {
        let words = self.0.iter().zip(&other.0);
        CpuSet(words.map(|(mine, theirs)| mine & theirs).collect()).trimmed()
    }

    /// The CPUs that are not in the other set.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        let words = self.0.iter().zip(others);
        CpuSet(words.map(|(mine, theirs)| mine & !theirs).collect()).trimmed()
    }

    /// Whether all of them are in the other.
    pub fn within(&self, other: &CpuSet) -> bool {
        self.without(other).is_empty()
    }

    /// PVE's `affinity`. CPU 0 alone is written as a range: qemu-server takes the text `0` for none at all.
    pub fn affinity(&self) -> String {
        match self.to_string() {
            text if text == "0" => "0-0".to_owned(),
            text => text,
        }
    }

    fn trimmed(mut self) -> CpuSet {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok())??;
    (number <= MAX_CPU).then_some(number)
}

impl Extend<u16> for CpuSet {
    fn extend<I: IntoIterator<Item = u16>>(&mut self, cpus: I) {
        cpus.into_iter().for_each(|cpu| self.insert(cpu));
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(CpuSet::new());
        }
        CpuSet::read(&text).ok_or_else(|| serde::de::Error::custom("expected CPUs such as 0-3,8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_has_them() {
        for (text, count, again) in [
            ("0", 1, "0"),
            ("0-3,8", 5, "0-3,8"),
            ("8,0-2,3", 5, "0-3,8"),
            ("0,0", 1, "0"),
            ("63-64\n", 2, "63-64"),
            ("8191", 1, "8191"),
        ] {
            let set = CpuSet::read(text).unwrap_or_else(|| panic!("{text} is refused"));
            assert_eq!((set.len(), set.to_string().as_str()), (count, again));
        }
        for text in ["", ",", "0-", "-1", "3-1", "a", "+1", "8192", "0;1", "0 1"] {
            assert_eq!(CpuSet::read(text), None, "{text}");
        }
    }

    #[test]
    fn cpu_0_alone_is_written_so_that_pve_sees_it() {
        let of = |text: &str| CpuSet::read(text).expect("a list").affinity();
        assert_eq!([of("0"), of("0-1"), of("10")], ["0-0", "0-1", "10"]);
    }

    proptest::proptest! {
        #[test]
        fn sets_are_what_their_elements_say(
            one in proptest::collection::btree_set(0u16..200, 0..20),
            other in proptest::collection::btree_set(0u16..200, 0..20),
        ) {
            let (a, b): (CpuSet, CpuSet) = (one.iter().copied().collect(), other.iter().copied().collect());
            let of = |set: CpuSet| set.iter().collect::<Vec<u16>>();
            proptest::prop_assert_eq!(of(a.with(&b)), one.union(&other).copied().collect::<Vec<_>>());
            proptest::prop_assert_eq!(of(a.both(&b)), one.intersection(&other).copied().collect::<Vec<_>>());
            proptest::prop_assert_eq!(of(a.without(&b)), one.difference(&other).copied().collect::<Vec<_>>());
            proptest::prop_assert_eq!(a.within(&b), one.is_subset(&other));
            proptest::prop_assert_eq!(a.without(&a), CpuSet::new());
            if !a.is_empty() {
                proptest::prop_assert_eq!(CpuSet::read(&a.affinity()), Some(a));
            }
        }
    }
}
