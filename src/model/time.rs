//! Points in time and spans, in whole milliseconds.

use std::fmt;
use std::ops::{Add, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time: milliseconds since the Unix epoch, UTC. Serialises as RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Time(pub i64);

/// A span of time in milliseconds; never negative when it comes from the configuration.
/// Serialises as a whole number of milliseconds.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Span(pub i64);

impl Time {
    /// The span since `earlier`; zero when `earlier` lies in the future (a clock that was set back
    /// may delay an action, never hasten one).
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0))
    }

    /// The first point in time that a text names in the form of RFC 3339 with `Z`, as reasons do: the byte at which it begins, which it
    /// is, and its length in bytes.
    pub fn find_in(text: &str) -> Option<(usize, Time, usize)> {
        let mut ends = text.match_indices('Z').map(|(at, _)| at + 1);
        ends.find_map(|end| {
            let allowed = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
            let begin = text[..end].rfind(|c: char| !allowed(c));
            let begin = begin.map_or(0, |at| {
                at + text[at..].chars().next().map_or(1, char::len_utf8)
            });
            let timestamp: jiff::Timestamp = text[begin..end].parse().ok()?;
            Some((begin, Time(timestamp.as_millisecond()), end - begin))
        })
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of whole seconds.
    pub const fn seconds(seconds: i64) -> Span {
        Span(seconds * 1_000)
    }

    /// A span of whole minutes.
    pub const fn minutes(minutes: i64) -> Span {
        Span(minutes * 60_000)
    }

    /// A Go duration such as `30s`, `1m30s`, `1.5h`, `500ms`; what is less than a millisecond is left out.
    pub fn from_go(text: &str) -> Option<Span> {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let (mut rest, mut sum) = (text, 0i128);
        while !rest.is_empty() {
            let end = rest.find(|c| !number(c)).filter(|end| *end > 0)?;
            let (amount, tail) = rest.split_at(end);
            let (unit, tail) = tail.split_at(tail.find(number).unwrap_or(tail.len()));
            let unit: i128 = match unit {
                "ns" => 1,
                "us" | "µs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return None,
            };
            let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
            let scale = 10i128.checked_pow(u32::try_from(part.len()).ok()?)?;
            let digits = format!("{whole}{part}").parse::<i128>().ok()?;
            sum = sum.checked_add(digits.checked_mul(unit)? / scale)?;
            rest = tail;
        }
        let millis = i64::try_from(sum / 1_000_000).ok()?;
        (!text.is_empty()).then_some(Span(millis))
    }

    /// The span as the standard library's duration; a negative span is zero.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(self.0).unwrap_or(0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Display for Span {
    /// The way people write spans: `1h30m`, `10m`, `45s`, `250ms`. From ten seconds on milliseconds are left out, but in `{:#}`,
    /// which reads back as it was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut written) = (self.0, false);
        if rest < 0 {
            write!(f, "-")?;
            rest = rest.saturating_neg();
        }
        if rest >= 10_000 && !f.alternate() {
            rest -= rest % 1_000;
        }
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
                written = true;
            }
        }
        if written { Ok(()) } else { write!(f, "0s") }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // What no date can tell is written as the nearest that one can: what is written can be read again.
        let [first, last] = [jiff::Timestamp::MIN, jiff::Timestamp::MAX];
        let told = self
            .0
            .clamp(first.as_second() * 1_000, last.as_second() * 1_000);
        serializer.collect_str(&Time(told))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<jiff::Timestamp>()
            .map(|timestamp| Time(timestamp.as_millisecond()))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        for (span, text) in [
            (Span::ZERO, "0s"),
            (Span::minutes(90), "1h30m"),
            (Span::seconds(45), "45s"),
            (Span(250), "250ms"),
            (Span(9_999), "9s999ms"),
            (Span(82_777), "1m22s"),
            (Span(-82_777), "-1m22s"),
        ] {
            assert_eq!(span.to_string(), text);
        }
        assert_eq!(format!("{:#}", Span(82_777)), "1m22s777ms");
    }

    #[test]
    fn a_time_survives_its_text_form() {
        let time = Time(1_795_000_000_123);
        let text = serde_json::to_string(&time).expect("a time serialises");
        assert_eq!(
            serde_json::from_str::<Time>(&text).expect("and parses"),
            time
        );
    }

    #[test]
    fn a_clock_set_back_yields_no_age() {
        assert_eq!(Time(5).since(Time(9)), Span::ZERO);
    }

    #[test]
    fn go_durations_are_read() {
        assert_eq!(Span::from_go("30s"), Some(Span::seconds(30)));
        assert_eq!(Span::from_go("1m30s"), Some(Span::seconds(90)));
        assert_eq!(Span::from_go("250ms"), Some(Span(250)));
        assert_eq!(Span::from_go("1.5h"), Some(Span::minutes(90)));
        assert_eq!(Span::from_go(".5m2000us"), Some(Span(30_002)));
        for text in [
            "",
            "s",
            "30",
            "1x",
            "-5s",
            "1.2.3s",
            ".s",
            "99999999999999999999h",
        ] {
            assert_eq!(Span::from_go(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_time_that_is_written_can_be_read_again() {
        for millis in [
            i64::MIN,
            -377_705_034_001_000,
            0,
            1_767_255_280_719,
            i64::MAX,
        ] {
            let text = serde_json::to_string(&Time(millis)).expect("it is written");
            let read: Time = serde_json::from_str(&text).expect("it is read");
            let usual = (0..1 << 50).contains(&millis);
            assert!(!usual || read == Time(millis), "{text}");
        }
    }
}
