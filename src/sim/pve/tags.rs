//! Which tags a caller may give VMs and take from them: `registered-tags` and `user-tag-access` of datacenter.cfg (pve-guest-common,
//! `PVE/GuestHelpers.pm`; pve-manager, `PVE/API2/Cluster.pm`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::CheckedCall;
use super::access::Caller;
use super::schema::split;
use super::table::{ApiMethod, CallDuration, CallHandler, NeededPrivilege, call};
use super::wire::ErrorAnswer;
use super::world::PveWorld;

/// The call that is answered here.
pub(super) const CALLS: &[ApiMethod] = &[call(
    "GET",
    "/cluster/options",
    CallHandler::ClusterOptions,
    CallDuration::Read,
    NeededPrivilege::None,
    &[],
)];

/// What datacenter.cfg says of tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagAccess {
    /// `registered-tags`: tags for those alone who have `Sys.Modify` on `/`.
    pub registered: Vec<String>,
    /// `user-allow` of `user-tag-access`: which other tags everybody else may use.
    pub user_allow: UserTags,
    /// `user-allow-list` of `user-tag-access`.
    pub user_allow_list: Vec<String>,
}

/// Which tags those may use who have no `Sys.Modify` on `/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserTags {
    /// None.
    None,
    /// Those of the list.
    List,
    /// Those of the list, and those that a guest has which they see.
    Existing,
    /// Any.
    #[default]
    Free,
}

impl PveWorld {
    /// `GET /cluster/options`: datacenter.cfg as far as the caller may see it, and the tags that he may use by name.
    pub(super) fn cluster_options(&self, caller: &Caller) -> Value {
        let allowed = json!(self.allowed_tags(caller));
        if !self.allowed(caller, "/", &["Sys.Audit"]) {
            return json!({ "allowed-tags": allowed });
        }
        let access = &self.spec.tag_access;
        let mut options = json!({ "mac_prefix": "BC:24:11", "allowed-tags": allowed });
        if !access.registered.is_empty() {
            options["registered-tags"] = json!(access.registered);
        }
        if access.user_allow != UserTags::Free {
            options["user-tag-access"] = json!({ "user-allow": access.user_allow });
            if !access.user_allow_list.is_empty() {
                options["user-tag-access"]["user-allow-list"] = json!(access.user_allow_list);
            }
        }
        options
    }

    /// The tags that a caller may use by name (`get_allowed_tags`).
    fn allowed_tags(&self, caller: &Caller) -> BTreeSet<String> {
        let all = self.allowed(caller, "/", &["Sys.Modify"]);
        let access = &self.spec.tag_access;
        let mut allowed = BTreeSet::new();
        if all || access.user_allow != UserTags::None {
            allowed.extend(access.user_allow_list.iter().cloned());
        }
        if all || matches!(access.user_allow, UserTags::Existing | UserTags::Free) {
            for vm in self.vms.values() {
                let path = format!("/vms/{}", vm.vmid);
                if all || self.allowed(caller, &path, &["VM.Audit"]) {
                    allowed.extend(split(vm.text("tags")).map(str::to_owned));
                }
            }
        }
        if all {
            allowed.extend(access.registered.iter().cloned());
        } else {
            allowed.retain(|tag| !access.registered.contains(tag));
        }
        allowed
    }

    /// Refuses a change of a VM's tags of which the caller may not make each (`assert_tag_permissions`).
    pub(super) fn check_tags(&self, asked: &CheckedCall) -> Result<(), ErrorAnswer> {
        let caller = &asked.caller;
        if self.allowed(caller, "/", &["Sys.Modify"]) {
            return Ok(());
        }
        let has = self.vms.get(&asked.vmid).map_or("", |vm| vm.text("tags"));
        let has: BTreeSet<&str> = split(has).collect();
        let wanted: BTreeSet<&str> = split(asked.text("tags")).collect();
        let access = &self.spec.tag_access;
        let allowed = self.allowed_tags(caller);
        let free = access.user_allow == UserTags::Free;
        for tag in has.symmetric_difference(&wanted) {
            let registered = access.registered.iter().any(|one| one == tag);
            if registered || !(free || allowed.contains(*tag)) {
                return Err(ErrorAnswer::forbidden(format!(
                    "Permission check failed (/, Sys.Modify for modifying tag '{tag}')"
                )));
            }
        }
        Ok(())
    }
}
