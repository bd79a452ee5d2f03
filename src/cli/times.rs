//! Points in time as people type and read them, by this host's time zone.

use anyhow::{Context as _, anyhow};
use jiff::civil::{Date, DateTime, Time as OfDay};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

use super::CliFailure;
use super::args::PartOptions;
use crate::clock::Clock;
use crate::model::time::Time;
use crate::record::Filter;

/// What stands between columns at least.
const GAP: &str = "  ";
/// What a point in time may be.
const EXPECTED: &str = "expected a time such as '2026-11-23 16:00', 16:00, 'yesterday 16:00', today or '2026-11-23T16:00:00Z', or how long ago, such as 24h or '2 days'";

/// Reads a point in time that was typed at `now`.
pub(super) fn read(text: &str, now: Time, zone: &TimeZone) -> anyhow::Result<Time> {
    let text = text.trim();
    let wrong = || anyhow!("{text:?} is no point in time; {EXPECTED}");
    let millis = |zoned: Zoned| Time(zoned.timestamp().as_millisecond());
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(Time(timestamp.as_millisecond()));
    }
    if let Ok(at) = text.parse::<DateTime>() {
        return Ok(millis(at.to_zoned(zone.clone()).with_context(wrong)?));
    }
    if let Ok(day) = text.parse::<Date>() {
        return Ok(millis(day.to_zoned(zone.clone()).with_context(wrong)?));
    }
    let here = Timestamp::from_millisecond(now.0).with_context(wrong)?;
    let here = here.to_zoned(zone.clone());
    if let Ok(number) = text.parse::<u64>() {
        let of_day = if number < 24 {
            format!("{text}:00, ")
        } else {
            String::new()
        };
        return Err(anyhow!(
            "{text:?} is no point in time: {of_day}{text}h or {text}min ago? {EXPECTED}"
        ));
    }
    if let Some(at) = day_and_time(text, here.date()) {
        return Ok(millis(at.to_zoned(zone.clone()).with_context(wrong)?));
    }
    let span = text.strip_suffix("ago").map_or(text, str::trim_end);
    let ago: Span = span.parse().map_err(|_| wrong())?;
    if ago.is_negative() {
        return Err(wrong());
    }
    Ok(millis(here.checked_sub(ago).with_context(wrong)?))
}

/// A day by its word, a time of day, or both in either order: `yesterday`, `16:00`, `yesterday 16:00`, `9:30 today`, `yesterday at 16:00`.
/// A day alone is its beginning, a time of day alone is one of today.
fn day_and_time(text: &str, today: Date) -> Option<DateTime> {
    let (mut day, mut clock) = (None, None);
    for word in text.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "today" if day.is_none() => day = Some(today),
            "yesterday" if day.is_none() => day = Some(today.yesterday().ok()?),
            "at" if day.is_some() && clock.is_none() => {}
            other if clock.is_none() => clock = Some(time_of_day(other)?),
            _ => return None,
        }
    }
    if day.is_none() && clock.is_none() {
        return None;
    }
    let clock = clock.unwrap_or(OfDay::midnight());
    Some(day.unwrap_or(today).to_datetime(clock))
}

/// A time of day: `9:00` is meant as it is said.
fn time_of_day(text: &str) -> Option<OfDay> {
    let two_digits = match text.find(':')? {
        1 => format!("0{text}"),
        _ => text.to_owned(),
    };
    two_digits.parse().ok()
}

/// The part of the record that is asked for.
///
/// # Errors
/// The command line has something else than points in time, or an end before its beginning.
pub(super) fn part(options: &PartOptions) -> Result<Filter, CliFailure> {
    part_at(options, Clock::System.now())
}

/// [`part`], where it is `now` by the clock of the daemon whose record it is.
///
/// # Errors
/// As of [`part`].
pub(super) fn part_at(options: &PartOptions, now: Time) -> Result<Filter, CliFailure> {
    filter(options, now).map_err(CliFailure::Usage)
}

