//! Schedules as cron writes them, in UTC: `0 9 * * mon-fri`, `@daily`.
//!
//! Five fields: minute, hour, day of the month, month, day of the week. Each is `*`, a number, a name
//! (`jan`, `mon`), a range `a-b`, a step `*/n` or `a-b/n`, or a list of these. Sunday is 0 or 7. When
//! both days are given either will do, as in every cron. Source: crontab(5).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::time::{Span, Time};

const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;
/// The next run is searched for this many days: 29 February comes within eight years.
const HORIZON_DAYS: i64 = 8 * 366 + 1;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A schedule, in UTC: there is no summer time, so that every minute comes once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// The day of the month, or of the week, is `*`: the other alone decides.
    any_day: bool,
    any_weekday: bool,
}

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct CronError {
    why: String,
}

fn wrong<T>(why: String) -> Result<T, CronError> {
    Err(CronError { why })
}

/// What one field may hold.
struct Field {
    name: &'static str,
    first: u64,
    last: u64,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        first: 0,
        last: 59,
        names: &[],
    },
    Field {
        name: "hour",
        first: 0,
        last: 23,
        names: &[],
    },
    Field {
        name: "day of the month",
        first: 1,
        last: 31,
        names: &[],
    },
    Field {
        name: "month",
        first: 1,
        last: 12,
        names: &MONTHS,
    },
    Field {
        name: "day of the week",
        first: 0,
        last: 7,
        names: &DAYS,
    },
];

impl Field {
    fn value(&self, text: &str) -> Result<u64, CronError> {
        let named = self
            .names
            .iter()
            .position(|name| text.eq_ignore_ascii_case(name))
            .and_then(|at| u64::try_from(at).ok())
            .map(|at| at + self.first);
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = named.or_else(|| text.parse().ok().filter(|_| plain));
        match number {
            Some(number) if (self.first..=self.last).contains(&number) => Ok(number),
            _ => wrong(format!(
                "{text:?} is no {}: expected {} to {}",
                self.name, self.first, self.last
            )),
        }
    }

    /// The bits of one element of the field's list.
    fn element(&self, text: &str) -> Result<u64, CronError> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last),
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            // `5/15` means from 5 on.
            None if step.is_some() => (self.value(range)?, self.last),
            None => (self.value(range)?, self.value(range)?),
        };
        if from > to {
            return wrong(format!("{range:?} runs backwards"));
        }
        let step = match step {
            None => 1,
            Some(step) => match step.parse::<usize>() {
                Ok(number) if number > 0 => number,
                _ => return wrong(format!("{step:?} is no step: expected 1 or more")),
            },
        };
        Ok((from..=to)
            .step_by(step)
            .fold(0, |bits, value| bits | 1 << value))
    }

    fn bits(&self, text: &str) -> Result<u64, CronError> {
        text.split(',')
            .try_fold(0, |bits, element| Ok(bits | self.element(element)?))
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Cron, CronError> {
        let text = text.trim();
        let long = MACROS
            .iter()
            .find(|(short, _)| text.eq_ignore_ascii_case(short))
            .map_or(text, |(_, long)| long);
        let parts: Vec<&str> = long.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return wrong(format!(
                "{text:?} has {} fields: expected minute, hour, day of the month, month, day of the week",
                parts.len()
            ));
        };
        let weekdays = FIELDS[4].bits(weekday)?;
        let cron = Cron {
            text: text.to_owned(),
            minutes: FIELDS[0].bits(minute)?,
            hours: FIELDS[1].bits(hour)?,
            days: FIELDS[2].bits(day)?,
            months: FIELDS[3].bits(month)?,
            // 7 is Sunday too.
            weekdays: (weekdays | weekdays >> 7) & 0x7f,
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        };
        if cron.next(Time(0)).is_none() {
            return wrong(format!("{text:?} names a day that never comes"));
        }
        Ok(cron)
    }
}

