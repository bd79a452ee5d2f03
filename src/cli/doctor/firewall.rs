//! PVE's firewall, where a template wants something of it: the datacenter's switch, without which no rule of a machine does anything; security
//! groups; the switch of the machines' own firewall, and whether a card passes through it.
//!
//! The switch of a host (`/nodes/NODE/firewall/options`) is for the rules of the host itself. Those of VMs are in force without it
//! (`compile_iptables_filter` of pve-firewall, `full_host_fw` of proxmox-firewall), so nobody looks at it here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::Findings;
use super::mends;
use super::region::{RegionSeen, SeenRegion};
use super::templates::{self, copies};
use crate::config::settings::{NetCardSettings, TemplateSettings};
use crate::controller::in_place::groups;
use crate::model::words;
use crate::pve::{Client, Net, VmConfig};

/// How the datacenter's firewall is switched on, and what comes first: hosts then let in only what a rule accepts, and from their local network
/// and the IP set `management` the ports by which they are managed (`enable_host_firewall` of pve-firewall).
const SWITCH_ON: &str = "first see that nobody is locked out: from then on hosts let in only what a rule accepts, and from their local network and the IP set management ports such as 22 and 8006; who comes from another network is let in by pvesh create /cluster/firewall/ipset --name management; pvesh create /cluster/firewall/ipset/management --cidr NETWORK, and services such as Ceph by rules; then pvesh set /cluster/firewall/options --enable 1 (docs/networks.md#pves-firewall)";

/// A template by its name.
type NamedTemplate<'a> = (&'a Arc<str>, &'a TemplateSettings);

/// Looks at PVE's firewall where a template of the region names security groups, or has its machines' firewall switched on.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let wanting: Vec<NamedTemplate<'_>> = templates::of(name, settings)
        .filter(|(_, of)| has_groups(of) || of.switches_firewall_on())
        .collect();
    if wanting.is_empty() {
        return;
    }
    look_at_datacenter(client, name, &wanting, findings).await;
    look_at_groups(client, name, &wanting, findings).await;
    for template in wanting {
        look_at_switch(client, seen, template, findings).await;
        judge_cards(seen, template, findings);
    }
}

fn has_groups(template: &TemplateSettings) -> bool {
    groups::wanted(template).is_some_and(|groups| !groups.is_empty())
}

