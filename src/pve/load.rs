//! How loaded a host was of late, out of the round-robin database that PVE keeps of it.

use serde_json::Value;

use super::perl;
use crate::model::region::HostLoad;

/// Rows of a minute that are averaged.
const MINUTES: usize = 5;
/// Rows at the end that may have no numbers yet: PVE writes those of a minute after it is over.
const EMPTY: usize = 3;
/// Minutes that must have numbers for an average of them.
const LEAST: usize = 3;

/// A number of PVE's that lies within what it can be, in thousandths of `whole`.
fn permille(value: Option<f64>, whole: f64) -> Option<f64> {
    let part = value? / whole * 1000.0;
    (0.0..=1000.5).contains(&part).then_some(part)
}

/// Reads the data of `GET /nodes/{node}/rrddata?timeframe=hour&cf=AVERAGE`: what each number was on average.
pub(super) fn read(data: &Value) -> HostLoad {
    let mut rows: Vec<&Value> = data.as_array().into_iter().flatten().collect();
    rows.sort_by_key(|row| row.get("time").and_then(perl::integer));
    let number = |row: &Value, key: &str| row.get(key).and_then(perl::number);
    let newest = || rows.iter().rev().take(MINUTES + EMPTY).copied();
    let average = |of: &dyn Fn(&Value) -> Option<f64>| {
        let known: Vec<f64> = newest().filter_map(of).take(MINUTES).collect();
        if known.len() < LEAST {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "there are five at most")]
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        #[expect(clippy::cast_possible_truncation, reason = "it is 0 to 1000")]
        let rounded = mean.round() as i64;
        Some(rounded)
    };
    // The kernel tells percent of the time.
    let pressure = |key: &'static str| average(&|row| permille(number(row, key), 100.0));
    HostLoad {
        cpu: average(&|row| permille(number(row, "cpu"), 1.0)),
        memory: average(&|row| {
            let total = number(row, "memtotal").filter(|total| *total > 0.0)?;
            permille(number(row, "memused"), total)
        }),
        cpu_pressure: pressure("pressurecpusome"),
        memory_pressure: pressure("pressurememorysome"),
        io_pressure: pressure("pressureiosome"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(minute: i64, cpu: f64) -> Value {
        json!({
            "time": 1_760_000_000 + minute * 60, "cpu": cpu, "memtotal": 200.0, "memused": 50, "loadavg": 3.1,
            "pressurecpusome": "12.5", "pressureiosome": 0,
        })
    }

    #[test]
    fn the_last_five_minutes_are_averaged() {
        let mut rows: Vec<Value> = (0..60).map(|minute| row(minute, 0.1)).collect();
        // A peak of a minute, and one long ago.
        rows[57] = row(57, 0.9);
        rows[10] = row(10, 1.0);
        rows[59] = json!({ "time": 1_760_000_000 + 59 * 60 });
        let load = read(&Value::Array(rows.clone()));
        assert_eq!(load.cpu, Some(260));
        assert_eq!(load.memory, Some(250));
        assert_eq!((load.cpu_pressure, load.io_pressure), (Some(125), Some(0)));
        assert_eq!(load.memory_pressure, None, "PVE 8 has none");
        rows.reverse();
        assert_eq!(read(&Value::Array(rows)), load, "their order tells nothing");
    }

    #[test]
    fn what_cannot_be_is_not_known() {
        for damaged in [
            json!([]),
            Value::Null,
            json!([1, "x", null]),
            json!([row(1, 0.1), row(2, 0.1)]),
            Value::Array((0..60).map(|minute| row(minute, -1.0)).collect()),
            Value::Array((0..60).map(|minute| row(minute, 1e300)).collect()),
        ] {
            assert_eq!(read(&damaged).cpu, None, "{damaged}");
        }
        // The rows stopped long ago: what was then is not what is.
        let mut stopped: Vec<Value> = (0..60).map(|minute| row(minute, 0.1)).collect();
        for row in &mut stopped[50..] {
            row["cpu"] = Value::Null;
        }
        assert_eq!(read(&Value::Array(stopped)).cpu, None);
    }
}
