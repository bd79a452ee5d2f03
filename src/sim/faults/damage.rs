//! Answers that come damaged: what a bug of PVE's, of a proxy or of a plugin makes of a true answer.
//!
//! What no reader could see is left out: a row that is not there at all, one number for another, a list that is empty.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::header;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value, json};

/// Most of an answer that is damaged, in bytes.
const MOST: usize = 16 << 20;
/// Texts that no reader expects where a name, a number or a word should be.
const TEXTS: [&str; 6] = [
    "",
    "-1",
    "9223372036854775808",
    "1e308",
    "a\0b\u{1b}[2J\u{202e}\nWATCHDOG=1",
    "\u{e2}\u{80}\u{9c}",
];

/// What is done to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DamageKind {
    Null,
    Absent,
    Empty,
    Negative,
    Huge,
    /// A number as a text.
    Text,
    /// A text as a number.
    Number,
    OddText,
    OtherType,
    /// A control character in a text.
    Control,
    /// A row stands twice.
    Doubled,
    /// Another guest's row stands under this one's VMID.
    Misplaced,
    /// Another guest's answer to the same question.
    Another,
}

const WAYS: [DamageKind; 13] = [
    DamageKind::Null,
    DamageKind::Absent,
    DamageKind::Empty,
    DamageKind::Negative,
    DamageKind::Huge,
    DamageKind::Text,
    DamageKind::Number,
    DamageKind::OddText,
    DamageKind::OtherType,
    DamageKind::Control,
    DamageKind::Doubled,
    DamageKind::Misplaced,
    DamageKind::Another,
];

/// One row of PVE's lists that comes damaged every time.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoilt {
    /// The row's `id`, such as `qemu/300`.
    pub id: String,
    /// What of it is damaged.
    pub key: &'static str,
    /// What stands there.
    pub value: Value,
}

/// Damages the rows of a list.
pub(super) fn spoil(data: &mut Value, spoilt: &[Spoilt]) {
    for row in data.as_array_mut().into_iter().flatten() {
        let of_it = |spoilt: &&Spoilt| row.get("id").is_some_and(|id| *id == *spoilt.id);
        let found: Vec<&Spoilt> = spoilt.iter().filter(of_it).collect();
        for spoilt in found {
            row[spoilt.key] = spoilt.value.clone();
        }
    }
}

/// Damages answers, by seeded random numbers.
#[derive(Debug)]
pub struct Damager {
    rng: StdRng,
    /// The last true answers of which each is of one VM, by the names of their fields.
    last: BTreeMap<&'static str, Value>,
}

/// A step to a value inside another.
#[derive(Clone, Debug)]
enum At {
    Key(String),
    Index(usize),
}

impl Damager {
    /// Damages by random numbers of this seed.
    pub fn new(seed: u64) -> Damager {
        Damager {
            rng: StdRng::seed_from_u64(seed),
            last: BTreeMap::new(),
        }
    }

    /// Damages an answer's data in one to three places.
    pub fn damage(&mut self, data: &mut Value) {
        // A VM's status names its VMID, a VM's configuration does not.
        let mut kinds = ["qmpstatus", "digest"].into_iter();
        let kind = kinds.find(|key| data.get(key).is_some());
        let another = kind.and_then(|kind| self.last.insert(kind, data.clone()));
        for _ in 0..self.rng.random_range(1..=3) {
            let mut places = Vec::new();
            collect(data, &mut Vec::new(), &mut places);
            let Some(place) = places.choose(&mut self.rng).cloned() else {
                return;
            };
            let Some(&way) = WAYS.choose(&mut self.rng) else {
                return;
            };
            match (way, &another) {
                (DamageKind::Another, Some(another)) => data.clone_from(another),
                _ => self.at(data, &place, way),
            }
        }
    }

    fn at(&mut self, data: &mut Value, place: &[At], way: DamageKind) {
        let Some((last, above)) = place.split_last() else {
            return self.whole(data, way);
        };
        let mut holder = data;
        for step in above {
            let next = match step {
                At::Key(key) => holder.get_mut(key),
                At::Index(index) => holder.get_mut(index),
            };
            let Some(next) = next else { return };
            holder = next;
        }
        match (holder, last) {
            (Value::Object(map), At::Key(key)) => self.field(map, key, way),
            (Value::Array(rows), At::Index(index)) => self.row(rows, *index, way),
            _ => {}
        }
    }

