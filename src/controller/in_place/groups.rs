//! The security groups of a machine's network cards: what of its VM's firewall is not as the file says. Pure.
//!
//! Groups that others gave the VM, and those that it has of its template, stay: a rule that we wrote says so in its comment.

use std::fmt::Write as _;

use crate::config::settings::TemplateSettings;
use crate::pve::{FirewallRule, SecurityGroup};

/// The name of the groups where a difference is told.
pub const GROUPS: &str = "security-groups";

/// The security groups that a template's machines have by the file, in its order; `None` where it says nothing of them.
pub fn wanted(template: &TemplateSettings) -> Option<Vec<SecurityGroup>> {
    let mut said = false;
    let mut groups = Vec::new();
    for (number, card) in template.cards() {
        said |= card.groups.is_some();
        let named = card.groups.into_iter().flatten();
        groups.extend(named.map(|group| (group, number)));
    }
    said.then_some(groups)
}

/// One change of a VM's firewall rules, on the way to the security groups that the file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange<'a> {
    /// A rule of ours goes.
    Remove(&'a FirewallRule),
    /// A group comes, before all rules.
    Add(SecurityGroup),
}

/// The next thing to do until the VM has these groups. The last missing one comes first: PVE puts each before the others.
pub fn next_step<'a>(
    wanted: &[SecurityGroup],
    rules: &'a [FirewallRule],
) -> Option<GroupChange<'a>> {
    let remove = rules.iter().find(|rule| rule.is_too_much(wanted, rules));
    let add = missing(wanted, rules).next_back().cloned();
    remove
        .map(GroupChange::Remove)
        .or_else(|| add.map(GroupChange::Add))
}

fn missing<'a>(
    wanted: &'a [SecurityGroup],
    rules: &'a [FirewallRule],
) -> impl DoubleEndedIterator<Item = &'a SecurityGroup> {
    let has = |(group, card): &&SecurityGroup| rules.iter().any(|rule| rule.gives(group, *card));
    wanted.iter().filter(move |group| !has(group))
}

/// What the VM has and what it is to have, if that differs: all groups in force, in their order, others' among them.
pub fn difference(wanted: &[SecurityGroup], rules: &[FirewallRule]) -> Option<(String, String)> {
    next_step(wanted, rules)?;
    let group = |rule: &&FirewallRule| rule.kind == "group";
    let there = rules.iter().filter(group);
    let is = listed(
        there
            .clone()
            .map(|rule| (&rule.action, rule.card.as_deref(), rule.enabled)),
    );
    let stay = there.filter(|rule| !rule.is_too_much(wanted, rules));
    let stay = stay.map(|rule| (rule.action.clone(), rule.card.clone(), rule.enabled));
    let new = missing(wanted, rules);
    let new = new.map(|(name, card)| (name.clone(), Some(format!("net{card}")), true));
    let all: Vec<(String, Option<String>, bool)> = new.chain(stay).collect();
    let all = all.iter();
    let will = listed(all.map(|(name, card, on)| (name, card.as_deref(), *on)));
    Some((is, will))
}

fn listed<'a>(groups: impl Iterator<Item = (&'a String, Option<&'a str>, bool)>) -> String {
    let mut text = String::new();
    for (group, card, enabled) in groups {
        let comma = if text.is_empty() { "" } else { ", " };
        let card = card.unwrap_or("all cards");
        let off = if enabled { "" } else { " (off)" };
        let _ = write!(text, "{comma}{group} on {card}{off}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::OUR_RULE;

    fn rule(position: usize, action: &str, card: Option<&str>, comment: &str) -> FirewallRule {
        FirewallRule {
            position,
            kind: "group".to_owned(),
            action: action.to_owned(),
            card: card.map(str::to_owned),
            enabled: true,
            comment: comment.to_owned(),
            digest: Some("d".into()),
        }
    }

    fn groups(named: &[(&str, u8)]) -> Vec<SecurityGroup> {
        let named = named.iter();
        named
            .map(|(group, card)| ((*group).to_owned(), *card))
            .collect()
    }

    /// Until nothing is left to do, as PVE would do it.
    fn done(
        wanted: &[SecurityGroup],
        mut rules: Vec<FirewallRule>,
    ) -> Vec<(String, Option<String>)> {
        for _ in 0..20 {
            match next_step(wanted, &rules) {
                None => {
                    let left = rules.into_iter();
                    return left.map(|rule| (rule.action, rule.card)).collect();
                }
                Some(GroupChange::Remove(rule)) => {
                    let at = rule.position;
                    rules.remove(at);
                }
                Some(GroupChange::Add((group, card))) => {
                    let card = format!("net{card}");
                    rules.insert(0, rule(0, &group, Some(&card), OUR_RULE));
                }
            }
            for (position, rule) in rules.iter_mut().enumerate() {
                rule.position = position;
            }
        }
        panic!("it does not end: {rules:?}");
    }

    #[test]
    fn groups_come_in_the_files_order_and_others_stay() {
        let theirs = rule(0, "ssh", Some("net0"), "Ann's");
        let ours = |position| rule(position, "old", Some("net0"), OUR_RULE);
        let wanted = groups(&[("web", 0), ("db", 0), ("web", 1)]);
        let left = done(&wanted, vec![theirs.clone(), ours(1)]);
        let left: Vec<String> = left
            .into_iter()
            .map(|(group, card)| format!("{group} {}", card.unwrap_or_default()))
            .collect();
        assert_eq!(left, ["web net0", "db net0", "web net1", "ssh net0"]);
        // With an empty list ours go.
        assert_eq!(done(&[], vec![theirs, ours(1)]).len(), 1);
    }

    #[test]
    fn a_group_that_the_vm_has_already_is_not_given_twice() {
        let wanted = groups(&[("web", 0)]);
        for there in [Some("net0"), None] {
            let template = [rule(0, "web", there, "of the template")];
            assert_eq!(next_step(&wanted, &template), None, "{there:?}");
            assert_eq!(difference(&wanted, &template), None);
        }
        let elsewhere = [rule(0, "web", Some("net1"), "of the template")];
        assert!(matches!(
            next_step(&wanted, &elsewhere),
            Some(GroupChange::Add(_))
        ));
    }

    /// Somebody switched ours off, or a call whose answer was lost was made twice.
    #[test]
    fn of_ours_one_is_left_that_is_in_force() {
        let wanted = groups(&[("web", 0)]);
        let ours = |position| rule(position, "web", Some("net0"), OUR_RULE);
        let off = FirewallRule {
            enabled: false,
            ..ours(0)
        };
        assert_eq!(done(&wanted, vec![ours(0), ours(1)]).len(), 1);
        let told = difference(&wanted, std::slice::from_ref(&off));
        let words = |text: &str| text.to_owned();
        assert_eq!(
            told,
            Some((words("web on net0 (off)"), words("web on net0")))
        );
        assert_eq!(done(&wanted, vec![off]).len(), 1);
    }

    #[test]
    fn a_file_that_says_nothing_wants_nothing() {
        let mut template = TemplateSettings::default();
        assert_eq!(wanted(&template), None);
        template.security_groups = Some(vec![]);
        assert_eq!(wanted(&template), Some(vec![]));
        template.security_groups = Some(vec!["web".to_owned()]);
        assert_eq!(wanted(&template), Some(groups(&[("web", 0)])));
    }
}
