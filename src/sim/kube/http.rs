//! The door: paths, bodies, who may, and the way from a request to a verb and back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query as QueryOf, Request, State as StateOf};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, Uri, header};
use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::auth::{self, Attributes, User};
use super::media::ObjectForm;
use super::object::{list, name, namespace, set};
use super::pki::certificate_bearer_of;
use super::protobuf::{self, ProtobufError};
use super::resources::{NAMESPACES, Res};
use super::selector::ListSelector;
use super::status::{Status, answer, success};
use super::store::State;
use super::verbs::{self, PATCHES, Patch, Query};
use super::watch::{Watch, line, next_bookmark};
use super::{Kube, discovery, events, eviction, facts, policy, supervisor};
use crate::sim::faults::LATE;
use crate::sim::listen::PeerCertificate;

/// The API server's own limit of a request body.
const MOST_BODY: usize = 3 * 1024 * 1024;
/// What a body of any kind may be written in. The real one reads YAML and protobuf of its own kinds, too, and of custom resources no protobuf.
const BODIES: [&str; 1] = ["application/json"];
/// What kubectl writes some bodies in; of [some kinds](super::protobuf) it is read.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// `--min-request-timeout`: a watch without a limit lasts this long, up to twice.
const WATCH_SECONDS: u64 = 1_800;

/// The server behind a router.
#[derive(Clone, Debug)]
pub(super) struct ApiServer {
    pub(super) kube: Kube,
    /// Who a caller without credentials is.
    pub(super) stranger: User,
}

/// A resource path, read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourcePath {
    res: Res,
    namespace: Option<String>,
    name: Option<String>,
    subresource: String,
}

impl ResourcePath {
    fn space(&self) -> &str {
        self.namespace.as_deref().unwrap_or("")
    }
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }
}

/// An item of a list: without kind and version, as the API server writes them.
struct ListedItem<'a>(&'a Value);

