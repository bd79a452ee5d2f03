//! A user of the daemon's own in PVE: roles with the least privileges, where it has them, and an API token.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::rights::OwnerHints;
use super::survey::PveFound;
use crate::cli::doctor::region::RegionSeen;
use crate::cli::doctor::rights;
use crate::config::Settings;
use crate::kubernetes::bootstrap::write_credentials;
use crate::pve::Client;

/// What a token is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) user: String,
    pub(super) token: String,
    /// Privileges by role.
    pub(super) roles: BTreeMap<String, BTreeSet<&'static str>>,
    /// Path and role.
    pub(super) on: Vec<(String, String)>,
    /// The resource pools to make, which are not there, and what they are for.
    pub(super) pools: BTreeMap<String, &'static str>,
    /// What of it PVE has already.
    pub(super) there: GrantsThere,
}

/// What a PVE cluster has of a user's rights already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantsThere {
    user: bool,
    /// All roles of the cluster, with their privileges.
    roles: BTreeMap<String, BTreeSet<String>>,
}

/// What the configuration needs of PVE, by the same table that `doctor` judges by.
pub(super) fn grants(id: &str, settings: &Settings, pve: &PveFound) -> Option<Grants> {
    let (user, token) = id.split_once('!')?;
    let (region, _) = settings.regions.iter().next()?;
    let seen = RegionSeen {
        version: pve.version.clone(),
        status: pve.status.clone(),
        resources: pve.resources.clone(),
        configs: pve.templates.clone(),
    };
    let zones = pve.vnet_zones.iter();
    let zones = zones.map(|(vnet, zone)| (vnet.clone(), Some(zone.clone())));
    let exact = rights::needed(region, &seen, &zones.collect(), settings);
    // A bridge, and not each VLAN on it: another `vlan` in the file needs no other right then.
    let mut needed: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    for (path, privileges) in exact {
        let path = rights::path_of_bridge(&path);
        needed.entry(path).or_default().extend(privileges);
    }
    // Each template that is built has another VMID.
    for vmid in rights::vmids_of_builds(region, settings) {
        let of_template = needed.entry(format!("/vms/{vmid}")).or_default();
        of_template.extend(["VM.Audit", "VM.Clone"]);
    }
    // Every guest's promises count for its host, and every address of theirs is taken.
    needed
        .entry("/vms".to_owned())
        .or_default()
        .insert("VM.Audit");
    // `doctor` sees then whether the resource pool is there.
    for (path, privileges) in &mut needed {
        if path.starts_with("/pool/") {
            privileges.insert("Pool.Audit");
        }
    }
    let mut roles: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    let mut on = Vec::new();
    for (path, privileges) in needed {
        let isos = privileges.contains("Datastore.AllocateTemplate");
        let role = if isos {
            "NodeAutoscalerISOs"
        } else if path.starts_with("/pool/") && !privileges.contains("VM.Allocate") {
            // A pool of templates: they are cloned, and no machine is in it.
            "NodeAutoscalerTemplate"
        } else {
            role(&path)
        };
        roles.entry(role.to_owned()).or_default().extend(privileges);
        on.push((path, role.to_owned()));
    }
    let templates = settings.templates.values();
    let of_builds = templates.clone().filter_map(|of| of.build.as_ref());
    let of_builds = of_builds.filter_map(|build| build.resource_pool.clone());
    let pools = of_builds.map(|pool| (pool, "templates of pve-autoscaler"));
    let of_machines = templates.filter_map(|template| template.resource_pool.clone());
    let of_machines = of_machines.map(|pool| (pool, "machines of pve-autoscaler"));
    let mut pools: BTreeMap<String, &'static str> = pools.chain(of_machines).collect();
    pools.retain(|pool, _| !pve.pools.contains(pool));
    Some(Grants {
        user: user.to_owned(),
        token: token.to_owned(),
        roles,
        on,
        pools,
        there: GrantsThere::default(),
    })
}

/// The role for a path: one for each kind of thing. PVE keeps names that begin with `PVE` for its own roles.
fn role(path: &str) -> &'static str {
    match path.split('/').nth(1).unwrap_or_default() {
        "" => "NodeAutoscaler",
        "pool" => "NodeAutoscalerMachines",
        "storage" => "NodeAutoscalerStorage",
        "sdn" => "NodeAutoscalerNetwork",
        "mapping" => "NodeAutoscalerDevices",
        _ if path == "/vms" => "NodeAutoscalerGuests",
        _ => "NodeAutoscalerTemplate",
    }
}

impl Grants {
    /// The commands for those who prefer to type; the secret is in what the last one prints.
    pub(super) fn typed(&self) -> String {
        let mut text = String::new();
        for pool in self.pools.keys() {
            let _ = writeln!(text, "pvesh create /pools --poolid {pool}");
        }
        for (role, privileges) in &self.roles {
            let verb = match self.there.roles.get(role) {
                Some(held) if held.iter().eq(privileges) => continue,
                Some(_) => "modify",
                None => "add",
            };
            let all: Vec<&str> = privileges.iter().copied().collect();
            let _ = writeln!(text, "pveum role {verb} {role} --privs '{}'", all.join(" "));
        }
        if !self.there.user {
            let _ = writeln!(text, "pveum user add {}", self.user);
        }
        for (path, role) in &self.on {
            let _ = writeln!(
                text,
                "pveum acl modify {path} --users {} --roles {role}",
                self.user
            );
        }
        let _ = writeln!(
            text,
            "pveum user token add {} {} --privsep 0",
            self.user, self.token
        );
        text
    }

