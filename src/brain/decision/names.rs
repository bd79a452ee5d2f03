//! Names of new machines: `POOL-xxxxx`, unlike any other, from a hash and not from chance, so that
//! the same view yields the same plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::decision::turn::DecisionBuilder;

/// Letters that make no words and are not mistaken for one another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters of a bootstrap token's public part.
const TOKEN_LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Letters at the end of a name.
const TAIL_LETTERS: usize = 5;
/// Length of a token id.
const TOKEN_ID_LETTERS: usize = 6;
/// Longest DNS label.
const MAX_LABEL_LETTERS: usize = 63;
/// A name that is taken is tried anew so many times. With 27^5 endings a pool of a thousand machines
/// needs a second try once in ten thousand names.
pub(crate) const TRIES: u32 = 64;

/// The part of a machine's name that stands for its pool.
fn head(pool: &str) -> String {
    pool.chars()
        .take(MAX_LABEL_LETTERS - TAIL_LETTERS - 1)
        .collect()
}

/// Whether a name is such as machines of a pool have.
pub(crate) fn is_of_pool(name: &str, pool: &str) -> bool {
    let tail = name.strip_prefix(&head(pool));
    let tail = tail.and_then(|tail| tail.strip_prefix('-'));
    tail.is_some_and(|tail| {
        tail.len() == TAIL_LETTERS && tail.bytes().all(|letter| LETTERS.contains(&letter))
    })
}

/// What new machines may not take.
#[derive(Debug)]
pub(crate) struct Taken {
    names: BTreeSet<Arc<str>>,
    tokens: BTreeSet<String>,
}

impl Taken {
    /// Names of machines, nodes and VMs; token ids of machines.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> Taken {
        let snapshot = turn.view.snapshot;
        let vms = snapshot.regions.values();
        let vms = vms.flat_map(|region| region.vms.values().map(|vm| &vm.name));
        let names = snapshot.machines.keys();
        let names = names.chain(snapshot.cluster.nodes.keys()).chain(vms);
        let machines = snapshot.machines.values();
        Taken {
            names: names.cloned().collect(),
            tokens: machines.map(|machine| machine.mark.token.clone()).collect(),
        }
    }

    /// A name and a token id that nothing has, or `None` when none was found (never, in practice).
    pub(crate) fn fresh(
        &mut self,
        turn: &mut DecisionBuilder<'_>,
        pool: &str,
    ) -> Option<(Arc<str>, String)> {
        turn.memory.serial = turn.memory.serial.saturating_add(1);
        let cluster = turn.view.snapshot.cluster_id.as_deref().unwrap_or_default();
        let head = head(pool);
        for attempt in 0..TRIES {
            let seed = format!(
                "{cluster}\n{pool}\n{}\n{}\n{attempt}",
                turn.memory.serial, turn.view.now.0
            );
            let hash = Sha256::digest(seed.as_bytes());
            let name: Arc<str> =
                format!("{head}-{}", letters(&hash[..TAIL_LETTERS * 2], LETTERS)).into();
            let token = letters(
                &hash[TAIL_LETTERS * 2..TAIL_LETTERS * 2 + TOKEN_ID_LETTERS * 2],
                TOKEN_LETTERS,
            );
            if !self.tokens.contains(&token) && self.names.insert(name.clone()) {
                self.tokens.insert(token.clone());
                return Some((name, token));
            }
        }
        None
    }
}

/// One letter for every two bytes.
fn letters(bytes: &[u8], of: &[u8]) -> String {
    bytes
        .chunks(2)
        .map(|pair| {
            let value = pair
                .iter()
                .fold(0, |sum, byte| sum * 256 + usize::from(*byte));
            char::from(of[value % of.len()])
        })
        .collect()
}
