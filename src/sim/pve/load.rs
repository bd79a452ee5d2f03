//! What a host tells of its load of the last hour, minute by minute.

use serde_json::{Value, json};

use super::releases::Release;
use super::world::{OwnLoad, PveWorld, SimHost};
use crate::model::time::{Span, Time};

/// Rows of an hour.
const ROWS: i64 = 60;

impl SimHost {
    /// Notes how loaded it is from now on.
    pub(super) fn loaded(&mut self, now: Time, pressure: [u32; 3]) {
        self.loads.push(OwnLoad {
            since: now,
            cpu: self.cpu_permille,
            memory: self.own_memory,
            pressure,
        });
    }

    /// How loaded it was at a time.
    fn load_at(&self, at: Time) -> (u32, u64, [u32; 3]) {
        let mut before = self.loads.iter().rev();
        let load = before.find(|load| load.since <= at);
        load.map_or((20, 2 * super::GIB, [0; 3]), |load| {
            (load.cpu, load.memory, load.pressure)
        })
    }
}

impl PveWorld {
    /// `rrddata` of a host; the minute that is not over has no numbers yet. PVE tells pressure from version 9 on.
    pub(super) fn rrddata(&self, name: &str, now: Time) -> Value {
        let Some(host) = self.hosts.get(name) else {
            return Value::Null;
        };
        let guests = self.memory_used(name).saturating_sub(host.own_memory);
        let pressure = self.release() >= Release::Nine;
        let this = now.0 - now.0.rem_euclid(60_000);
        let rows = (0..ROWS).rev().map(|back| {
            let at = Time(this) - Span::minutes(back);
            let mut row = json!({ "time": at.0 / 1_000 });
            if back == 0 {
                return row;
            }
            let (cpu, memory, waits) = host.load_at(at);
            row["cpu"] = json!(f64::from(cpu) / 1000.0);
            row["maxcpu"] = json!(host.spec.cpus);
            row["memused"] = json!(memory + guests);
            row["memtotal"] = json!(host.spec.memory);
            if pressure {
                let keys = ["pressurecpusome", "pressurememorysome", "pressureiosome"];
                for (key, waits) in keys.into_iter().zip(waits) {
                    row[key] = json!(f64::from(waits) / 10.0);
                }
            }
            row
        });
        Value::Array(rows.collect())
    }
}