impl Cron {
    /// The first run after `after`; `None` when there is none within eight years.
    pub fn next(&self, after: Time) -> Option<Time> {
        // A run is at a whole minute.
        let first = after.0.div_euclid(MINUTE_MS).checked_add(1)?;
        let (today, from) = (first.div_euclid(DAY_MINUTES), first.rem_euclid(DAY_MINUTES));
        for day in today..today.checked_add(HORIZON_DAYS)? {
            if !self.on_day(day) {
                continue;
            }
            let from = if day == today { from } else { 0 };
            if let Some(minute) = (from..DAY_MINUTES).find(|minute| self.at_minute(*minute)) {
                return day
                    .checked_mul(DAY_MINUTES)
                    .and_then(|minutes| minutes.checked_add(minute)?.checked_mul(MINUTE_MS))
                    .map(Time);
            }
        }
        None
    }

    /// The last run that is at most `within` ago, this very moment included.
    pub fn last(&self, now: Time, within: Span) -> Option<Time> {
        let mut found = None;
        let mut at = Time(now.0.saturating_sub(within.0));
        // Whoever asks wants to know whether a window that began is still open: any run will do, and
        // the latest keeps it open longest. A run every minute for a day is the most there is to walk.
        for _ in 0..=DAY_MINUTES {
            match self.next(at) {
                Some(next) if next <= now => (found, at) = (Some(next), next),
                _ => break,
            }
        }
        found
    }

    fn at_minute(&self, minute: i64) -> bool {
        self.hours >> (minute / 60) & 1 == 1 && self.minutes >> (minute % 60) & 1 == 1
    }

    /// Whether it runs on the day so many days after 1 January 1970.
    fn on_day(&self, day: i64) -> bool {
        let Some((month, date)) = civil(day) else {
            return false;
        };
        // 1 January 1970 was a Thursday.
        let weekday = self.weekdays >> (day + 4).rem_euclid(7) & 1 == 1;
        let by_date = self.days >> date & 1 == 1;
        let fits = match (self.any_day, self.any_weekday) {
            (false, false) => by_date || weekday,
            _ => by_date && weekday,
        };
        fits && self.months >> month & 1 == 1
    }
}

