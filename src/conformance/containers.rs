//! The containers of a pod, with what they ask for, and its volumes. What a pod asks for in all is
//! not added up here: the daemon's own reading of Kubernetes' form does that.

use serde_json::{Map, Value as Json, json};

use super::fields::CaseFields;
use super::scalars::{count, quantity, resource, several, text, texts};
use super::value::{CaseError, CaseValue};

/// What Kubernetes' form of a container may say besides, and no decision reads.
const INDIFFERENT: [&str; 19] = [
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "securityContext",
    "resizePolicy",
    "stdin",
    "tty",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// Both lists of containers, in Kubernetes' form.
#[derive(Debug)]
pub(super) struct Containers {
    pub(super) main: Json,
    pub(super) init: Json,
}

/// Reads `req` (or `containers`), `init`, `sidecar`, `hostPorts`.
pub(super) fn read(fields: &mut CaseFields<'_>) -> Result<Containers, CaseError> {
    let mut main = Vec::new();
    let mut own = Map::new();
    if let Some(value) = fields.any(&["req", "requests"]) {
        own.extend(amount_map(value)?);
    }
    for key in ["cpu", "mem", "memory"] {
        if let Some(value) = fields.take(key) {
            quantity(value)?;
            own.insert(resource(key).to_owned(), value.json());
        }
    }
    for entry in fields.slashed() {
        quantity(&entry.value)?;
        own.insert(entry.key.clone(), entry.value.json());
    }
    let ports = fields.with("hostPorts", ports)?;
    if let Some(value) = fields.take("containers") {
        for (index, item) in several(value).into_iter().enumerate() {
            main.push(container(item, &format!("c{index}"), false)?);
        }
    }
    if main.is_empty() || !own.is_empty() || ports.is_some() {
        main.push(json!({"name": "main", "resources": {"requests": own}, "ports": ports}));
    }
    let mut init = Vec::new();
    for (key, sidecar) in [("sidecar", true), ("sidecars", true)] {
        if let Some(value) = fields.take(key) {
            for item in several(value) {
                init.push(container(item, &format!("s{}", init.len()), sidecar)?);
            }
        }
    }
    for key in ["init", "initContainers"] {
        if let Some(value) = fields.take(key) {
            for item in several(value) {
                init.push(container(item, &format!("i{}", init.len()), false)?);
            }
        }
    }
    Ok(Containers {
        main: Json::Array(main),
        init: Json::Array(init),
    })
}

/// Amounts by resource, checked; as Kubernetes' form.
pub(super) fn amounts(value: &CaseValue) -> Result<Json, CaseError> {
    Ok(Json::Object(amount_map(value)?))
}

/// Pod-level `resources`, in Kubernetes' form or as amounts alone.
pub(super) fn pod_level(value: &CaseValue) -> Result<Json, CaseError> {
    if value.get("requests").is_none() && value.get("limits").is_none() {
        return Ok(json!({ "requests": amounts(value)? }));
    }
    let mut fields = CaseFields::of(value, "the resources")?;
    let requests = fields.with("requests", amounts)?;
    let limits = fields.with("limits", amounts)?;
    fields.done()?;
    Ok(json!({"requests": requests, "limits": limits}))
}

fn amount_map(value: &CaseValue) -> Result<Map<String, Json>, CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("amounts by resource, such as {cpu: 500m, memory: 1Gi}"))?;
    entries
        .iter()
        .filter(|entry| !entry.value.is_null())
        .map(|entry| {
            quantity(&entry.value)?;
            let written = text(&entry.value)?;
            Ok((resource(&entry.key).to_owned(), written.into()))
        })
        .collect()
}

/// `{cpu: 1, memory: 1Gi}`, `{req: {…}, hostPorts: […], sidecar: true}`, or Kubernetes' form.
fn container(value: &CaseValue, name: &str, sidecar: bool) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a container")?;
    let name = fields.with("name", text)?.unwrap_or(name);
    let mut requests = Map::new();
    if let Some(value) = fields.any(&["req", "requests"]) {
        requests.extend(amount_map(value)?);
    }
    let limits = fields.with("limits", amounts)?;
    let mut resources = json!({"requests": requests, "limits": limits});
    if let Some(value) = fields.take("resources") {
        resources = pod_level(value)?;
    }
    let mut ports = fields.with("hostPorts", ports)?;
    if let Some(value) = fields.take("ports") {
        ports = Some(value.json());
    }
    let mut policy = fields.with("restartPolicy", text)?;
    if sidecar || fields.with("sidecar", super::scalars::truth)? == Some(true) {
        policy = Some("Always");
    }
    for key in INDIFFERENT {
        fields.take(key);
    }
    for entry in fields.rest() {
        quantity(&entry.value).map_err(|_| super::value::CaseError {
            at: entry.at.clone(),
            text: format!(
                "a container has no key {:?}; known here: hostPorts, limits, name, ports, req, resources, restartPolicy, sidecar, and resources with a quantity such as cpu: 500m",
                entry.key
            ),
        })?;
        let amount: Json = text(&entry.value)?.into();
        resources["requests"][resource(&entry.key)] = amount;
    }
    Ok(json!({"name": name, "resources": resources, "ports": ports, "restartPolicy": policy}))
}

