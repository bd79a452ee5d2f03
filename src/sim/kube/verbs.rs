//! What the API server does with an object: get, list, create, update, patch, delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::admission;
use super::auth::User;
use super::object::{deleting, list, name, number, seconds, set, text, uid};
use super::patch;
use super::policy;
use super::resources::{NODES, PDBS, PODS, PVCS, PVS, Res, SERVICEACCOUNTS};
use super::selector::ListSelector;
use super::status::{Status, success};
use super::store::{Key, State, WatchEventKind};
use crate::model::time::Span;

/// A page of a list.
#[derive(Debug)]
pub(super) struct ObjectPage {
    pub(super) version: u64,
    pub(super) items: Vec<Arc<Value>>,
    pub(super) next: Option<String>,
    pub(super) remaining: Option<usize>,
}

/// Query parameters.
pub(super) type Query = BTreeMap<String, String>;

/// One object or 404.
pub(super) fn get(
    state: &State,
    res: Res,
    namespace: &str,
    name: &str,
) -> Result<Arc<Value>, Status> {
    state
        .get(res, namespace, name)
        .ok_or_else(|| Status::not_found(res, name))
}

/// The resourceVersion of a query.
pub(super) fn wanted_version(query: &Query) -> Result<Option<u64>, Status> {
    match query.get("resourceVersion").map(String::as_str) {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!("invalid resource version {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
        }),
    }
}

/// The state of a resource as it was at a version: today's with the changes since undone.
fn as_of(state: &State, res: Res, version: u64) -> Result<BTreeMap<Key, Arc<Value>>, Status> {
    if version < state.forgotten() {
        return Err(Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results.".to_owned(),
        ));
    }
    let mut objects = state.all(res).clone();
    let changes: Vec<_> = state.since(version).collect();
    for change in changes.into_iter().rev() {
        if change.resource != res.stored() {
            continue;
        }
        let key = (
            super::object::namespace(&change.object).to_owned(),
            name(&change.object).to_owned(),
        );
        match (change.event, &change.before) {
            (WatchEventKind::Added, _) | (_, None) => {
                objects.remove(&key);
            }
            (_, Some(before)) => {
                objects.insert(key, Arc::clone(before));
            }
        }
    }
    Ok(objects)
}

/// A list, or a page of one: `limit` and `continue` show one consistent version.
pub(super) fn list_page(
    state: &State,
    res: Res,
    namespace: Option<&str>,
    selector: &ListSelector,
    query: &Query,
) -> Result<ObjectPage, Status> {
    let limit: usize = query
        .get("limit")
        .and_then(|l| l.parse().ok())
        .filter(|l| *l > 0)
        .unwrap_or(usize::MAX);
    let exact = query.get("resourceVersionMatch").map(String::as_str) == Some("Exact");
    let wanted = wanted_version(query)?;
    let mut after: Option<Key> = None;
    let mut at = state.version();
    if let Some(token) = query.get("continue").filter(|c| !c.is_empty()) {
        let (from, key) =
            read_token(token).ok_or_else(|| Status::bad_request("continue key is not valid"))?;
        at = from;
        after = Some(key);
    } else if let Some(wanted) = wanted {
        if wanted > at {
            return Err(Status::from_the_future(wanted, at));
        }
        if exact {
            at = wanted;
        }
    }
    let past;
    let objects = if at == state.version() {
        state.all(res)
    } else {
        past = as_of(state, res, at)?;
        &past
    };
    let (mut items, mut rest, mut last) = (Vec::new(), 0, None);
    for (key, object) in objects {
        if after.as_ref().is_some_and(|a| key <= a)
            || namespace.is_some_and(|n| key.0 != n)
            || !selector.matches(object)
        {
            continue;
        }
        if items.len() < limit {
            items.push(Arc::clone(object));
            last = Some(key.clone());
        } else {
            rest += 1;
        }
    }
    let next = last.filter(|_| rest > 0).map(|key| write_token(at, &key));
    Ok(ObjectPage {
        version: at,
        items,
        remaining: next.as_ref().filter(|_| selector.is_all()).map(|_| rest),
        next,
    })
}

fn write_token(version: u64, key: &Key) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": key}).to_string())
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let part = |at: usize| value["start"][at].as_str().map(str::to_owned);
    Some((value["rv"].as_u64()?, (part(0)?, part(1)?)))
}

/// Creates an object.
pub(super) fn create(
    state: &mut State,
    res: Res,
    namespace: &str,
    object: Value,
    user: &User,
) -> Result<Arc<Value>, Status> {
    let object = admission::create(state, res, namespace, object, user)?;
    policy::create(state, res, &object, user)?;
    let stored = state.insert(res, object)?;
    if res == super::resources::NAMESPACES && !state.dry {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name(&stored)},
        });
        state.insert(SERVICEACCOUNTS, account)?;
    }
    Ok(stored)
}

