//! The tags of machines on an API token: whether PVE lets the token set them (`registered-tags` and `user-tag-access` of the
//! datacenter's options). Through the broker it is root who sets them, and he may set any.

use std::collections::BTreeSet;

use super::finding::Findings;
use super::mends;
use super::region::{RegionSeen, SeenRegion};
use super::templates::copies;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::controller::vm_config;
use crate::model::words;
use crate::pve::TagRules;

/// Looks at the tags of a region's pools.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let Some(Channel::Token { token_id, .. }) =
        settings.regions.get(name).map(|region| &region.channel)
    else {
        return;
    };
    let read = async { tokio::try_join!(client.permissions("/"), client.tag_rules()) };
    let (held, rules) = match read.await {
        Ok(read) => read,
        Err(error) => {
            findings
                .unseen(format!(
                    "region {name}: which tags the token {token_id} may set could not be looked at: {}",
                    error.words()
                ))
                .mend(mends::of_call(&error, None));
            return;
        }
    };
    if held.contains("Sys.Modify") {
        findings.fine(format!(
            "region {name}: the token {token_id} may set any tags"
        ));
    } else if held.contains("Sys.Audit") {
        judge(name, (token_id, &rules), seen, settings, findings);
    } else {
        findings.unseen(format!(
            "region {name}: which tags the token {token_id} may set could not be looked at, which takes Sys.Audit on /"
        ));
    }
}

/// Says which tags of a region's pools the token may not set. PVE looks at those that a VM gets and at those that it loses: a clone
/// has its template's.
fn judge(
    name: &str,
    (token_id, rules): (&str, &TagRules),
    seen: &RegionSeen,
    settings: &Settings,
    findings: &mut Findings,
) {
    let mut fine = BTreeSet::new();
    for (pool, policy) in settings.policy.pools_in(name) {
        let Some(of_pool) = settings.pools.get(pool) else {
            continue;
        };
        let gets: BTreeSet<String> = vm_config::tags(of_pool).into_iter().collect();
        let template = settings.templates.get(&policy.template);
        let copies = template.into_iter().flat_map(|of| copies(seen, of));
        let configs = copies.filter_map(|(vmid, _)| seen.configs.get(vmid));
        let of_copies: Vec<BTreeSet<String>> = configs
            .map(|config| {
                let tags = config.raw.get("tags").map_or("", String::as_str);
                let tags = vm_config::split_tags(tags).into_iter();
                tags.map(str::to_owned).collect()
            })
            .collect();
        let changed = vm_config::changed_tags(of_pool, &of_copies);
        let refused: Vec<&String> = changed.iter().filter(|tag| !rules.allows(tag)).collect();
        if refused.is_empty() {
            fine.extend(changed);
            continue;
        }
        let lost = refused.iter().any(|tag| !gets.contains(*tag));
        findings
            .wrong(format!(
                "pool {pool}: the token {token_id} may not set {}, so that every machine of the pool fails after its clone",
                words::names(refused.iter().map(|tag| format!("the tag {tag}")))
            ))
            .mend(mend(&refused, rules, lost.then_some(&*policy.template)));
    }
    if !fine.is_empty() {
        findings.fine(format!(
            "region {name}: the token {token_id} may set the tags {}",
            words::names(&fine)
        ));
    }
}

/// What lets the token set the tags, or spares it.
fn mend(refused: &[&String], rules: &TagRules, template: Option<&str>) -> String {
    let mut ways = Vec::new();
    let registered = |tag: &&&String| rules.registered.contains(**tag);
    let of_admins: Vec<&&String> = refused.iter().filter(registered).collect();
    if !of_admins.is_empty() {
        let stay = rules.registered.iter();
        let stay = stay.filter(|tag| !of_admins.iter().any(|one| **one == *tag));
        let stay: Vec<&str> = stay.map(String::as_str).collect();
        ways.push(if stay.is_empty() {
            "pvesh set /cluster/options --delete registered-tags lets others than administrators set them".to_owned()
        } else {
            format!(
                "pvesh set /cluster/options --registered-tags '{}' lets others than administrators set them",
                stay.join(";")
            )
        });
    }
    if rules.user_allow != "free" {
        // With `none` PVE does not read the list: it would open what stands there too.
        let mut list = match rules.user_allow.as_str() {
            "none" => BTreeSet::new(),
            _ => rules.user_allow_list.clone(),
        };
        list.extend(refused.iter().map(|tag| (*tag).clone()));
        let list: Vec<String> = list.into_iter().collect();
        let allow = match rules.user_allow.as_str() {
            "existing" => "existing",
            _ => "list",
        };
        ways.push(format!(
            "pvesh set /cluster/options --user-tag-access 'user-allow={allow},user-allow-list={}' lets everybody set them on VMs that he may configure",
            list.join(";")
        ));
    }
    let mend = ways.join("; and ");
    match template {
        Some(template) => format!(
            "{mend}; tags that the VM of template {template} has and the pool's tags lack are taken from its machines: name them in tags of the pool, or take them from the VM"
        ),
        None => mend,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tags: &[&str]) -> BTreeSet<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn what_lets_a_token_set_tags_is_typed_as_it_stands() {
        let (web, ours) = ("web".to_owned(), "pve-autoscaler".to_owned());
        let mut rules = TagRules {
            user_allow: "free".to_owned(),
            registered: set(&["prod", "web"]),
            ..TagRules::default()
        };
        let said = mend(&[&web], &rules, None);
        let wanted = "pvesh set /cluster/options --registered-tags 'prod' lets others than administrators set them";
        assert_eq!(said, wanted);
        rules.registered = set(&["web"]);
        let said = mend(&[&web], &rules, Some("debian"));
        assert!(
            said.starts_with("pvesh set /cluster/options --delete registered-tags "),
            "{said}"
        );
        assert!(said.contains("the VM of template debian has"), "{said}");
        rules.user_allow = "none".to_owned();
        rules.user_allow_list = set(&["a"]);
        rules.registered.clear();
        let said = mend(&[&ours, &web], &rules, None);
        let typed = "--user-tag-access 'user-allow=list,user-allow-list=pve-autoscaler;web'";
        assert!(
            said.starts_with("pvesh set /cluster/options ") && said.contains(typed),
            "{said}"
        );
        rules.user_allow = "existing".to_owned();
        let said = mend(&[&web], &rules, None);
        assert!(
            said.contains("'user-allow=existing,user-allow-list=a;web'"),
            "{said}"
        );
    }
}