fn filter(options: &PartOptions, now: Time) -> anyhow::Result<Filter> {
    let zone = TimeZone::system();
    let at = |text: &Option<String>, key| {
        let read = text.as_deref().map(|text| read(text, now, &zone));
        read.transpose().with_context(|| format!("--{key}"))
    };
    let (since, until) = (at(&options.since, "since")?, at(&options.until, "until")?);
    if let (Some(since), Some(until)) = (since, until)
        && since > until
    {
        return Err(anyhow!("--since {since} is after --until {until}"));
    }
    if let Some(since) = since.filter(|since| *since > now) {
        return Err(anyhow!(
            "--since {since} is in the future, and nothing is recorded of that; a time of day alone is one of today"
        ));
    }
    Ok(Filter {
        since,
        until,
        ..Filter::default()
    })
}

/// A point in time as it is read here: `2026-11-23 16:02:11`.
pub(super) fn local(at: Time, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(at.0) {
        Ok(timestamp) => timestamp
            .to_zoned(zone.clone())
            .strftime("%F %T")
            .to_string(),
        Err(_) => at.to_string(),
    }
}

/// A text for people: each point in time that a sentence of it names, such as `2026-01-01T08:07:11.997Z`, by the clock of a zone, as
/// `history` has them. What stands in columns behind it stays where it was, and so does what is meant to be copied: what is in backticks, and a
/// value in quotes, as in the line of a mark.
pub(super) fn in_zone(text: &str, zone: &TimeZone) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (mut rest, mut owed) = (line, 0);
        while let Some((at, time, length)) = Time::find_in(rest) {
            out.push_str(&padded(&rest[..at], &mut owed));
            let begin = line.len() - rest.len() + at;
            if is_to_copy(line, begin, begin + length) {
                out.push_str(&rest[at..at + length]);
                rest = &rest[at + length..];
                continue;
            }
            let shown = local(time, zone);
            owed += length.saturating_sub(shown.len());
            out.push_str(&shown);
            rest = &rest[at + length..];
        }
        out.push_str(&padded(rest, &mut owed));
    }
    out
}

/// Whether what stands in a line from `begin` to `end` is part of a text in backticks, or all of one in quotes: every byte of it counts.
fn is_to_copy(line: &str, begin: usize, end: usize) -> bool {
    let (before, behind) = (&line[..begin], &line[end..]);
    let ticked = before.matches('`').count() % 2 == 1 && behind.contains('`');
    ticked || before.ends_with('"') && behind.starts_with('"')
}

/// A text whose first gap between columns is wider by what is owed to them.
fn padded(text: &str, owed: &mut usize) -> String {
    match text.find(GAP).filter(|_| *owed > 0) {
        Some(at) => {
            let gap = " ".repeat(std::mem::take(owed));
            format!("{}{gap}{}", &text[..at], &text[at..])
        }
        None => text.to_owned(),
    }
}