    /// The answer itself. That it is an empty list no reader could see.
    fn whole(&mut self, data: &mut Value, way: DamageKind) {
        if way != DamageKind::Empty || !data.is_array() {
            self.value(data, way);
        }
    }

    fn field(&mut self, map: &mut Map<String, Value>, key: &str, way: DamageKind) {
        match way {
            DamageKind::Absent => drop(map.remove(key)),
            _ => {
                if let Some(value) = map.get_mut(key) {
                    self.value(value, way);
                }
            }
        }
    }

    fn row(&mut self, rows: &mut Vec<Value>, index: usize, way: DamageKind) {
        let other = self.rng.random_range(0..rows.len().max(1));
        let (Some(row), Some(other)) = (rows.get(index).cloned(), rows.get(other).cloned()) else {
            return;
        };
        match way {
            DamageKind::Doubled => rows.push(row),
            DamageKind::Misplaced if row.get("vmid").is_some() && other.get("vmid").is_some() => {
                let mut misplaced = other;
                misplaced["vmid"] = row["vmid"].clone();
                if self.rng.random_bool(0.5) {
                    misplaced["id"] = row["id"].clone();
                }
                if self.rng.random_bool(0.5) {
                    rows.push(misplaced);
                } else {
                    rows[index] = misplaced;
                }
            }
            _ => self.value(&mut rows[index], way),
        }
    }

    fn value(&mut self, value: &mut Value, way: DamageKind) {
        let pick = |rng: &mut StdRng, from: &[Value]| from.choose(rng).cloned().unwrap_or_default();
        let new = match (way, &*value) {
            (DamageKind::Null | DamageKind::Absent, _) => Value::Null,
            (DamageKind::Empty, Value::Array(_)) => json!([]),
            (DamageKind::Empty, Value::Object(_)) => json!({}),
            (DamageKind::Empty, _) => json!(""),
            (DamageKind::Negative, _) => {
                pick(&mut self.rng, &[json!(-1), json!(i64::MIN), json!(-0.5)])
            }
            (DamageKind::Huge, _) => pick(
                &mut self.rng,
                &[json!(u64::MAX), json!(i64::MAX), json!(1e300)],
            ),
            (DamageKind::Text, Value::Number(number)) => json!(number.to_string()),
            (DamageKind::Number, Value::String(text)) => match text.parse::<i64>() {
                Ok(number) => json!(number),
                Err(_) => json!(text.len()),
            },
            (DamageKind::Control, Value::String(text)) => {
                let mut cut = self.rng.random_range(0..=text.len());
                while !text.is_char_boundary(cut) {
                    cut -= 1;
                }
                json!(format!("{}\0\u{7}{}", &text[..cut], &text[cut..]))
            }
            (DamageKind::OtherType, Value::Object(_)) => json!([value]),
            (DamageKind::OtherType, Value::Array(rows)) => json!({ "rows": rows.len() }),
            (DamageKind::OtherType, _) => pick(
                &mut self.rng,
                &[
                    json!([]),
                    json!({}),
                    json!(true),
                    json!([[0]]),
                    json!({"0": 1}),
                ],
            ),
            _ => json!(TEXTS.choose(&mut self.rng)),
        };
        *value = new;
    }
}

/// The places of a value and of all that is in it.
fn collect(value: &Value, here: &mut Vec<At>, places: &mut Vec<Vec<At>>) {
    places.push(here.clone());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                here.push(At::Key(key.clone()));
                collect(inner, here, places);
                here.pop();
            }
        }
        Value::Array(rows) => {
            for (index, inner) in rows.iter().enumerate() {
                here.push(At::Index(index));
                collect(inner, here, places);
                here.pop();
            }
        }
        _ => {}
    }
}

/// The answer with its data damaged. What is no answer with data is left alone.
pub(super) async fn of(answer: Response, damage: impl FnOnce(&mut Value)) -> Response {
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MOST).await else {
        return super::broken();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = damaged(&body, damage).map_or(Body::from(body), Body::from);
    Response::from_parts(parts, body)
}

fn damaged(body: &Bytes, damage: impl FnOnce(&mut Value)) -> Option<String> {
    let mut answer: Value = serde_json::from_slice(body).ok()?;
    damage(answer.get_mut("data").filter(|data| !data.is_null())?);
    Some(answer.to_string())
}
