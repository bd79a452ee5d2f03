//! A pod's labels in little memory: 150,000 pods may each have labels of their own.

use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::scheduling::Labels;

/// Labels in the order of their keys, in one allocation that copies share. They read and write as a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelList(Arc<[Label]>);

/// Key and value.
type Label = (Arc<str>, Arc<str>);

/// Labels that a selector can be asked of.
pub trait LabelSet {
    /// The value of a label.
    fn value(&self, key: &str) -> Option<&Arc<str>>;
}

impl LabelList {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// Whether there is a label of this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Keys and values in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a label. The list is made anew; copies keep theirs.
    pub fn insert(&mut self, key: Arc<str>, value: Arc<str>) {
        let mut all = self.0.to_vec();
        match self.find(&key) {
            Ok(at) => all[at].1 = value,
            Err(at) => all.insert(at, (key, value)),
        }
        self.0 = all.into();
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = LabelList::default();
    }

    /// The first of them, so many at most.
    pub fn truncate(&mut self, most: usize) {
        if self.len() > most {
            self.0 = self.0[..most].into();
        }
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(key))
    }
}

impl Default for LabelList {
    fn default() -> LabelList {
        LabelList(Arc::new([]))
    }
}

impl LabelSet for LabelList {
    fn value(&self, key: &str) -> Option<&Arc<str>> {
        self.get(key)
    }
}

impl LabelSet for Labels {
    fn value(&self, key: &str) -> Option<&Arc<str>> {
        self.get(key)
    }
}

impl From<Labels> for LabelList {
    fn from(labels: Labels) -> LabelList {
        LabelList(labels.into_iter().collect())
    }
}

impl<const N: usize> From<[Label; N]> for LabelList {
    fn from(labels: [Label; N]) -> LabelList {
        Labels::from(labels).into()
    }
}

impl FromIterator<Label> for LabelList {
    /// Collects labels; where a key comes more than once the last one counts.
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> LabelList {
        labels.into_iter().collect::<Labels>().into()
    }
}

impl Index<&str> for LabelList {
    type Output = Arc<str>;

    /// A label that must be there.
    ///
    /// # Panics
    ///
    /// When it is not.
    fn index(&self, key: &str) -> &Arc<str> {
        match self.get(key) {
            Some(value) => value,
            None => panic!("there is no label {key}"),
        }
    }
}

impl Serialize for LabelList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for LabelList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LabelList, D::Error> {
        Labels::deserialize(deserializer).map(LabelList::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(key: &str, value: &str) -> Label {
        (key.into(), value.into())
    }

    #[test]
    fn it_reads_and_writes_as_a_map() {
        let mut list: LabelList = [label("b", "2"), label("a", "1"), label("c", "3")].into();
        let copy = list.clone();
        list.insert("aa".into(), "4".into());
        list.insert("c".into(), "5".into());
        let text = r#"{"a":"1","aa":"4","b":"2","c":"5"}"#;
        assert_eq!(serde_json::to_string(&list).expect("text"), text);
        let read: LabelList = serde_json::from_str(text).expect("a map");
        assert_eq!(read, list);
        assert_eq!((&*copy["c"], copy.get("aa"), copy.len()), ("3", None, 3));
        assert!(list.contains_key("b") && !list.contains_key("d"));
        list.truncate(2);
        assert_eq!(
            serde_json::to_string(&list).expect("text"),
            r#"{"a":"1","aa":"4"}"#
        );
        list.clear();
        assert!(list.is_empty() && list.get("a").is_none());
    }
}
