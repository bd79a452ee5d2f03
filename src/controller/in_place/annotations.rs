//! The annotations that a pool's nodes carry: what was written to a node, and what the file says now. Pure.
//!
//! Others annotate nodes, too, and nobody reads all of that for this. The journal has what we wrote: where the file says otherwise, what
//! it says is written, and what it does not name any more goes. What somebody else makes of our annotations stays until then.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::settings::Settings;
use crate::model::facts::{self, Facts};
use crate::model::in_place::ANNOTATIONS;
use crate::model::mark::Mark;
use crate::model::scheduling::Labels;

use super::{SettingChange, Written};

/// The annotations that were written to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenAnnotations {
    /// The texts of the file, with their gaps.
    pub texts: Labels,
    /// The host that was filled in; all else that may be stays for ever.
    pub host: Arc<str>,
}

impl WrittenAnnotations {
    /// Those of a machine's pool now, for a VM on this host.
    pub fn of(settings: &Settings, mark: &Mark, host: &Arc<str>) -> WrittenAnnotations {
        let pool = settings.pools.get(mark.pool.as_str());
        WrittenAnnotations {
            texts: pool
                .map(|pool| pool.annotations.clone())
                .unwrap_or_default(),
            host: host.clone(),
        }
    }

    /// Whether a node that carries these carries `others`.
    fn are(&self, others: &WrittenAnnotations) -> bool {
        let gaps = || self.texts.values().any(|text| facts::has_gaps(text));
        self.texts == others.texts && (self.host == others.host || !gaps())
    }

    /// The one of this key, as the node has it.
    fn filled(&self, key: &str, (region, mark): (&str, &Mark)) -> Option<String> {
        let text = self.texts.get(key)?;
        let facts = Facts {
            machine: &mark.machine,
            vmid: mark.vmid,
            host: &self.host,
            region,
            pool: &mark.pool,
            instance_type: &mark.instance_type,
        };
        Some(facts::fill(text, &facts).unwrap_or_else(|_| text.to_string()))
    }
}

/// What of a node's annotations is not as the file says, for a machine with this mark whose VM is here.
pub fn change(
    settings: &Settings,
    mark: &Mark,
    (region, host): (&str, &Arc<str>),
    written: &Written,
) -> Option<SettingChange> {
    // Of a pool that is gone nobody knows what its nodes are to have.
    settings.pools.get(mark.pool.as_str())?;
    let nothing = WrittenAnnotations::default();
    let before = written.annotations.as_ref().unwrap_or(&nothing);
    let now = WrittenAnnotations::of(settings, mark, host);
    if before.are(&now) {
        return None;
    }
    let keys = before.texts.keys().chain(now.texts.keys());
    let mut keys: Vec<&Arc<str>> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    let (mut is, mut wanted) = (Vec::new(), Vec::new());
    for key in keys {
        let [had, has] = [before, &now].map(|of| of.filled(key, (region, mark)));
        if had != has {
            is.extend(had.map(|text| format!("{key}={text}")));
            wanted.extend(has.map(|text| format!("{key}={text}")));
        }
    }
    (is != wanted).then(|| SettingChange {
        key: ANNOTATIONS,
        is: is.join(", "),
        wanted: wanted.join(", "),
    })
}

#[cfg(test)]
mod tests;
