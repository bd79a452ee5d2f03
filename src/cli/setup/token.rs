//! A user of the daemon's own in PVE: roles with the least privileges, where it has them, and an API token.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::rights::OwnerHints;
use super::survey::PveFound;
use crate::cli::channels;
use crate::cli::doctor::region::RegionSeen;
use crate::cli::doctor::rights;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::kubernetes::bootstrap::write_credentials;
use crate::pve::{CallError, Client};

/// The status of a call whose token is not taken.
const UNAUTHORIZED: u16 = 401;
/// The status of a call that its token may not make.
const FORBIDDEN: u16 = 403;

/// What a token is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) user: String,
    pub(super) token: String,
    /// Privileges by role.
    pub(super) roles: BTreeMap<String, BTreeSet<&'static str>>,
    /// Path and role.
    pub(super) on: Vec<(String, String)>,
    /// Privileges by path, without which the daemon cannot work.
    needed: BTreeMap<String, BTreeSet<&'static str>>,
    /// The resource pools to make, which are not there, and what they are for.
    pub(super) pools: BTreeMap<String, &'static str>,
    /// What of it PVE has already.
    pub(super) there: GrantsThere,
    /// What came of the secret that is there.
    pub(super) trial: SecretTrial,
}

/// What came of a call with the token, by the secret that its file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SecretTrial {
    /// There is no such file.
    #[default]
    Missing,
    Taken,
    /// It is no secret, or PVE does not take it: why.
    Refused(String),
    /// PVE could not be asked: why.
    Silent(String),
}

/// What a token lacks, and whether setup makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenLack {
    /// This, with the file of its secret.
    Made(Box<Grants>, PathBuf),
    /// Rights that only an administrator can give, and this is none: what is said of it. All else is done without them.
    Told(String),
}

/// What is to be made in PVE so that the daemon's token works; `None` where nothing is. A token whose secret is taken may lack rights that its
/// configuration needs: it is another than before, or somebody took a privilege away from a role.
pub(super) async fn lacking(
    settings: &Settings,
    pve: &PveFound,
    (configured, is_daemons): (bool, bool),
) -> Option<TokenLack> {
    let mut regions = settings.regions.values();
    // Of several regions only one was looked at, and nobody said which is meant.
    let (Some(region), None) = (regions.next(), regions.next()) else {
        return None;
    };
    let Channel::Token {
        token_id,
        secret_file,
        ..
    } = &region.channel
    else {
        return None;
    };
    let mut grants = grants(token_id, settings, pve)?;
    let opened = secret_file
        .exists()
        .then(|| channels::open(region, &settings.broker.socket));
    match opened {
        None => {}
        Some(Err(why)) => grants.trial = SecretTrial::Refused(format!("{why:#}")),
        Some(Ok(way)) => {
            let client = Client::new(way);
            grants.trial = try_secret(&client).await;
            let held = grants.has_token() && grants.are_held(&client).await;
            // Which resource pools there are is not for the daemon to see.
            if held && (grants.pools.is_empty() || (configured && is_daemons)) {
                return None;
            }
        }
    }
    // What is configured works on, and setup is run again without the administrator's token.
    if grants.has_token() && configured && is_daemons {
        return Some(TokenLack::Told(format!(
            "the daemon's token {token_id} lacks rights that its configuration needs (doctor names them), which only an administrator can give it: \
             run setup as root on a host, or answer proxmox.admin_token_id and admin_token_secret_file"
        )));
    }
    Some(TokenLack::Made(Box::new(grants), secret_file.clone()))
}

/// Makes a call with the token, which whoever may log in may make.
async fn try_secret(client: &Client) -> SecretTrial {
    match client.version().await {
        Ok(_) => SecretTrial::Taken,
        Err(error) if error.status == Some(UNAUTHORIZED) => {
            SecretTrial::Refused(format!("PVE does not take it ({})", error.message))
        }
        Err(error) => SecretTrial::Silent(error.words()),
    }
}