/// How far the zone is from UTC now, for a heading: `UTC`, `+01:00`.
pub(super) fn zone_name(zone: &TimeZone) -> String {
    let now = Timestamp::from_millisecond(Clock::System.now().0).unwrap_or_default();
    let offset = zone.to_offset(now);
    if offset.seconds() == 0 {
        return "UTC".to_owned();
    }
    let minutes = SignedDuration::from_secs(i64::from(offset.seconds())).as_mins();
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_sentences_are_those_of_the_zone() {
        let berlin = TimeZone::get("Europe/Berlin").expect("a zone");
        for (text, wanted) in [
            (
                "kept until 2026-01-01T08:07:11.997Z.\n",
                "kept until 2026-01-01 09:07:11.\n",
            ),
            ("2026-07-01T22:00:00Z", "2026-07-02 00:00:00"),
            (
                "  a, since 2026-01-01T08:07:11.997Z  yes\n  b                               no\n",
                "  a, since 2026-01-01 09:07:11       yes\n  b                               no\n",
            ),
            (
                "since 2026-01-01T08:07:11Z `{\"a\":1,\"at\":\"2026-01-01T08:07:11.997Z\"}` and `f --at 2026-01-01T08:07:11Z` until 2026-01-01T08:07:11Z\n",
                "since 2026-01-01 09:07:11 `{\"a\":1,\"at\":\"2026-01-01T08:07:11.997Z\"}` and `f --at 2026-01-01T08:07:11Z` until 2026-01-01 09:07:11\n",
            ),
            (
                "odd ` and {\"at\":\"2026-01-01T08:07:11Z\"} 2026-01-01T08:07:11Z\n",
                "odd ` and {\"at\":\"2026-01-01T08:07:11Z\"} 2026-01-01 09:07:11\n",
            ),
            ("Z, 12Z and a-Z\n", "Z, 12Z and a-Z\n"),
            ("äZ 2026-01-01T08:07:11Zä", "äZ 2026-01-01 09:07:11ä"),
        ] {
            assert_eq!(in_zone(text, &berlin), wanted);
        }
    }

    #[test]
    fn what_is_to_come_is_in_no_record() {
        let part = |since: &str, until: &str| {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            let options = PartOptions {
                since: some(since),
                until: some(until),
            };
            filter(&options, Clock::System.now())
        };
        let error = part("2999-01-01", "").expect_err("it is to come");
        assert!(error.to_string().contains("is in the future"), "{error}");
        for (since, until) in [("", ""), ("1h", "2999-01-01"), ("0s", "")] {
            assert!(part(since, until).is_ok(), "{since} {until}");
        }
    }

    #[test]
    fn a_time_is_read_as_people_type_it() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let now = read("2026-11-24T12:00:00Z", Time(0), &zone).expect("a time");
        let at = |text: &str| read(text, now, &zone).map(|time| time.to_string());
        for (text, time) in [
            ("2026-11-23 16:00", "2026-11-23T15:00:00Z"),
            ("2026-11-23T16:00:30", "2026-11-23T15:00:30Z"),
            ("2026-11-23T16:00:00Z", "2026-11-23T16:00:00Z"),
            ("2026-11-23", "2026-11-22T23:00:00Z"),
            ("06:30", "2026-11-24T05:30:00Z"),
            ("24h", "2026-11-23T12:00:00Z"),
            ("2 days", "2026-11-22T12:00:00Z"),
            ("1h30m", "2026-11-24T10:30:00Z"),
            ("1 hour ago", "2026-11-24T11:00:00Z"),
            ("9:05", "2026-11-24T08:05:00Z"),
            ("Yesterday", "2026-11-22T23:00:00Z"),
            ("today", "2026-11-23T23:00:00Z"),
            ("yesterday 16:00", "2026-11-23T15:00:00Z"),
            ("  yesterday   9:30 ", "2026-11-23T08:30:00Z"),
            ("16:00 yesterday", "2026-11-23T15:00:00Z"),
            ("Yesterday at 16:00:30", "2026-11-23T15:00:30Z"),
            ("today 8:15", "2026-11-24T07:15:00Z"),
        ] {
            assert_eq!(at(text).expect(text), time, "{text}");
        }
        for wrong in [
            "",
            "ago",
            "tomorrow",
            "-2h",
            "-2h ago",
            "25:00",
            ":30",
            "2026-13-01",
            "16",
            "600",
            "yesterday today",
            "yesterday 25:00",
            "16:00 17:00",
            "at 16:00",
            "yesterday 16",
            "tomorrow 16:00",
        ] {
            let error = at(wrong).expect_err(wrong);
            assert!(error.to_string().contains("no point in time"), "{error}");
        }
        assert_eq!(local(now, &zone), "2026-11-24 13:00:00");
        assert_eq!(zone_name(&zone), "+01:00");
    }
}
