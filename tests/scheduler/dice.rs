//! Throws that a world is made of.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value, json};

/// A seeded generator with the few throws that are needed here.
#[derive(Debug)]
pub(crate) struct Dice(StdRng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(StdRng::seed_from_u64(seed))
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
pub(crate) fn labels(dice: &mut Dice, words: &Words, percent: u32) -> Map<String, Value> {
    let mut labels = Map::new();
    for (key, values) in words {
        if dice.chance(percent) {
            labels.insert((*key).to_owned(), json!(dice.one(values)));
        }
    }
    labels
}

/// One requirement of a label selector or a node selector; `ordered` allows `Gt` and `Lt`.
pub(crate) fn requirement(dice: &mut Dice, words: &Words, ordered: bool) -> Value {
    let (key, values) = dice.one(words);
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let count = if ordered { 6 } else { 4 };
    match dice.one(&operators[..count]) {
        operator @ ("Exists" | "DoesNotExist") => json!({"key": key, "operator": operator}),
        operator @ ("Gt" | "Lt") => {
            let bound = dice.one(&["0", "1", "3", "5", "7"]);
            json!({"key": dice.one(&["size", key]), "operator": operator, "values": [bound]})
        }
        operator => {
            let values = dice.some(values, 2);
            json!({"key": key, "operator": operator, "values": values})
        }
    }
}

/// A label selector: sometimes empty, mostly one label.
pub(crate) fn selector(dice: &mut Dice, words: &Words) -> Value {
    let mut selector = Map::new();
    if dice.chance(10) {
        return Value::Object(selector);
    }
    if dice.chance(70) {
        let (key, values) = dice.one(words);
        selector.insert("matchLabels".into(), json!({key: dice.one(values)}));
    }
    if selector.is_empty() || dice.chance(20) {
        let requirement = requirement(dice, words, false);
        selector.insert("matchExpressions".into(), json!([requirement]));
    }
    Value::Object(selector)
}