    /// Looks at what of it is there already.
    ///
    /// # Errors
    /// The token is there, and nobody can have its secret any more.
    pub(super) async fn look(
        &mut self,
        client: &Client,
        secret_file: &std::path::Path,
    ) -> anyhow::Result<()> {
        let user = client.users().await?.contains(&self.user);
        if user && client.tokens(&self.user).await?.contains(&self.token) {
            anyhow::bail!(
                "the token {}!{} is there already, and PVE tells a secret only once: put it into {}, or remove the token \
                 (pveum user token remove {0} {1}) and run this again; nothing was changed",
                self.user,
                self.token,
                secret_file.display()
            );
        }
        let roles = client.roles().await?;
        self.there = GrantsThere { user, roles };
        Ok(())
    }

    /// Makes it all, what is there already left as it is but for roles, which get the privileges that are needed. The secret
    /// goes to the file and nowhere else.
    pub(super) async fn make(
        &self,
        client: &Client,
        secret_file: &std::path::Path,
        (group, hints): (&str, &mut OwnerHints),
    ) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        let users = client.users().await?;
        let there = users.contains(&self.user);
        if there && client.tokens(&self.user).await?.contains(&self.token) {
            anyhow::bail!(
                "the token {}!{} is there already, and PVE tells a secret only once: put it into {}, or remove the token \
                 (pveum user token remove {0} {1}) and run this again",
                self.user,
                self.token,
                secret_file.display()
            );
        }
        if let Some(folder) = secret_file.parent() {
            let named = || format!("cannot make {} for the token's secret", folder.display());
            std::fs::create_dir_all(folder).with_context(named)?;
        }
        for (pool, comment) in &self.pools {
            client.create_pool(pool, comment).await?;
            done.push(format!("resource pool {pool}"));
        }
        let roles = client.roles().await?;
        for (role, privileges) in &self.roles {
            let held = roles.get(role);
            let wanted: BTreeSet<String> = privileges.iter().map(|one| (*one).to_owned()).collect();
            if held != Some(&wanted) {
                client.set_role(role, privileges, held.is_some()).await?;
                done.push(format!("role {role}"));
            }
        }
        if !there {
            client
                .create_user(&self.user, "pve-autoscaler, by tokens alone")
                .await?;
            done.push(format!("user {}", self.user));
        }
        for (path, role) in &self.on {
            client.grant(path, &self.user, role).await?;
            done.push(format!("{role} on {path}"));
        }
        let secret = client.create_token(&self.user, &self.token).await?;
        let written = write_credentials(secret_file, secret.expose_secret(), group);
        let hint = written.map_err(|why| {
            anyhow::anyhow!(
                "the token {}!{} was made and its secret could not be written to {}: {why}. Remove the token \
                 (pveum user token remove {0} {1}) and run this again",
                self.user,
                self.token,
                secret_file.display()
            )
        })?;
        done.push(format!(
            "token {}!{}, its secret in {}",
            self.user,
            self.token,
            secret_file.display()
        ));
        hints.add(hint, secret_file);
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(build: &str) -> Grants {
        let text = format!(
            "version = 1\n[proxmox]\nchannel = \"token\"\nendpoints = [\"https://pve.example:8006\"]\ntoken_id = \"scaler@pve!one\"\ntoken_secret_file = \"/etc/pve-autoscaler/token\"\nca_file = \"/etc/pve-autoscaler/ca.pem\"\nvmids = \"9000-9019\"\n[template.debian]\nresource_pool = \"kube\"\n[template.debian.build]\nvmids = \"8000-8001\"\nvolume = \"local:import/debian.qcow2\"\nstorage = \"tank\"\nkubernetes = \"1.34\"\n{build}\n[instance_type.s]\ncores = 2\nmemory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\n"
        );
        let settings = crate::config::parse(&text, "test").expect("it is valid");
        grants("scaler@pve!one", &settings, &PveFound::default()).expect("a token")
    }

    fn on<'a>(grants: &'a Grants, role: &str) -> Vec<&'a str> {
        let on = grants.on.iter().filter(|(_, of)| of == role);
        on.map(|(path, _)| path.as_str()).collect()
    }

    /// Nothing of templates is in the role for machines, or the token could change them.
    #[test]
    fn templates_to_be_built_may_be_cloned_and_nothing_else() {
        let by_number = granted("");
        assert_eq!(
            on(&by_number, "NodeAutoscalerTemplate"),
            ["/vms/8000", "/vms/8001"]
        );
        let by_pool = granted("resource_pool = \"templates\"");
        assert_eq!(on(&by_pool, "NodeAutoscalerTemplate"), ["/pool/templates"]);
        assert_eq!(on(&by_pool, "NodeAutoscalerMachines"), ["/pool/kube"]);
        let held = |role: &str| by_pool.roles[role].iter().copied().collect::<Vec<_>>();
        assert_eq!(
            held("NodeAutoscalerTemplate"),
            ["Pool.Audit", "VM.Audit", "VM.Clone"]
        );
        assert!(!held("NodeAutoscalerMachines").contains(&"VM.Clone"));
        let typed = by_pool.typed();
        for pool in ["kube", "templates"] {
            let line = format!("pvesh create /pools --poolid {pool}\n");
            assert!(typed.contains(&line), "{typed}");
        }
    }
}
