//! The allow-list: every call that may pass, with every parameter it may have. What is not listed
//! is refused.
//!
//! [`admit`] turns a raw request into a [`AdmittedCall`] of validated pieces; what goes to PVE is written
//! anew from those, so no spelling of the request reaches PVE. Some values can only be judged
//! against the VM's present configuration: [`against::check`] does that right before the call.

pub(super) mod against;
mod mediated;
mod table;
mod values;

#[cfg(test)]
mod tests;

pub(super) use table::RULES;
pub(super) use values::{disk_bytes, mark_of_clone as mark_of, our_cluster};

use crate::config::syntax;
use crate::pve::{self, HttpMethod, Upid};

use super::form;
use super::policy::BrokerPolicy;

/// Every PVE path begins with this.
const BASE: &str = "/api2/json/";
/// Longest path in bytes; a UPID with everything escaped stays below 300.
const MAX_PATH: usize = 512;

/// One line of the allow-list.
#[derive(Debug)]
pub(super) struct AllowRule {
    /// The call's name in audit lines.
    pub(super) name: &'static str,
    pub(super) method: HttpMethod,
    /// Below `/api2/json/`.
    pub(super) path: &'static [PathSegment],
    pub(super) params: &'static [AllowedParam],
    pub(super) needs: VmProof,
}

/// What a path segment must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathSegment {
    /// This word.
    Fixed(&'static str),
    /// A host's name.
    Host,
    /// A VMID.
    Vmid,
    /// The id of a task of the host in the path.
    Upid,
    /// A storage's name.
    Storage,
    /// The name of a mapping of PCI devices, of which machines of some instance type get mediated ones.
    Mapping,
    /// The storage before it, and that what follows is an ISO: `local:iso`.
    Isos,
    /// The name of an ISO for cloud-init of a VM in a range.
    Iso,
    /// The place of a rule in a VM's firewall.
    Position,
}

/// A parameter that a call may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllowedParam {
    pub(super) name: &'static str,
    /// The call is refused without it.
    pub(super) required: bool,
    /// It may be repeated this often.
    pub(super) most: usize,
    /// Brings the parameter's value into the one spelling that is judged and goes to PVE.
    pub(super) tidy: fn(&str) -> String,
    /// Whether that value may be.
    pub(super) check: fn(&BrokerPolicy, &str) -> Result<(), String>,
    /// The parameter's value may stand in an audit line.
    pub(super) loggable: bool,
}

/// What must be true of the VM in the path before the call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VmProof {
    /// Nothing: a read that tells nothing of a VM's inside.
    Nothing,
    /// The VM that a read is about (in its path, its `vmid` or its task's id) lies in a range of the
    /// policy, or is a template of it.
    Reach,
    /// It carries our mark.
    Mark,
    /// The VM that the parameter `vms` names, wherever it is, carries our mark.
    MarkOfNamed,
    /// It carries our mark, and the rule of its firewall that goes is one that we put there and that the file does not want.
    OwnRule,
    /// It carries our mark, and the configuration may not have changed since it was read (the
    /// broker adds the digest).
    MarkAndDigest,
    /// It is a template of the policy; the new VM's mark is in the description.
    Template,
    /// The new VM's mark is in the description, and everything else is what the policy makes VMs of.
    Settings,
    /// The file is an ISO for cloud-init, by its name one of a VM in the range; to come there that VM must carry our mark.
    Iso,
    /// It carries our mark, or is the placeholder of a clone that an intent names, or what is left of
    /// a VM whose removal is recorded.
    MarkOrRecord,
}

/// A request that the list admits, in validated pieces.
#[derive(Clone, Debug)]
pub(super) struct AdmittedCall {
    pub(super) rule: &'static AllowRule,
    pub(super) host: Option<String>,
    /// The VMID in the path.
    pub(super) vmid: Option<u32>,
    /// The task in the path.
    pub(super) task: Option<Upid>,
    /// The place of a rule in the path.
    pub(super) position: Option<usize>,
    pub(super) path: String,
    pub(super) params: Vec<(String, String)>,
}

impl AdmittedCall {
    /// The VM that the call is about, wherever the request names it.
    pub(super) fn subject(&self) -> Option<u32> {
        let of_task = || self.task.as_ref().and_then(|task| values::vmid(task.id()));
        let named = || {
            let named = self.param("vmid").or_else(|| self.param("vms"));
            named.and_then(values::vmid)
        };
        self.vmid.or_else(of_task).or_else(named)
    }

    /// Every host that the call names: PVE connects to it.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        let path = self.host.as_deref();
        path.into_iter().chain(self.param("target"))
    }

    /// The first value of a parameter.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// It changes something at PVE.
    pub(super) fn changes(&self) -> bool {
        self.rule.method != HttpMethod::Get
    }
}

/// A raw request, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) body: &'a [u8],
}

