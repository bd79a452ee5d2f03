//! Texts about a machine's node that may name its network cards: arguments of its kubelet, and the command that joins it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::Problems;
use super::cloud_init::{for_machines, machine_words};
use super::joining::COMMAND_WORDS;
use super::labels::SAMPLE;
use super::networks::Networks;
use super::pools::ResolvedPool;
use super::trials::TextTrials;
use crate::config::cloud_init::GapValues;
use crate::config::settings::{JoinMethod, JoinSettings, TemplateSettings};
use crate::model::facts::{self, Facts};
use crate::model::network::Family;
use crate::model::policy::PoolPolicy;

/// The argument by which a kubelet is told its node's address.
const NODE_IP: &str = "node-ip";

/// Fills each text in for machines as each pool makes them: with their network cards and addresses, and no more.
pub(super) fn check(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    (pools, networks): (&BTreeMap<Arc<str>, ResolvedPool>, &Networks),
    problems: &mut Problems,
) {
    let Some(trials) = problems.trials else {
        return;
    };
    for (name, pool) in pools {
        for there in pool.policy.everywhere() {
            let Some(template) = templates.get(&there.template) else {
                continue;
            };
            let words = machine_words(template, there, networks);
            let machines = Machines {
                trials,
                pool: name,
                there,
                region: &template.region,
                words: &words,
            };
            if let Some((at, why)) = machines.fault(&pool.settings.join, pool.policy.max) {
                let join = pool.path.at("join");
                let path = at.iter().fold(join, |path, key| path.at(key));
                problems.add(&path, why);
                break;
            }
        }
    }
}

/// Machines that a pool makes in one region.
struct Machines<'a> {
    trials: &'a TextTrials,
    pool: &'a str,
    there: &'a PoolPolicy,
    region: &'a str,
    words: &'a GapValues,
}

impl Machines<'_> {
    /// The first key whose text is wrong for them, below the pool's `join`, and what is wrong.
    fn fault(&self, join: &JoinSettings, most: u32) -> Option<(Vec<String>, String)> {
        let mut arguments = join.kubelet_args.iter();
        let argument = arguments.find_map(|(key, text)| {
            let mut why = self.unfilled(text, &[]);
            if why.is_none() && key.as_str() == NODE_IP {
                why = self.wrong_address(text, most);
            }
            let why = why?;
            Some((vec!["kubelet_args".to_owned(), key.clone()], why))
        });
        argument.or_else(|| {
            let JoinMethod::Command { script, .. } = &join.method else {
                return None;
            };
            let why = self.unfilled(script, &COMMAND_WORDS.map(|word| (word, word)))?;
            Some((vec!["command".to_owned()], why))
        })
    }

    /// What is wrong with a text for one of the pool's instance types, and is not for every machine: that was told.
    fn unfilled(&self, text: &str, further: &[(&str, &str)]) -> Option<String> {
        let fill = self.trials.node;
        if !facts::has_gaps(text) || fill(text, &SAMPLE, &GapValues::sample(), further).is_err() {
            return None;
        }
        let why = self.there.instance_types.iter().find_map(|instance_type| {
            fill(text, &self.facts(instance_type), self.words, further).err()
        })?;
        Some(for_machines(
            self.pool,
            &self.there.template,
            self.words,
            &why,
        ))
    }

    /// What is wrong with `--node-ip`: it is no address, or one that all machines would have.
    fn wrong_address(&self, text: &str, most: u32) -> Option<String> {
        let instance_type = self.there.instance_types.first()?;
        let of_machine = self.facts(instance_type);
        let one = (self.trials.node)(text, &of_machine, self.words, &[]).ok()?;
        let Some(addresses) = addresses(&one) else {
            return Some(format!(
                "expected the node's address, or one of each family with a comma between, such as \"{{{{ nics[1].ips[0] }}}}\"; it comes to {one:?}{}",
                if one.contains('/') {
                    ", and `ips` are without a prefix"
                } else {
                    ""
                }
            ));
        };
        let other = Facts {
            machine: "pool-vwxyz",
            vmid: SAMPLE.vmid + 1,
            ..of_machine
        };
        let two = (self.trials.node)(text, &other, &elsewhere(self.words), &[]).ok()?;
        // 0.0.0.0 and :: name a family and no address.
        let fixed = one == two && !addresses.iter().all(IpAddr::is_unspecified);
        (fixed && most > 1).then(|| {
            format!(
                "every node would have the address {one}, and pool {} may have {most}: expected a gap, such as \"{{{{ ips[0] }}}}\" for the first card's address or \"{{{{ nics[1].ips[0] }}}}\" for the second's, or a pool with max = 1",
                self.pool
            )
        })
    }

    fn facts<'f>(&'f self, instance_type: &'f str) -> Facts<'f> {
        Facts {
            region: self.region,
            pool: self.pool,
            instance_type,
            ..SAMPLE
        }
    }
}

/// An address, or one of each family with a comma between, as a kubelet reads them.
fn addresses(text: &str) -> Option<Vec<IpAddr>> {
    let parts = text
        .split(',')
        .map(|part| part.trim().parse::<IpAddr>().ok());
    let addresses: Vec<IpAddr> = parts.collect::<Option<_>>()?;
    let families: BTreeSet<Family> = addresses.iter().map(|ip| Family::of(*ip)).collect();
    (families.len() == addresses.len()).then_some(addresses)
}

/// What texts can name of another machine of the same make.
fn elsewhere(words: &GapValues) -> GapValues {
    let mut words = words.clone();
    for address in words.nics.iter_mut().flat_map(|nic| &mut nic.addresses) {
        let other = if address.contains(':') {
            "2001:db8:ffff::7/64"
        } else {
            "198.51.100.7/24"
        };
        other.clone_into(address);
    }
    words
}