/// Month and day of the month.
fn civil(day: i64) -> Option<(i8, i8)> {
    let seconds = day.checked_mul(DAY_MINUTES * 60)?;
    let timestamp = jiff::Timestamp::from_second(seconds).ok()?;
    let date = jiff::tz::Offset::UTC.to_datetime(timestamp);
    Some((date.month(), date.day()))
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cron, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        let timestamp: jiff::Timestamp = text.parse().expect("a time");
        Time(timestamp.as_millisecond())
    }

    fn next(cron: &str, after: &str) -> String {
        let cron: Cron = cron.parse().unwrap_or_else(|e| panic!("{cron}: {e}"));
        cron.next(time(after)).expect("a run").to_string()
    }

    #[test]
    fn the_next_run_is_found() {
        // 20 November 2026 is a Friday.
        for (cron, after, run) in [
            ("* * * * *", "2026-11-20T10:00:00Z", "2026-11-20T10:01:00Z"),
            (
                "* * * * *",
                "2026-11-20T10:00:59.999Z",
                "2026-11-20T10:01:00Z",
            ),
            (
                "0 9 * * mon-fri",
                "2026-11-20T08:59:59Z",
                "2026-11-20T09:00:00Z",
            ),
            (
                "0 9 * * mon-fri",
                "2026-11-20T09:00:00Z",
                "2026-11-23T09:00:00Z",
            ),
            (
                "0 9 * * 1-5",
                "2026-11-21T00:00:00Z",
                "2026-11-23T09:00:00Z",
            ),
            ("0 9 * * 7", "2026-11-20T00:00:00Z", "2026-11-22T09:00:00Z"),
            (
                "0 9 * * Sun",
                "2026-11-20T00:00:00Z",
                "2026-11-22T09:00:00Z",
            ),
            (
                "*/15 * * * *",
                "2026-11-20T10:16:00Z",
                "2026-11-20T10:30:00Z",
            ),
            (
                "5/20 22-23 * * *",
                "2026-11-20T22:45:00Z",
                "2026-11-20T23:05:00Z",
            ),
            (
                "0,30 8,20 * * *",
                "2026-11-20T08:00:00Z",
                "2026-11-20T08:30:00Z",
            ),
            (
                "0 0 29 feb *",
                "2026-11-20T00:00:00Z",
                "2028-02-29T00:00:00Z",
            ),
            ("0 0 31 * *", "2026-11-20T00:00:00Z", "2026-12-31T00:00:00Z"),
            (
                "0 0 1-7 * mon",
                "2026-11-20T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                "0 0 * jan,jul *",
                "2026-11-20T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            ("@daily", "2026-12-31T23:59:00Z", "2027-01-01T00:00:00Z"),
            ("@hourly", "2026-12-31T23:59:00Z", "2027-01-01T00:00:00Z"),
            ("@weekly", "2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("30 2 * * *", "2026-03-29T01:59:00Z", "2026-03-29T02:30:00Z"),
        ] {
            assert_eq!(next(cron, after), run, "{cron} after {after}");
        }
    }

    #[test]
    fn no_hour_is_lost_or_doubled_over_a_year() {
        let cron: Cron = "30 2 * * *".parse().expect("a schedule");
        let mut at = time("2026-01-01T00:00:00Z");
        for _ in 0..365 {
            let next = cron.next(at).expect("a run");
            assert_eq!(next.0.rem_euclid(DAY_MINUTES * MINUTE_MS), 150 * MINUTE_MS);
            at = next;
        }
        assert_eq!(at, time("2026-12-31T02:30:00Z"));
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_a_reason() {
        for (text, says) in [
            ("", "has 0 fields"),
            ("* * * *", "has 4 fields"),
            ("* * * * * *", "has 6 fields"),
            ("60 * * * *", "is no minute: expected 0 to 59"),
            ("* 24 * * *", "is no hour"),
            ("* * 0 * *", "is no day of the month"),
            ("* * * 13 *", "is no month"),
            ("* * * * 8", "is no day of the week"),
            ("* * * * funday", "is no day of the week"),
            ("5-1 * * * *", "runs backwards"),
            ("*/0 * * * *", "is no step"),
            ("1,,2 * * * *", "is no minute"),
            ("+1 * * * *", "is no minute"),
            ("0 0 30 feb *", "never comes"),
        ] {
            let error = text.parse::<Cron>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_last_run_is_found_within_a_span() {
        let cron: Cron = "0 9 * * *".parse().expect("a schedule");
        let now = time("2026-11-20T12:00:00Z");
        assert_eq!(
            cron.last(now, Span(180 * MINUTE_MS + 1)),
            Some(time("2026-11-20T09:00:00Z"))
        );
        assert_eq!(cron.last(now, Span::minutes(180)), None, "half open");
        assert_eq!(
            cron.last(time("2026-11-20T09:00:00Z"), Span::minutes(1)),
            Some(time("2026-11-20T09:00:00Z"))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_time_is_read_without_panic(text in "[-*/,0-9a-z@ ]{0,20}", at in proptest::prelude::any::<i64>()) {
            if let Ok(cron) = text.parse::<Cron>() {
                let _ = (cron.next(Time(at)), cron.last(Time(at), Span::minutes(60)));
            }
        }

        #[test]
        fn a_run_is_later_and_on_the_minute(at in 0i64..4_000_000_000_000, minute in 0..60u8, hour in 0..24u8) {
            let cron: Cron = format!("{minute} {hour} * * *").parse().expect("a schedule");
            let next = cron.next(Time(at)).expect("a run");
            proptest::prop_assert!(next > Time(at) && next.0 - at <= DAY_MINUTES * MINUTE_MS);
            proptest::prop_assert_eq!(next.0 % (DAY_MINUTES * MINUTE_MS), (i64::from(hour) * 60 + i64::from(minute)) * MINUTE_MS);
        }
    }
}
