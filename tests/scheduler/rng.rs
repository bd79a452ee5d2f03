//! Throws that a world is made of.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value, json};

/// A seeded generator with the few throws that are needed here.
#[derive(Debug)]
pub(crate) struct SeededRng(StdRng);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(StdRng::seed_from_u64(seed))
    }

    /// True in so many of a hundred throws.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100u32) < percent
    }

    /// From `low` to `high`, both included.
    pub(crate) fn number(&mut self, low: usize, high: usize) -> usize {
        self.0.random_range(low..=high)
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())].clone()
    }

    /// One to `most` different ones.
    pub(crate) fn some<T: Clone + PartialEq>(&mut self, of: &[T], most: usize) -> Vec<T> {
        let mut taken = Vec::new();
        for _ in 0..self.number(1, most) {
            let next = self.one(of);
            if !taken.contains(&next) {
                taken.push(next);
            }
        }
        taken
    }
}

/// The keys and values that labels and selectors are drawn from.
pub(crate) type Words = [(&'static str, &'static [&'static str])];

/// Each key of the words with that chance.
pub(crate) fn labels(rng: &mut SeededRng, words: &Words, percent: u32) -> Map<String, Value> {
    let mut labels = Map::new();
    for (key, values) in words {
        if rng.chance(percent) {
            labels.insert((*key).to_owned(), json!(rng.one(values)));
        }
    }
    labels
}

/// One requirement of a label selector or a node selector; `ordered` allows `Gt` and `Lt`.
pub(crate) fn requirement(rng: &mut SeededRng, words: &Words, ordered: bool) -> Value {
    let (key, values) = rng.one(words);
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let count = if ordered { 6 } else { 4 };
    match rng.one(&operators[..count]) {
        operator @ ("Exists" | "DoesNotExist") => json!({"key": key, "operator": operator}),
        operator @ ("Gt" | "Lt") => {
            let bound = rng.one(&["0", "1", "3", "5", "7"]);
            json!({"key": rng.one(&["size", key]), "operator": operator, "values": [bound]})
        }
        operator => {
            let values = rng.some(values, 2);
            json!({"key": key, "operator": operator, "values": values})
        }
    }
}

/// A label selector: sometimes empty, mostly one label.
pub(crate) fn selector(rng: &mut SeededRng, words: &Words) -> Value {
    let mut selector = Map::new();
    if rng.chance(10) {
        return Value::Object(selector);
    }
    if rng.chance(70) {
        let (key, values) = rng.one(words);
        selector.insert("matchLabels".into(), json!({key: rng.one(values)}));
    }
    if selector.is_empty() || rng.chance(20) {
        let requirement = requirement(rng, words, false);
        selector.insert("matchExpressions".into(), json!([requirement]));
    }
    Value::Object(selector)
}