impl Serialize for ListedItem<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(members) = self.0 else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in members {
            if key != "kind" && key != "apiVersion" {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

/// Percent-decodes a path segment.
fn unescaped(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| segment.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn target(segments: &[String]) -> Option<ResourcePath> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (space, rest) = match rest {
        ["namespaces", space, plural, tail @ ..] if !matches!(*plural, "status" | "finalize") => {
            (Some((*space).to_owned()), [&[*plural][..], tail].concat())
        }
        other => (None, other.to_vec()),
    };
    let (plural, tail) = rest.split_first()?;
    let res = Res::find(group, version, plural)?;
    if space.is_some() && !res.row().namespaced || tail.len() > 2 {
        return None;
    }
    let name = tail.first().map(|n| (*n).to_owned());
    if name.is_some() && res.row().namespaced && space.is_none() {
        return None;
    }
    Some(ResourcePath {
        res,
        namespace: space,
        name,
        subresource: tail.get(1).map_or(String::new(), |s| (*s).to_owned()),
    })
}

/// Serves one request.
pub(super) async fn serve(StateOf(door): StateOf<ApiServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, uri) = (parts.method, parts.uri);
    let peer = parts.extensions.get::<PeerCertificate>();
    let response = match handle(&door, &method, &uri, &parts.headers, peer, body).await {
        Ok(response) => response,
        Err(status) => status.into_response(),
    };
    let mut state = door.kube.inner.lock();
    let now = state.now.0;
    state.trace.add(format!(
        "{now} {method} {uri} {}",
        response.status().as_u16()
    ));
    drop(state);
    response
}

async fn handle(
    door: &ApiServer,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    peer: Option<&PeerCertificate>,
    body: Body,
) -> Result<Response, Status> {
    let segments: Vec<String> = uri
        .path()
        .split('/')
        .filter(|s| !s.is_empty())
        .map(unescaped)
        .collect();
    let user = caller(door, headers, peer)?;
    if let Some(response) = plain_path(door, method, (uri, headers), &segments, &user) {
        return response;
    }
    if supervisor::is_for(door.kube.inner.spec.distribution, &segments) {
        let body = axum::body::to_bytes(body, MOST_BODY)
            .await
            .map_err(|_| Status::too_large())?;
        let asked = (method, &segments[..]);
        return Ok(supervisor::answer(
            &door.kube.inner,
            asked,
            &user,
            headers,
            &body,
        ));
    }
    let target = target(&segments).ok_or_else(Status::no_such_path)?;
    let query: Query = QueryOf::<Query>::try_from_uri(uri)
        .map_err(|e| Status::bad_request(e.to_string()))?
        .0;
    let watching = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
    let verb = verb(method, &target, watching)?;
    authorise(&user, verb, &target)?;
    let bytes = axum::body::to_bytes(body, MOST_BODY)
        .await
        .map_err(|_| Status::too_large())?;
    let shape = ObjectForm::asked(headers)?;
    if matches!(verb, "list" | "watch") {
        return many(&door.kube, &target, &query, shape, verb == "watch");
    }
    let media = media_of_body(headers);
    let value = read_body(&bytes, media, verb)?;
    let mut state = door.kube.inner.lock();
    state.dry = query.get("dryRun").map(String::as_str) == Some("All");
    let of = (target.res, target.space(), target.name());
    let late = headers.contains_key(LATE);
    let deed = facts::begin_deed(&state, of, verb, &target.subresource, &user, late);
    let done = one(&mut state, &target, verb, &query, media, value, &user);
    state.dry = false;
    if done.is_ok() {
        facts::end_deed(&mut state, of, deed);
    }
    drop(state);
    let (code, object) = done?;
    Ok(answer(code, &shape_answer(shape, target.res, object)))
}

fn shape_answer(shape: ObjectForm, res: Res, object: Value) -> Value {
    if object["kind"] == "Status" {
        return object;
    }
    Value::clone(&shape.of(res, &Arc::new(object)))
}

/// The caller by his client certificate, else by his bearer token (the API server asks its authenticators in this
/// order).
fn caller(
    door: &ApiServer,
    headers: &HeaderMap,
    peer: Option<&PeerCertificate>,
) -> Result<User, Status> {
    let inner = &door.kube.inner;
    let shown = peer.map(|PeerCertificate(der)| certificate_bearer_of(der));
    if let Some(bearer) = shown {
        return auth::authenticate(&inner.lock(), &inner.spec, &bearer)
            .ok_or_else(Status::unauthorized);
    }
    let Some(given) = headers.get(header::AUTHORIZATION) else {
        return Ok(door.stranger.clone());
    };
    let token = given
        .to_str()
        .ok()
        .and_then(|t| t.strip_prefix("Bearer "))
        .unwrap_or("")
        .trim();
    auth::authenticate(&inner.lock(), &inner.spec, token).ok_or_else(Status::unauthorized)
}

/// Health, version and discovery.
fn plain_path(
    door: &ApiServer,
    method: &Method,
    (uri, headers): (&Uri, &HeaderMap),
    segments: &[String],
    user: &User,
) -> Option<Result<Response, Status>> {
    let front = segments.first().map_or("", String::as_str);
    if matches!(front, "livez" | "readyz" | "healthz") {
        return Some(Ok("ok".into_response()));
    }
    let body = discovery::answer(&door.kube.inner.spec, segments)?;
    let known = user.groups.iter().any(|g| g == "system:authenticated");
    if front != "version" && !known {
        return Some(Err(Status::forbidden_path(&user.name, "get", uri.path())));
    }
    // The version is JSON for whoever asks.
    if let Err(refusal) = ObjectForm::asked(headers)
        && front != "version"
    {
        return Some(Err(refusal));
    }
    Some(if method == Method::GET {
        Ok(answer(200, &body))
    } else {
        Err(Status::not_allowed())
    })
}

fn verb(method: &Method, target: &ResourcePath, watching: bool) -> Result<&'static str, Status> {
    let named = target.name.is_some();
    Ok(match (method, named) {
        (&Method::GET, true) => "get",
        (&Method::GET, false) if watching => "watch",
        (&Method::GET, false) => "list",
        (&Method::POST, false) => "create",
        (&Method::POST, true) if !target.subresource.is_empty() => "create",
        (&Method::PUT, true) => "update",
        (&Method::PATCH, true) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return Err(Status::not_allowed()),
    })
}

fn authorise(user: &User, verb: &str, target: &ResourcePath) -> Result<(), Status> {
    let row = target.res.row();
    let resource = if target.subresource.is_empty() {
        row.plural.to_owned()
    } else {
        format!("{}/{}", row.plural, target.subresource)
    };
    let asked = Attributes {
        verb,
        group: row.group,
        resource: &resource,
        namespace: target.space(),
        name: target.name(),
    };
    if auth::allowed(user, &asked) {
        return Ok(());
    }
    Err(Status::forbidden(
        target.res,
        target.name(),
        &auth::refusal(user, &asked),
    ))
}