/// What is said where PVE does not let somebody give rights. The advice for the call alone would give a right to a token that is to have none.
pub(super) fn of_refusal(error: anyhow::Error, is_daemons: bool) -> anyhow::Error {
    let refused = error.downcast_ref::<CallError>();
    let Some(refused) = refused.filter(|refused| refused.status == Some(FORBIDDEN)) else {
        return error;
    };
    let why = if is_daemons {
        "this is the daemon's own token, and only an administrator gives rights: answer proxmox.admin_token_id and admin_token_secret_file"
    } else {
        "the administrator's token has no such right. With privilege separation, as PVE's web interface makes tokens, it has none of its user's: \
         `pveum user token add root@pam NAME --privsep 0` makes one that has them"
    };
    anyhow::anyhow!(
        "{} was refused by PVE: {}; {why}. Or type the commands above as root on a host, and run setup again",
        refused.call,
        refused.message
    )
}

/// What a PVE cluster has of a user's rights already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantsThere {
    user: bool,
    /// The token has privilege separation: what its user has is not the token's until it is given it, too.
    separate: bool,
    /// All roles of the cluster, with their privileges.
    roles: BTreeMap<String, BTreeSet<String>>,
}

/// What the configuration needs of PVE, by the same table that `doctor` judges by.
fn grants(id: &str, settings: &Settings, pve: &PveFound) -> Option<Grants> {
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
    for (path, privileges) in exact.clone() {
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
        needed: exact,
        pools,
        there: GrantsThere::default(),
        trial: SecretTrial::Missing,
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
            let tokens = self.separate_token(self.there.separate);
            let tokens = tokens.map_or_else(String::new, |token| format!(" --tokens '{token}'"));
            let _ = writeln!(
                text,
                "pveum acl modify {path} --users {}{tokens} --roles {role}",
                self.user
            );
        }
        if !self.has_token() {
            let _ = writeln!(
                text,
                "pveum user token add {} {} --privsep 0",
                self.user, self.token
            );
        }
        text
    }

    /// Whether the token is there with its secret, and its rights alone are to be made.
    pub(super) fn has_token(&self) -> bool {
        self.trial == SecretTrial::Taken
    }

    /// The token, if it is given each role beside its user: one with privilege separation has nothing else.
    fn separate_token(&self, separate: bool) -> Option<String> {
        separate.then(|| format!("{}!{}", self.user, self.token))
    }

    /// Whether the token has the privileges that it needs, as PVE tells the token itself. Where PVE does not tell, `doctor` will.
    async fn are_held(&self, of_token: &Client) -> bool {
        for (path, privileges) in &self.needed {
            let Ok(held) = of_token.permissions(path).await else {
                continue;
            };
            if !privileges.iter().all(|privilege| held.contains(*privilege)) {
                return false;
            }
        }
        true
    }

    /// What is said of a token that is there and whose secret is not, or is not known to be.
    fn tell_held(&self, secret_file: &Path) -> String {
        let (user, token, file) = (&self.user, &self.token, secret_file.display());
        let there = format!("the token {user}!{token} is there already");
        let remove =
            format!("remove the token (pveum user token remove {user} {token}) and run this again");
        match &self.trial {
            SecretTrial::Missing | SecretTrial::Taken => format!(
                "{there}, and PVE tells a secret only once: put it into {file}, or {remove}"
            ),
            SecretTrial::Refused(why) => format!(
                "{there}, and its secret in {file} cannot be used: {why}. PVE tells a secret only once: put it into that file, or {remove}"
            ),
            SecretTrial::Silent(why) => format!(
                "{there}, and whether its secret is in {file} could not be tried: {why}. See that proxmox.endpoints answer this host, and run this again"
            ),
        }
    }

    /// Whether the token is there, and then whether it has privilege separation.
    async fn token_there(&self, client: &Client, user: bool) -> anyhow::Result<Option<bool>> {
        if !user {
            return Ok(None);
        }
        Ok(client.tokens(&self.user).await?.remove(&self.token))
    }

    /// Looks at what of it is there already.
    ///
    /// # Errors
    /// The token is there, and nobody can have its secret any more.
    pub(super) async fn look(&mut self, client: &Client, secret_file: &Path) -> anyhow::Result<()> {
        let users = client.users().await;
        let users = if self.has_token() {
            let named = || {
                format!(
                    "the daemon's token {}!{} lacks rights, which only an administrator can give it: run this as root on a host, or answer \
                     proxmox.admin_token_id and admin_token_secret_file; nothing was changed",
                    self.user, self.token
                )
            };
            users.with_context(named)?
        } else {
            users?
        };
        let user = users.contains(&self.user);
        let token = self.token_there(client, user).await?;
        if !self.has_token() && token.is_some() {
            anyhow::bail!("{}; nothing was changed", self.tell_held(secret_file));
        }
        self.there = GrantsThere {
            user,
            separate: token == Some(true),
            roles: client.roles().await?,
        };
        Ok(())
    }

    /// Makes it all, what is there already left as it is but for roles, which get the privileges that are needed. The secret
    /// goes to the file and nowhere else.
    pub(super) async fn make(
        &self,
        client: &Client,
        secret_file: &Path,
        (group, hints): (&str, &mut OwnerHints),
    ) -> anyhow::Result<Vec<String>> {
        let mut done = Vec::new();
        let users = client.users().await?;
        let there = users.contains(&self.user);
        let token = self.token_there(client, there).await?;
        if !self.has_token() && token.is_some() {
            anyhow::bail!("{}", self.tell_held(secret_file));
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
        let separate = self.separate_token(token == Some(true));
        for (path, role) in &self.on {
            let whom = (&*self.user, separate.as_deref());
            client.grant(path, whom, role).await?;
            done.push(format!("{role} on {path}"));
        }
        if !self.has_token() {
            let (made, hint) = self.make_token(client, secret_file, group).await?;
            done.push(made);
            hints.add(hint, secret_file);
        }
        Ok(done)
    }

    /// Makes the token and writes its secret; says what was done, and why the file's owner is another than the daemon's group, if it is.
    async fn make_token(
        &self,
        client: &Client,
        secret_file: &Path,
        group: &str,
    ) -> anyhow::Result<(String, Option<String>)> {
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
        let made = format!(
            "token {}!{}, its secret in {}",
            self.user,
            self.token,
            secret_file.display()
        );
        Ok((made, hint))
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

    /// It finds a setup that tells who has the secret to put it where it is, or one that has a token removed since PVE was away.
    #[test]
    fn what_is_said_of_a_token_that_is_there_goes_by_its_secret() {
        let file = Path::new("/etc/pve-autoscaler/token");
        let said = |trial: SecretTrial| {
            let grants = Grants {
                trial,
                ..granted("")
            };
            (grants.tell_held(file), grants.typed())
        };
        let add = "pveum user token add scaler@pve one --privsep 0\n";
        let remove = "(pveum user token remove scaler@pve one)";
        let (missing, typed) = said(SecretTrial::Missing);
        assert!(missing.contains("put it into /etc/pve-autoscaler/token, or"));
        assert!(missing.contains(remove) && typed.contains(add), "{missing}");
        let (refused, _) = said(SecretTrial::Refused("it is empty".to_owned()));
        assert!(
            refused
                .contains("its secret in /etc/pve-autoscaler/token cannot be used: it is empty."),
            "{refused}"
        );
        assert!(refused.contains(remove), "{refused}");
        let (silent, _) = said(SecretTrial::Silent("no answer".to_owned()));
        assert!(
            silent.contains("could not be tried: no answer. See that proxmox.endpoints"),
            "{silent}"
        );
        assert!(!silent.contains("remove"), "{silent}");
        let (_, typed) = said(SecretTrial::Taken);
        assert!(!typed.contains("token add"), "{typed}");
        assert!(typed.contains("pveum acl modify /pool/kube"), "{typed}");
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