/// Judges a request by policy and list alone. The error says what is not allowed.
pub(super) fn admit(policy: &BrokerPolicy, raw: RawRequest<'_>) -> Result<AdmittedCall, String> {
    if policy.allow.vmids.is_empty() {
        return Err("no region of the configuration uses the broker".to_owned());
    }
    if raw.path.len() > MAX_PATH {
        return Err("the path is too long".to_owned());
    }
    let (rule, mut place) = find(raw)?;
    let text = params_text(rule.method, raw)?;
    let mut params = form::parse(text)?;
    for (name, value) in &mut params {
        let Some(param) = rule.params.iter().find(|param| param.name == *name) else {
            return Err(format!("parameter {name} is not allowed in this call"));
        };
        // From here on there is one text: what is judged is what PVE gets.
        *value = (param.tidy)(value);
    }
    for param in rule.params {
        let values = || params.iter().filter(|(name, _)| name == param.name);
        let count = values().count();
        if count > param.most {
            return Err(format!("parameter {} is given {count} times", param.name));
        }
        if count == 0 && param.required {
            return Err(format!("parameter {} is missing", param.name));
        }
        for (_, value) in values() {
            (param.check)(policy, value)
                .map_err(|why| format!("parameter {}: {why}", param.name))?;
        }
    }
    if let Some(mapping) = &place.mapping {
        mediated::check_mapping(policy, mapping)?;
    }
    if rule.needs == VmProof::Iso {
        place.vmid = Some(iso(policy, &place, &params)?);
    }
    let segments: Vec<&str> = place.segments.iter().map(String::as_str).collect();
    Ok(AdmittedCall {
        rule,
        host: place.host,
        vmid: place.vmid,
        task: place.task,
        position: place.position,
        path: pve::path(&segments),
        params,
    })
}

/// Whose ISO a call is about: one of our range, on a storage of the policy.
fn iso(
    policy: &BrokerPolicy,
    place: &RequestPath,
    params: &[(String, String)],
) -> Result<u32, String> {
    let storage = place.storage.as_deref().unwrap_or_default();
    if !policy
        .allow
        .iso_storages
        .iter()
        .any(|known| known == storage)
    {
        return Err(format!(
            "storage {storage} is none that the configuration names for cloud-init (template.NAME.cloud_init.storage)"
        ));
    }
    let named = params.iter().find(|(name, _)| name == "filename");
    let name = place.segments.last().filter(|_| named.is_none());
    let name = named.map(|(_, file)| file).or(name);
    let vmid = name.and_then(|name| Some(pve::IsoFile::named(name)?.vmid));
    vmid.filter(|vmid| policy.in_range(*vmid))
        .ok_or_else(|| "the file is no ISO of a VM in the configured range".to_owned())
}

/// Where a path leads.
#[derive(Debug, Default)]
struct RequestPath {
    segments: Vec<String>,
    host: Option<String>,
    vmid: Option<u32>,
    task: Option<Upid>,
    storage: Option<String>,
    mapping: Option<String>,
    position: Option<usize>,
}

impl RequestPath {
    /// `STORAGE:iso`, of the storage that stands before it.
    fn is_isos(&self, text: &str) -> bool {
        text.strip_suffix(":iso") == self.storage.as_deref()
    }
}

fn find(raw: RawRequest<'_>) -> Result<(&'static AllowRule, RequestPath), String> {
    let unlisted = || format!("{} of this path is not in the allow-list", raw.method);
    let rest = raw.path.strip_prefix(BASE).ok_or_else(unlisted)?;
    let segments = rest
        .split('/')
        .map(form::segment)
        .collect::<Result<Vec<String>, String>>()?;
    RULES
        .iter()
        .filter(|rule| rule.method.to_string() == raw.method)
        .find_map(|rule| Some((rule, fits(rule.path, &segments)?)))
        .ok_or_else(unlisted)
}

fn fits(pattern: &[PathSegment], segments: &[String]) -> Option<RequestPath> {
    if pattern.len() != segments.len() {
        return None;
    }
    let mut place = RequestPath {
        segments: segments.to_vec(),
        ..RequestPath::default()
    };
    for (want, have) in pattern.iter().zip(segments) {
        match want {
            PathSegment::Fixed(word) if word == have => {}
            PathSegment::Host if values::is_host(have) => place.host = Some(have.clone()),
            PathSegment::Vmid => place.vmid = Some(values::vmid(have)?),
            PathSegment::Upid => {
                let upid: Upid = have.parse().ok()?;
                let here = place.host.as_deref() == Some(&**upid.node());
                if !here || !values::is_our_task(&upid) {
                    return None;
                }
                place.task = Some(upid);
            }
            PathSegment::Storage if values::is_storage(have) => place.storage = Some(have.clone()),
            PathSegment::Mapping if syntax::pve_config_id(have) => {
                place.mapping = Some(have.clone());
            }
            PathSegment::Isos if place.is_isos(have) => {}
            PathSegment::Iso if pve::IsoFile::named(have).is_some() => {}
            PathSegment::Position => place.position = Some(values::position(have)?),
            PathSegment::Fixed(_)
            | PathSegment::Host
            | PathSegment::Storage
            | PathSegment::Mapping
            | PathSegment::Isos
            | PathSegment::Iso => {
                return None;
            }
        }
    }
    Some(place)
}

/// Where the parameters stand: in the query of reads and removals, in the form of the others, and
/// nowhere else at the same time.
fn params_text(method: HttpMethod, raw: RawRequest<'_>) -> Result<&str, String> {
    if method.has_query() {
        if !raw.body.is_empty() {
            return Err("a body where none may be".to_owned());
        }
        return Ok(raw.query.unwrap_or_default());
    }
    if raw.query.is_some() {
        return Err("a query where only a form may be".to_owned());
    }
    let form = "application/x-www-form-urlencoded";
    if !raw.body.is_empty() && raw.content_type != Some(form) {
        return Err(format!("the body must be {form}"));
    }
    std::str::from_utf8(raw.body).map_err(|_| "the form is no text".to_owned())
}