/// The switch of the datacenter, which is off where PVE was installed and nobody touched it.
async fn look_at_datacenter(
    client: &Client,
    name: &str,
    wanting: &[NamedTemplate<'_>],
    findings: &mut Findings,
) {
    match client.has_datacenter_firewall_on().await {
        Ok(true) => findings.fine(format!(
            "region {name}: the firewall of the datacenter is on"
        )),
        Ok(false) => {
            let templates = words::names(wanting.iter().map(|(template, _)| template));
            findings
                .warning(format!(
                    "region {name}: the firewall of the datacenter is off (enable of /cluster/firewall/options): security groups and other rules of machines do nothing, and these templates want them: {templates}"
                ))
                .mend(SWITCH_ON);
        }
        Err(error) => findings
            .unseen(format!(
                "region {name}: whether the firewall of the datacenter is on could not be looked at, which takes Sys.Audit on /: {}",
                error.words()
            ))
            .mend(mends::of_call(&error, None)),
    }
}

/// Security groups that templates name: PVE takes rules with others, too, and they do nothing.
async fn look_at_groups(
    client: &Client,
    name: &str,
    wanting: &[NamedTemplate<'_>],
    findings: &mut Findings,
) {
    let wanted = wanting.iter().flat_map(|(template, of)| {
        let groups = groups::wanted(of).unwrap_or_default().into_iter();
        groups.map(move |(group, _)| (template, group))
    });
    let wanted: BTreeSet<_> = wanted.collect();
    if wanted.is_empty() {
        return;
    }
    let found = match client.security_groups().await {
        Ok(found) => found,
        Err(error) => {
            findings
                .warning(format!(
                    "region {name}: the security groups: {}",
                    error.words()
                ))
                .mend(mends::of_call(&error, None));
            return;
        }
    };
    for (template, group) in wanted {
        if found.contains(&group) {
            findings.fine(format!("template {template}: security group {group}"));
        } else {
            findings
                .wrong(format!(
                    "template {template}: there is no security group {group}; its rule would let nothing through"
                ))
                .mend(format!(
                    "pvesh create /cluster/firewall/groups --group {group} makes it, without rules"
                ));
        }
    }
}

/// The switch of the machines' own firewall: it is switched on for them, or they have it as their template has.
async fn look_at_switch(
    client: &Client,
    seen: &RegionSeen,
    (template, of): NamedTemplate<'_>,
    findings: &mut Findings,
) {
    if of.switches_firewall_on() {
        findings.fine(format!(
            "template {template}: the firewall of its machines is switched on before their first start"
        ));
        return;
    }
    for (vmid, guest) in copies(seen, of) {
        match client.has_firewall_on(&guest.host, *vmid).await {
            Ok(true) => findings.fine(format!(
                "template {template}: the firewall of VM {vmid} is on"
            )),
            Ok(false) => findings
                .warning(format!(
                    "template {template}: the firewall of VM {vmid} is off and vm_firewall is false, so that security groups of its machines do nothing"
                ))
                .mend(format!(
                    "pvesh set /nodes/{}/qemu/{vmid}/firewall/options --enable 1",
                    guest.host
                )),
            Err(error) => findings
                .warning(format!("template {template}: its firewall: {}", error.words()))
                .mend(mends::of_call(&error, Some(&*guest.host))),
        }
    }
}

/// Of machines whose firewall is switched on, whether a card passes through it. Of VMs without a template the file itself is refused where none does.
fn judge_cards(seen: &RegionSeen, (template, of): NamedTemplate<'_>, findings: &mut Findings) {
    if !of.switches_firewall_on() {
        return;
    }
    for (vmid, _) in copies(seen, of) {
        let config = seen.configs.get(vmid);
        if config.is_none_or(|config| has_passing_card(config, of)) {
            continue;
        }
        findings
            .warning(format!(
                "template {template}: vm_firewall = true does nothing for machines of VM {vmid}: no network card passes through the firewall"
            ))
            .mend(format!(
                "firewall = true or security_groups in [template.{template}] for net0, or in a [[template.{template}.nic]]"
            ));
    }
}

/// Whether a clone of this VM has a card that passes through the firewall: by the file, and where that says nothing by the card of the VM.
fn has_passing_card(config: &VmConfig, template: &TemplateSettings) -> bool {
    let of_file: BTreeMap<u8, NetCardSettings> = template.cards().collect();
    let own = config.cards();
    let mut numbers = own.keys().chain(of_file.keys());
    numbers.any(|number| {
        let said = of_file
            .get(number)
            .and_then(NetCardSettings::passes_firewall);
        said.unwrap_or_else(|| own.get(number).is_some_and(passes_firewall))
    })
}

fn passes_firewall(card: &Net) -> bool {
    let mut rest = card.rest.iter();
    rest.any(|(key, value)| key == "firewall" && value == "1")
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Settings, parse};
    use crate::pve::transport::memory::RouterTransport;

    fn file(template: &str) -> Settings {
        let text = format!(
            "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n{template}\n[instance_type.s]\ncores = 2\nmemory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\n"
        );
        parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// What is said where PVE answers so.
    async fn said(status: u16, answer: Value) -> String {
        let router = Router::new().fallback(move || {
            let answer = (
                StatusCode::from_u16(status).expect("a status"),
                axum::Json(answer.clone()),
            );
            async move { answer }
        });
        let client = Client::new(Arc::new(RouterTransport::new(router)));
        let settings = file("security_groups = [\"web\"]");
        let wanting: Vec<NamedTemplate<'_>> = settings.templates.iter().collect();
        let mut findings = Findings::default();
        look_at_datacenter(&client, "default", &wanting, &mut findings).await;
        assert_eq!(findings.0.len(), 1, "{findings:?}");
        findings.0[0].to_string()
    }

    /// It finds a doctor that takes a switch that could not be read for off or on, and one that does not say which privilege is missing.
    #[tokio::test]
    async fn a_switch_that_cannot_be_read_is_neither_on_nor_off() {
        let refusal = json!({"data": null, "message": "Permission check failed (/, Sys.Audit)\n"});
        let refused = said(403, refusal).await;
        let odd = said(200, json!({ "data": [] })).await;
        for unseen in [&refused, &odd] {
            let words = "unseen: region default: whether the firewall of the datacenter is on could not be looked at, which takes Sys.Audit on /: PVE call GET /cluster/firewall/options failed";
            assert!(unseen.starts_with(words), "{unseen}");
        }
        let mend = "; give the API token a role with Sys.Audit on / (`pveum acl modify / ";
        assert!(refused.contains(mend), "{refused}");
    }

    #[tokio::test]
    async fn a_switch_that_nobody_touched_is_off() {
        for (answer, begins) in [
            (
                json!({"digest": "x"}),
                "warning: region default: the firewall of the datacenter is off ",
            ),
            (
                json!({"enable": 0}),
                "warning: region default: the firewall of the datacenter is off ",
            ),
            (
                json!({"enable": "1"}),
                "ok: region default: the firewall of the datacenter is on",
            ),
            (
                json!({"enable": 1_795_000_000}),
                "ok: region default: the firewall of the datacenter is on",
            ),
        ] {
            let said = said(200, json!({ "data": answer })).await;
            assert!(said.starts_with(begins), "{answer}: {said}");
        }
    }

    /// The file has the last word of a card, and the template of one that the file does not name. It finds a doctor that looks at net0 alone, at
    /// the file alone, and at the template alone.
    #[test]
    fn a_card_passes_by_the_file_or_as_the_templates() {
        let nic = |line: &str| format!("[[template.debian.nic]]\nbridge = \"vmbr1\"\n{line}");
        let (plain, behind) = ("virtio,bridge=vmbr0", "virtio,bridge=vmbr0,firewall=1");
        for (template, cards, passes) in [
            ("", &[plain][..], false),
            ("", &["virtio,bridge=vmbr0,firewall=0"], false),
            ("", &[behind], true),
            ("", &[plain, behind], true),
            ("", &[], false),
            ("firewall = true", &[plain], true),
            ("firewall = false", &[behind], false),
            ("firewall = false", &[behind, behind], true),
            ("security_groups = [\"web\"]", &[plain], true),
            (&*nic("firewall = true"), &[plain], true),
            (&*nic("firewall = false"), &[plain, behind], false),
            (&*nic(""), &[plain, behind], true),
            (&*nic(""), &[plain], false),
        ] {
            let cards = cards.iter().enumerate();
            let cards = cards.map(|(number, card)| (format!("net{number}"), json!(card)));
            let config = VmConfig::read(&Value::Object(cards.collect()));
            let settings = file(&format!("vm_firewall = true\n{template}"));
            let of = &settings.templates["debian"];
            assert_eq!(
                has_passing_card(&config, of),
                passes,
                "{template} {config:?}"
            );
        }
    }
}