/// Replaces an object (PUT): its resourceVersion, where given, must be the stored one.
pub(super) fn update(
    state: &mut State,
    res: Res,
    namespace: &str,
    wanted: &str,
    subresource: &str,
    object: Value,
    user: &User,
) -> Result<Arc<Value>, Status> {
    let old = get(state, res, namespace, wanted)?;
    let given = text(&object, "/metadata/resourceVersion");
    if !given.is_empty() && given != text(&old, "/metadata/resourceVersion") {
        return Err(Status::modified(res, wanted));
    }
    let new = admission::update(res, &old, object, subresource, user)?;
    policy::change(state, (res, subresource), (&old, Some(&new)), user)?;
    Ok(state.replace(res, new))
}

/// A patch and how to read it.
#[derive(Debug)]
pub(super) struct Patch<'a> {
    /// `Content-Type`.
    pub(super) media: &'a str,
    pub(super) body: Value,
    /// `fieldManager` of server-side apply.
    pub(super) manager: &'a str,
    pub(super) force: bool,
}

/// What a patch may be.
pub(super) const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Patches an object.
pub(super) fn patch(
    state: &mut State,
    res: Res,
    namespace: &str,
    wanted: &str,
    subresource: &str,
    patch: &Patch,
    user: &User,
) -> Result<(Arc<Value>, bool), Status> {
    if patch.media == "application/apply-patch+yaml" {
        return apply(state, res, namespace, wanted, subresource, patch, user);
    }
    let old = get(state, res, namespace, wanted)?;
    let mut new = Value::clone(&old);
    match patch.media {
        "application/json-patch+json" => patch::json_patch(&mut new, &patch.body)?,
        "application/merge-patch+json" => patch::merge(&mut new, &patch.body),
        "application/strategic-merge-patch+json" => patch::strategic(&mut new, &patch.body),
        _ => return Err(Status::media_type(&PATCHES)),
    }
    update(state, res, namespace, wanted, subresource, new, user).map(|o| (o, false))
}

/// Server-side apply. The second half of the answer: whether the object was created.
fn apply(
    state: &mut State,
    res: Res,
    namespace: &str,
    wanted: &str,
    subresource: &str,
    patch: &Patch,
    user: &User,
) -> Result<(Arc<Value>, bool), Status> {
    if patch.manager.is_empty() {
        return Err(Status::bad_request(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ));
    }
    let mut configuration = patch.body.clone();
    let Some(old) = state.get(res, namespace, wanted) else {
        set(&mut configuration, &["metadata", "name"], json!(wanted));
        let made = create(state, res, namespace, configuration.clone(), user)?;
        remember(state, &made, patch.manager, configuration);
        return Ok((made, true));
    };
    let given = text(&configuration, "/metadata/resourceVersion");
    if !given.is_empty() && given != text(&old, "/metadata/resourceVersion") {
        return Err(Status::modified(res, wanted));
    }
    super::object::unset(&mut configuration, &["metadata", "resourceVersion"]);
    if !patch.force
        && let Some(field) = contested(state, &old, patch.manager, &configuration)
    {
        return Err(Status {
            details: json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with another manager", "field": field}]}),
            ..Status::conflict(
                res,
                wanted,
                &format!("Apply failed with 1 conflict: conflict with another manager: {field}"),
            )
        });
    }
    let mut new = Value::clone(&old);
    let key = (uid(&old).to_owned(), patch.manager.to_owned());
    if let Some(before) = state.applied.get(&key) {
        patch::prune(&mut new, before, &configuration, "");
    }
    patch::apply(&mut new, &configuration);
    let stored = update(state, res, namespace, wanted, subresource, new, user)?;
    remember(state, &stored, patch.manager, configuration);
    Ok((stored, false))
}

fn remember(state: &mut State, object: &Value, manager: &str, configuration: Value) {
    if !state.dry {
        state
            .applied
            .insert((uid(object).to_owned(), manager.to_owned()), configuration);
    }
}