/// What the request says that its body is written in; JSON where it says nothing.
fn media_of_body(headers: &HeaderMap) -> &str {
    let told = headers.get(header::CONTENT_TYPE);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    match told.split(';').next().unwrap_or_default().trim() {
        "" | "*/*" => "application/json",
        named => named,
    }
}

fn read_body(bytes: &[u8], media: &str, verb: &str) -> Result<Value, Status> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    // The real one looks at the type before the body: what is no JSON is not told as wrong JSON.
    let taken = if verb == "patch" {
        &PATCHES[..]
    } else {
        &BODIES[..]
    };
    if media == PROTOBUF && verb != "patch" {
        return protobuf::read_object(bytes).map_err(|unread| match unread {
            ProtobufError::OtherKind => Status::media_type(taken),
            ProtobufError::Wrong(why) => Status::bad_request(why),
        });
    }
    if !taken.contains(&media) {
        return Err(Status::media_type(taken));
    }
    serde_json::from_slice(bytes).map_err(|e| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type JSON): {e}"
        ))
    })
}

/// List and watch.
fn many(
    kube: &Kube,
    target: &ResourcePath,
    query: &Query,
    shape: ObjectForm,
    watching: bool,
) -> Result<Response, Status> {
    let part = |key: &str| query.get(key).map_or("", String::as_str);
    if target.res.row().review {
        return Err(Status::not_allowed());
    }
    let selector = ListSelector::parse(target.res, part("labelSelector"), part("fieldSelector"))?;
    let space = target.namespace.as_deref();
    if query.contains_key("sendInitialEvents") {
        // A server without the WatchList feature.
        return Err(Status {
            code: 422,
            reason: "Invalid",
            message: "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled".to_owned(),
            details: json!({"group": "meta.k8s.io", "kind": "ListOptions"}),
            retry_after: 0,
        });
    }
    let mut state = kube.inner.lock();
    if watching {
        return watch(kube, &mut state, target, query, selector, shape);
    }
    let page = verbs::list_page(&state, target.res, space, &selector, query)?;
    drop(state);
    let row = target.res.row();
    let shown: Vec<Arc<Value>> = page.items.iter().map(|o| shape.of(target.res, o)).collect();
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if let Some(next) = page.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let (kind, version) = match shape {
        ObjectForm::Whole => (format!("{}List", row.kind), row.api_version()),
        ObjectForm::Metadata => (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        ),
    };
    let items: Vec<ListedItem> = shown.iter().map(|o| ListedItem(o)).collect();
    // The real one's conversion to metadata leaves a list of nothing unset, which is `null` in JSON.
    let is_null = items.is_empty() && matches!(shape, ObjectForm::Metadata);
    let items = serde_json::to_string(&(!is_null).then_some(items))
        .map_err(|e| Status::internal(&e.to_string()))?;
    let text = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":{items}}}"
    );
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn watch(
    kube: &Kube,
    state: &mut State,
    target: &ResourcePath,
    query: &Query,
    selector: ListSelector,
    shape: ObjectForm,
) -> Result<Response, Status> {
    let from = verbs::wanted_version(query)?.filter(|v| *v > 0);
    let space = target.namespace.clone();
    let mut front = None;
    if from.is_none() {
        let mut text = String::new();
        for object in state.all(target.res).values() {
            let here = space.as_ref().is_none_or(|s| s == namespace(object));
            if here && selector.matches(object) {
                text.push_str(&line("ADDED", &shape.of(target.res, object)));
            }
        }
        front = (!text.is_empty()).then_some(text);
    }
    let seconds = query
        .get("timeoutSeconds")
        .and_then(|t| t.parse().ok())
        .filter(|t| *t > 0)
        .unwrap_or_else(|| WATCH_SECONDS + state.roll(WATCH_SECONDS));
    let mut over = false;
    let version = from.unwrap_or_else(|| state.version());
    if version < state.forgotten() {
        over = true;
        let refusal = Status::expired(format!(
            "too old resource version: {version} ({})",
            state.forgotten()
        ));
        front = Some(line("ERROR", &refusal.json()));
    }
    let bookmarks = matches!(
        query.get("allowWatchBookmarks").map(String::as_str),
        Some("true" | "1")
    );
    let watch = Watch {
        inner: Arc::downgrade(&kube.inner),
        res: target.res,
        namespace: space,
        selector,
        shape,
        bookmarks,
        version,
        bell: state.bell(target.res),
        deadline: Instant::now() + Duration::from_secs(seconds),
        next_bookmark: next_bookmark(),
        front,
        over,
    };
    Ok(watch.respond())
}

