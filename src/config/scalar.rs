//! The values of the file that are more than a TOML number or string: durations, sizes, quantities,
//! VMID ranges, taints, prices. Each reads from text, writes itself back, and says what it expects.

mod free_space;
mod pci;
mod threshold;
mod vm_option;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::cron::Cron;
use crate::model::disruption::{Saving, Share};
use crate::model::quantity::Quantity;
use crate::model::region::VMIDS;
use crate::model::scheduling::{Effect, Taint};
use crate::model::time::Span;

pub use free_space::FreeSpace;
pub use pci::PciText;
pub use threshold::Threshold;
pub use vm_option::VmOptionValue;

/// A value that is written as text in the file.
trait Scalar: Sized + fmt::Display {
    /// What the text must be, for errors and the schema.
    const EXPECTED: &'static str;
    /// A bare TOML number is read like its text.
    const NUMBERS: bool = false;
    /// What the schema calls this kind of value.
    const NAME: &'static str;
    /// Reads the text; `None` when it is not what is expected.
    fn read(text: &str) -> Option<Self>;
}

struct ScalarVisitor<T>(std::marker::PhantomData<T>);

impl<T: Scalar> ScalarVisitor<T> {
    fn number<E: de::Error>(number: &str, found: de::Unexpected<'_>) -> Result<T, E> {
        if T::NUMBERS {
            T::read(number).ok_or_else(|| E::custom(format!("expected {}", T::EXPECTED)))
        } else {
            Err(E::invalid_type(found, &T::EXPECTED))
        }
    }
}

impl<T: Scalar> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).ok_or_else(|| E::custom(format!("expected {}", T::EXPECTED)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        Self::number(&number.to_string(), de::Unexpected::Signed(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Self::number(&number.to_string(), de::Unexpected::Unsigned(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Self::number(&number.to_string(), de::Unexpected::Float(number))
    }
}

/// A number where the file may have a number, else text.
fn write_out<T: Scalar, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let text = value.to_string();
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(whole), _) if T::NUMBERS => serializer.serialize_i64(whole),
        (_, Ok(number)) if T::NUMBERS => serializer.serialize_f64(number),
        _ => serializer.serialize_str(&text),
    }
}

/// Gives a scalar its serde and schema forms.
macro_rules! in_the_file {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_any(ScalarVisitor(std::marker::PhantomData))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write_out(self, serializer)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                <$name as Scalar>::NAME.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                if <$name as Scalar>::NUMBERS {
                    json_schema!({ "type": ["string", "number"], "description": <$name as Scalar>::EXPECTED })
                } else {
                    json_schema!({ "type": "string", "description": <$name as Scalar>::EXPECTED })
                }
            }
        }
    )*};
}

in_the_file!(
    Duration, Size, Cpu, Amount, VmidRange, TaintText, Price, Ratio, Overcommit, NodeCount,
    MinSaving, Schedule, Threshold, FreeSpace
);

// Below the macro, which it uses.
mod addresses;

pub use addresses::{AddressList, read_net};

/// A span of time: `"10m"`, `"1h30m"`, `"45s"`, `"250ms"`, `"14d"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub Span);

impl Scalar for Duration {
    const EXPECTED: &'static str = "a duration such as \"10m\", \"1h30m\" or \"45s\", not negative";
    const NAME: &'static str = "duration";

    fn read(text: &str) -> Option<Duration> {
        let parsed: jiff::SignedDuration = text.parse().ok().or_else(|| of_days(text))?;
        let millis = i64::try_from(parsed.as_millis()).ok()?;
        let sub_millisecond = parsed.subsec_nanos() % 1_000_000 != 0;
        (millis >= 0 && !sub_millisecond).then_some(Duration(Span(millis)))
    }
}

