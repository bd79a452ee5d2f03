//! A value that copies share until one of them is changed: the daemon copies its view in every turn,
//! and most of it is as it was.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One allocation for all copies. Whoever changes one makes that one anew, and the others stay as they
/// were. It reads and writes as the value itself.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shared<T>(Arc<T>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_no_copy() {
        let before = Shared::from(vec![1]);
        let mut after = before.clone();
        assert!(Arc::ptr_eq(&before.0, &after.0));
        after.push(2);
        assert_eq!((&*before, &*after), (&vec![1], &vec![1, 2]));
    }

    #[test]
    fn it_reads_and_writes_as_the_value() {
        let text = serde_json::to_string(&Shared::from(vec![1, 2])).expect("text");
        assert_eq!(text, "[1,2]");
        let read: Shared<Vec<u8>> = serde_json::from_str(&text).expect("a list");
        assert_eq!(*read, [1, 2]);
    }
}