/// Everything that concerns one object.
fn one(
    state: &mut State,
    target: &ResourcePath,
    verb: &str,
    query: &Query,
    media: &str,
    body: Value,
    user: &User,
) -> Result<(u16, Value), Status> {
    let (res, space, wanted) = (target.res, target.space(), target.name());
    if res.row().review {
        return auth::review(state, (res, space), user, body).map(|answer| (201, answer));
    }
    check_subresource(target)?;
    let body = events::inward(res, body);
    match (verb, target.subresource.as_str()) {
        ("create", "eviction") => {
            eviction::evict(state, space, wanted, &body, user).map(|v| (201, v))
        }
        ("create", "binding") => eviction::bind(state, space, wanted, &body).map(|v| (201, v)),
        (_, "scale") => scale(state, target, verb, media, &body, user).map(|v| (200, v)),
        ("get", _) => verbs::get(state, res, space, wanted).map(|o| (200, Value::clone(&o))),
        ("create", _) => {
            verbs::create(state, res.stored(), space, body, user).map(|o| (201, Value::clone(&o)))
        }
        ("update", sub) => verbs::update(state, res.stored(), space, wanted, sub, body, user)
            .map(|o| (200, Value::clone(&o))),
        ("patch", sub) => {
            let patch = Patch {
                media,
                body,
                manager: query.get("fieldManager").map_or("", String::as_str),
                force: query.get("force").map(String::as_str) == Some("true"),
            };
            verbs::patch(state, res.stored(), space, wanted, sub, &patch, user)
                .map(|(o, made)| (if made { 201 } else { 200 }, Value::clone(&o)))
        }
        ("delete", _) => {
            let options = verbs::delete_options(body, query);
            let object = verbs::get(state, res, space, wanted)?;
            verbs::preconditions(res, &object, &options)?;
            policy::change(state, (res, ""), (&object, None), user)?;
            verbs::note_deletion(state, res, &object, user);
            verbs::delete(state, res.stored(), space, wanted, &options).map(|v| (200, v))
        }
        _ => delete_all(state, target, query, body),
    }
}

fn check_subresource(target: &ResourcePath) -> Result<(), Status> {
    let row = target.res.row();
    let sub = target.subresource.as_str();
    let known = sub.is_empty()
        || (sub == "status" && row.status)
        || (sub == "finalize" && target.res == NAMESPACES)
        || row.subresources.iter().any(|(name, _)| *name == sub);
    if known {
        Ok(())
    } else {
        Err(Status::no_such_path())
    }
}

fn delete_all(
    state: &mut State,
    target: &ResourcePath,
    query: &Query,
    body: Value,
) -> Result<(u16, Value), Status> {
    let part = |key: &str| query.get(key).map_or("", String::as_str);
    let selector = ListSelector::parse(target.res, part("labelSelector"), part("fieldSelector"))?;
    let options = verbs::delete_options(body, query);
    if target.res.row().namespaced && target.namespace.is_none() {
        return Err(Status::not_allowed());
    }
    for object in state.snapshot(target.res) {
        let here = target
            .namespace
            .as_ref()
            .is_none_or(|n| n == namespace(&object));
        if here && selector.matches(&object) {
            verbs::delete(
                state,
                target.res.stored(),
                namespace(&object),
                name(&object),
                &options,
            )?;
        }
    }
    Ok((200, success(None)))
}

/// The `scale` subresource.
fn scale(
    state: &mut State,
    target: &ResourcePath,
    verb: &str,
    media: &str,
    body: &Value,
    user: &User,
) -> Result<Value, Status> {
    let (res, space, wanted) = (target.res, target.space(), target.name());
    let mut object = Value::clone(&*verbs::get(state, res, space, wanted)?);
    if matches!(verb, "update" | "patch") {
        let replicas = if media == "application/json-patch+json" {
            list(body, "")
                .iter()
                .find(|o| o["path"] == "/spec/replicas")
                .map(|o| o["value"].clone())
        } else {
            body.pointer("/spec/replicas").cloned()
        };
        if let Some(replicas) = replicas {
            set(&mut object, &["spec", "replicas"], replicas);
        }
        object = Value::clone(&*verbs::update(
            state, res, space, wanted, "", object, user,
        )?);
    } else if verb != "get" {
        return Err(Status::not_allowed());
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": name(&object), "namespace": space,
            "uid": object["metadata"]["uid"],
            "resourceVersion": object["metadata"]["resourceVersion"],
            "creationTimestamp": object["metadata"]["creationTimestamp"],
        },
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)},
    }))
}