/// A span with days or weeks in it, `"14d"`: a day has 24 hours.
fn of_days(text: &str) -> Option<jiff::SignedDuration> {
    let span: jiff::Span = text.parse().ok()?;
    let day = jiff::SpanRelativeTo::days_are_24_hours();
    span.to_duration(day).ok()
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// A size in bytes: `"4GiB"`, `"4Gi"`, `"4GB"`. A bare number is refused: PVE counts memory in MiB,
/// Kubernetes in bytes, and a reader cannot know which was meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub i64);

const BINARY: [(&str, i64); 4] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

impl Scalar for Size {
    const EXPECTED: &'static str =
        "a size with a unit, such as \"4GiB\" (or \"4Gi\") or \"512MiB\"";
    const NAME: &'static str = "size";

    fn read(text: &str) -> Option<Size> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, unit) = text.split_at(end);
        let short = unit
            .trim_start()
            .strip_suffix('B')
            .unwrap_or(unit.trim_start());
        let suffix = match short {
            "" if unit.trim_start() == "B" => "",
            "k" | "K" => "k",
            "Ki" | "M" | "Mi" | "G" | "Gi" | "T" | "Ti" => short,
            _ => return None,
        };
        let quantity: Quantity = format!("{number}{suffix}").parse().ok()?;
        Some(Size(quantity.units()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match BINARY
            .iter()
            .find(|(_, size)| self.0 != 0 && self.0 % size == 0)
        {
            Some((unit, size)) => write!(f, "{}{unit}B", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// CPU in thousandths of a core: `64`, `"1.5"`, `"500m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(pub i64);

impl Scalar for Cpu {
    const EXPECTED: &'static str = "a number of CPUs such as 64, 1.5 or \"500m\", not negative";
    const NUMBERS: bool = true;
    const NAME: &'static str = "cpu";

    fn read(text: &str) -> Option<Cpu> {
        let quantity: Quantity = text.parse().ok()?;
        (quantity.milli() >= 0).then_some(Cpu(quantity.milli()))
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 == 0 {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

/// A whole amount of an extended resource: `1`, `"2Gi"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub i64);

impl Scalar for Amount {
    const EXPECTED: &'static str = "a whole amount such as 1 or \"2Gi\", not negative";
    const NUMBERS: bool = true;
    const NAME: &'static str = "amount";

    fn read(text: &str) -> Option<Amount> {
        let quantity: Quantity = text.parse().ok()?;
        let whole = quantity.units().saturating_mul(1000) == quantity.milli()
            || quantity.units() > i64::MAX / 1000;
        (quantity.units() >= 0 && whole).then_some(Amount(quantity.units()))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// First and last VMID: `"9000-9999"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VmidRange {
    /// First.
    pub first: u32,
    /// Last, itself in the range.
    pub last: u32,
}

impl VmidRange {
    /// Whether a VMID lies in the range.
    pub fn contains(&self, vmid: u32) -> bool {
        (self.first..=self.last).contains(&vmid)
    }

    /// How many VMIDs it has.
    pub fn len(&self) -> u32 {
        self.last - self.first + 1
    }

    /// Never: a range has at least one VMID.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Scalar for VmidRange {
    const EXPECTED: &'static str =
        "a range of VMIDs such as \"9000-9999\", between 100 and 999999999, first not above last";
    const NAME: &'static str = "vmid-range";

    fn read(text: &str) -> Option<VmidRange> {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && VMIDS.contains(&first) && VMIDS.contains(&last))
            .then_some(VmidRange { first, last })
    }
}

impl fmt::Display for VmidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A taint: `"key=value:NoSchedule"` or `"key:NoExecute"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaintText(pub Taint);

impl Scalar for TaintText {
    const EXPECTED: &'static str = "a taint such as \"dedicated=gpu:NoSchedule\" or \"dedicated:NoExecute\", \
         its effect NoSchedule, PreferNoSchedule or NoExecute";
    const NAME: &'static str = "taint";

    fn read(text: &str) -> Option<TaintText> {
        let (rest, effect) = text.rsplit_once(':')?;
        let effect = match effect {
            "NoSchedule" => Effect::NoSchedule,
            "PreferNoSchedule" => Effect::PreferNoSchedule,
            "NoExecute" => Effect::NoExecute,
            _ => return None,
        };
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let valid = super::syntax::label_key(key) && super::syntax::label_value(value);
        valid.then(|| {
            TaintText(Taint {
                key: key.into(),
                value: value.into(),
                effect,
            })
        })
    }
}

impl fmt::Display for TaintText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taint { key, value, effect } = &self.0;
        if value.is_empty() {
            write!(f, "{key}:{effect:?}")
        } else {
            write!(f, "{key}={value}:{effect:?}")
        }
    }
}

/// A price per hour in any currency, kept in millionths: `0.035`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub i64);

impl Scalar for Price {
    const EXPECTED: &'static str = "a price per hour such as 0.035, not negative";
    const NUMBERS: bool = true;
    const NAME: &'static str = "price";

    fn read(text: &str) -> Option<Price> {
        millionths(text).map(Price)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 1_000_000)
    }
}

/// A share between 0 and 1, kept in thousandths: `0.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(pub i64);

impl Scalar for Ratio {
    const EXPECTED: &'static str = "a number between 0 and 1, such as 0.5";
    const NUMBERS: bool = true;
    const NAME: &'static str = "ratio";

    fn read(text: &str) -> Option<Ratio> {
        let millionths = millionths(text)?;
        (millionths <= 1_000_000 && millionths % 1000 == 0).then_some(Ratio(millionths / 1000))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 1000)
    }
}

/// How much more is promised than there is, kept in thousandths: `1.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overcommit(pub i64);

impl Scalar for Overcommit {
    const EXPECTED: &'static str =
        "a number from 0.1 to 100 with at most three decimals, such as 1.5";
    const NUMBERS: bool = true;
    const NAME: &'static str = "overcommit";

    fn read(text: &str) -> Option<Overcommit> {
        let millionths = millionths(text)?;
        let fine = (100_000..=100_000_000).contains(&millionths) && millionths % 1000 == 0;
        fine.then_some(Overcommit(millionths / 1000))
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, 1000)
    }
}

/// A number of nodes or a part of a pool: `3`, `"10%"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount(pub Share);

impl Scalar for NodeCount {
    const EXPECTED: &'static str = "a number of nodes such as 3, or a percentage such as \"10%\"";
    const NUMBERS: bool = true;
    const NAME: &'static str = "nodes";

    fn read(text: &str) -> Option<NodeCount> {
        let (digits, percent) = match text.strip_suffix('%') {
            Some(digits) => (digits.trim_end(), true),
            None => (text, false),
        };
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number: u32 = digits.parse().ok().filter(|_| plain)?;
        if percent {
            (number <= 100).then_some(NodeCount(Share::Percent(number)))
        } else {
            Some(NodeCount(Share::Nodes(number)))
        }
    }
}

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Share::Nodes(count) => write!(f, "{count}"),
            Share::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// What a replacement must save: `"15%"` of what it replaces, or a price per hour, `0.05`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinSaving(pub Saving);

impl Scalar for MinSaving {
    const EXPECTED: &'static str = "a percentage such as \"15%\", or a price per hour such as 0.05";
    const NUMBERS: bool = true;
    const NAME: &'static str = "saving";

    fn read(text: &str) -> Option<MinSaving> {
        let saving = match text.strip_suffix('%') {
            Some(percent) => {
                let share = millionths(percent.trim_end())?;
                let whole = share % 100_000 == 0 && share <= 100_000_000;
                Saving {
                    permille: Some(share / 100_000).filter(|_| whole)?,
                    price: 0,
                }
            }
            None => Saving {
                permille: 0,
                price: millionths(text)?,
            },
        };
        Some(MinSaving(saving))
    }
}

impl fmt::Display for MinSaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.price > 0 {
            return decimal(f, self.0.price, 1_000_000);
        }
        let (whole, tenths) = (self.0.permille / 10, self.0.permille % 10);
        match tenths {
            0 => write!(f, "{whole}%"),
            tenths => write!(f, "{whole}.{tenths}%"),
        }
    }
}

/// When a window opens, as cron writes it, in UTC: `"0 9 * * mon-fri"`, `"@daily"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(pub Cron);

impl Scalar for Schedule {
    const EXPECTED: &'static str = "a schedule as cron writes it, in UTC: minute, hour, day of the \
         month, month, day of the week, such as \"0 9 * * mon-fri\"";
    const NAME: &'static str = "schedule";

    fn read(text: &str) -> Option<Schedule> {
        text.parse().ok().map(Schedule)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A decimal number in millionths, digits beyond rounded up; no suffix.
fn millionths(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let quantity: Quantity = text.parse().ok()?;
    let scaled: Quantity = format!("{text}M").parse().ok()?;
    (plain && quantity.units() < i64::MAX / 2_000_000).then_some(scaled.units())
}

fn decimal(f: &mut fmt::Formatter<'_>, value: i64, parts: i64) -> fmt::Result {
    let digits = if parts == 1000 { 3 } else { 6 };
    let text = format!("{}.{:0digits$}", value / parts, value % parts);
    let trimmed = text.trim_end_matches('0').trim_end_matches('.');
    f.write_str(trimmed)
}

#[cfg(test)]
mod tests;