/// `[8080, "53/UDP", "10.0.0.1:80/TCP", {hostPort: 80}]`.
fn ports(value: &CaseValue) -> Result<Json, CaseError> {
    several(value)
        .into_iter()
        .map(|item| {
            if item.map().is_some() {
                return Ok(item.json());
            }
            let written = text(item)?;
            let (rest, protocol) = written.rsplit_once('/').unwrap_or((written, "TCP"));
            let (ip, port) = match rest.rsplit_once(':') {
                Some((ip, port)) => (Some(ip), port),
                None => (None, rest),
            };
            let number: i32 = port
                .parse()
                .map_err(|_| item.expected("a host port such as 8080, 53/UDP or 10.0.0.1:80"))?;
            Ok(json!({"hostPort": number, "containerPort": number, "protocol": protocol, "hostIP": ip}))
        })
        .collect()
}

/// Volumes: a claim's name, `{pvc: NAME}`, `{emptyDir: {medium: Memory}}`, `{hostPath: /x}`,
/// `{ephemeral: {class: fast}}`, or Kubernetes' form.
pub(super) fn volumes(value: &CaseValue) -> Result<Json, CaseError> {
    several(value)
        .into_iter()
        .enumerate()
        .map(|(index, item)| volume(item, index))
        .collect()
}

/// The sources of volumes that are taken as they are written.
const SOURCES: [&str; 25] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "vsphereVolume",
];

fn volume(value: &CaseValue, index: usize) -> Result<Json, CaseError> {
    let name = format!("v{index}");
    if let Some(written) = value.scalar() {
        return Ok(match written {
            "emptyDir" => json!({"name": name, "emptyDir": {}}),
            "hostPath" => json!({"name": name, "hostPath": {"path": "/x"}}),
            claim => json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}),
        });
    }
    let mut fields = CaseFields::of(value, "a volume")?;
    let name = fields.with("name", text)?.map_or(name, str::to_owned);
    let mut volume = json!({ "name": name });
    if let Some(value) = fields.any(&["pvc", "claim", "persistentVolumeClaim"]) {
        volume["persistentVolumeClaim"] = match value.map() {
            Some(_) => value.json(),
            None => json!({ "claimName": text(value)? }),
        };
    }
    if let Some(value) = fields.take("emptyDir") {
        let marked = matches!(value.scalar(), Some("true"));
        volume["emptyDir"] = match value.scalar() {
            Some(medium) if !marked => json!({ "medium": medium }),
            Some(_) => json!({}),
            None => value.json(),
        };
    }
    if let Some(value) = fields.take("hostPath") {
        volume["hostPath"] = match value.scalar() {
            Some(path) => json!({ "path": path }),
            None => value.json(),
        };
    }
    if let Some(value) = fields.take("ephemeral") {
        let class = match value.scalar() {
            Some("true") => None,
            Some(class) => Some(class.to_owned()),
            None => value.get("class").map(text).transpose()?.map(str::to_owned),
        };
        volume["ephemeral"] = if value.get("volumeClaimTemplate").is_some() {
            value.json()
        } else {
            json!({"volumeClaimTemplate": {"spec": {"storageClassName": class}}})
        };
    }
    for key in SOURCES {
        if let Some(value) = fields.take(key) {
            volume[key] = value.json();
        }
    }
    fields.done()?;
    Ok(volume)
}

/// Attach limits by CSI driver.
pub(super) fn attach_limits(value: &CaseValue) -> Result<Vec<(String, i32)>, CaseError> {
    let entries = value.map().ok_or_else(|| {
        value.expected("attach limits by CSI driver, such as {csi.example.com: 10}")
    })?;
    entries
        .iter()
        .map(|entry| {
            let number = count(&entry.value)?;
            let number =
                i32::try_from(number).map_err(|_| entry.value.expected("a number of volumes"))?;
            Ok((entry.key.clone(), number))
        })
        .collect()
}

/// The names in a list, or the keys of a map.
pub(super) fn names(value: &CaseValue) -> Result<Vec<String>, CaseError> {
    match value.map() {
        Some(entries) => Ok(entries.iter().map(|entry| entry.key.clone()).collect()),
        None => texts(value),
    }
}