/// The first field that another manager applied with a value of its own.
fn contested(state: &State, object: &Value, manager: &str, new: &Value) -> Option<String> {
    fn differing(theirs: &Value, ours: &Value, path: &str) -> Option<String> {
        match (theirs, ours) {
            (Value::Object(a), Value::Object(b)) => b
                .iter()
                .filter(|(key, _)| {
                    !(path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind"))
                })
                .find_map(|(key, value)| differing(a.get(key)?, value, &format!("{path}.{key}"))),
            (Value::Array(_), _) => None,
            _ if theirs != ours => Some(path.to_owned()),
            _ => None,
        }
    }
    let own = uid(object);
    state
        .applied
        .iter()
        .filter(|((id, who), _)| id == own && who != manager)
        .find_map(|(_, theirs)| differing(theirs, new, ""))
}

/// `DeleteOptions`, from the body with the query laid over it.
pub(super) fn delete_options(body: Value, query: &Query) -> Value {
    let mut options = if body.is_object() { body } else { json!({}) };
    if let Some(grace) = query
        .get("gracePeriodSeconds")
        .and_then(|g| g.parse::<i64>().ok())
    {
        set(&mut options, &["gracePeriodSeconds"], json!(grace));
    }
    if let Some(policy) = query.get("propagationPolicy") {
        set(&mut options, &["propagationPolicy"], json!(policy));
    }
    options
}

/// Checks the preconditions of `DeleteOptions`.
pub(super) fn preconditions(res: Res, object: &Value, options: &Value) -> Result<(), Status> {
    let wanted = text(options, "/preconditions/uid");
    if !wanted.is_empty() && wanted != uid(object) {
        return Err(Status::other_uid(res, name(object), wanted, uid(object)));
    }
    let wanted = text(options, "/preconditions/resourceVersion");
    let found = text(object, "/metadata/resourceVersion");
    if !wanted.is_empty() && wanted != found {
        return Err(Status::other_version(res, name(object), wanted, found));
    }
    Ok(())
}

/// How long a pod gets to stop, in seconds.
fn grace(pod: &Value, options: &Value) -> i64 {
    let phase = text(pod, "/status/phase");
    if text(pod, "/spec/nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    number(options, "/gracePeriodSeconds")
        .or_else(|| number(pod, "/spec/terminationGracePeriodSeconds"))
        .unwrap_or(30)
        .max(0)
}

/// Deletes an object, or begins to: pods get their grace, finalizers hold.
pub(super) fn delete(
    state: &mut State,
    res: Res,
    namespace: &str,
    wanted: &str,
    options: &Value,
) -> Result<Value, Status> {
    let object = get(state, res, namespace, wanted)?;
    preconditions(res, &object, options)?;
    let mut new = Value::clone(&object);
    let policy = text(options, "/propagationPolicy");
    for (named, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let mut finalizers = list(&new, "/metadata/finalizers").to_vec();
        if policy == named && !finalizers.iter().any(|f| f == finalizer) {
            finalizers.push(json!(finalizer));
            set(
                &mut new,
                &["metadata", "finalizers"],
                Value::Array(finalizers),
            );
        }
    }
    let wait = if res == PODS {
        grace(&object, options)
    } else {
        0
    };
    let held = !list(&new, "/metadata/finalizers").is_empty()
        || !list(&new, "/spec/finalizers").is_empty();
    if !held && wait == 0 {
        let gone = state.remove(res, &object);
        return Ok(farewell(res, &gone));
    }
    let before = number(&object, "/metadata/deletionGracePeriodSeconds");
    if !deleting(&object) || before.is_some_and(|b| wait < b) {
        let end = seconds(state.now + Span::seconds(wait));
        set(&mut new, &["metadata", "deletionTimestamp"], json!(end));
        set(
            &mut new,
            &["metadata", "deletionGracePeriodSeconds"],
            json!(wait),
        );
        if res == super::resources::NAMESPACES {
            set(&mut new, &["status", "phase"], json!("Terminating"));
        }
    }
    Ok(Value::clone(&state.replace(res, new)))
}

/// What DELETE answers: some kinds show the object, the others a Status.
fn farewell(res: Res, object: &Value) -> Value {
    let shows =
        matches!(res, PODS | PVCS | PVS | SERVICEACCOUNTS) || res.row().group == "storage.k8s.io";
    if shows {
        object.clone()
    } else {
        success(Some((res, name(object), uid(object))))
    }
}

/// Whether a write to this resource is worth a line in the judge's book: deletions of nodes that
/// still hold pods, and of pods past their budget.
pub(super) fn note_deletion(state: &mut State, res: Res, object: &Value, user: &User) {
    // People know what they do.
    let outsider = user.node().is_none() && *user != User::admin();
    if res == NODES && outsider && super::object::is_true(object, "Ready") {
        let bound: Vec<String> = state
            .all(PODS)
            .values()
            .filter(|p| text(p, "/spec/nodeName") == name(object) && must_be_drained(p))
            .map(|p| format!("{}/{}", super::object::namespace(p), name(p)))
            .collect();
        if !bound.is_empty() {
            state.violations.push(format!(
                "{}: node {} was deleted with undrained pods: {}",
                state.now,
                name(object),
                bound.join(", ")
            ));
        }
    }
    if res == PODS && outsider && must_be_drained(object) {
        let spent = state.all(PDBS).values().find(|b| {
            super::eviction::covers(b, object)
                && number(b, "/status/disruptionsAllowed").unwrap_or(0) <= 0
        });
        let spent = spent.map(|b| name(b).to_owned());
        if let Some(budget) = spent {
            state.violations.push(format!(
                "{}: pod {} was deleted past its disruption budget {budget} by {}",
                state.now,
                name(object),
                user.name
            ));
        }
    }
}

/// Whether a drain has to move the pod before its node may go.
pub(super) fn must_be_drained(pod: &Value) -> bool {
    let own = super::object::controller(pod).map_or("", |o| text(o, "/kind"));
    !super::object::is_mirror(pod)
        && own != "DaemonSet"
        && !deleting(pod)
        && text(pod, "/status/phase") == "Running"
}
