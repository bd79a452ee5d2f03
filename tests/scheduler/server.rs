//! Worlds into the API server and out of it again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use http::{Method, Request};
use serde_json::{Value, json};

use super::volumes::{HOLD, Made};
use super::world::{NAMESPACES, World};

/// No answer of the API server to one request takes longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Times a request is sent again that the server could not take: a status conflict, or too many.
const TRIES: usize = 5;

/// An administrator's client.
#[derive(Clone)]
pub(crate) struct Server(kube::Client);

/// What the API server said to one request, when it was no success.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl Server {
    pub(crate) async fn connect(kubeconfig: &str) -> Server {
        let file = kube::config::Kubeconfig::read_from(kubeconfig)
            .unwrap_or_else(|error| panic!("{kubeconfig}: {error}"));
        let config =
            kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                .await
                .unwrap_or_else(|error| panic!("{kubeconfig}: {error}"));
        Server(
            kube::Client::try_from(config).unwrap_or_else(|error| panic!("{kubeconfig}: {error}")),
        )
    }

    /// One request, and again when the server was too busy.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Refused> {
        let kind = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let data = if body.is_null() {
                Vec::new()
            } else {
                body.to_string().into_bytes()
            };
            let request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header("content-type", kind)
                .body(data)
                .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            let answer = tokio::time::timeout(DEADLINE, self.0.request::<Value>(request)).await;
            match answer.unwrap_or_else(|_| panic!("{method} {path}: no answer")) {
                Ok(value) => return Ok(value),
                Err(kube::Error::Api(status)) => {
                    if !matches!(status.code, 409 | 429 | 500..)
                        || tries == TRIES
                        || status.reason == "AlreadyExists"
                    {
                        return Err(Refused {
                            code: status.code,
                            message: status.message,
                        });
                    }
                }
                Err(error) if tries == TRIES => panic!("{method} {path}: {error}"),
                Err(_) => {}
            }
        }
    }

    /// Creates an object and gives back what the server made of it.
    pub(crate) async fn create(&self, object: &Value) -> Result<Value, Refused> {
        self.call(Method::POST, &collection(object), object).await
    }

    async fn must(&self, method: Method, path: &str, body: Value) -> Value {
        self.call(method.clone(), path, &body)
            .await
            .unwrap_or_else(|refused| {
                panic!("{method} {path}: {} {}", refused.code, refused.message)
            })
    }

    /// What all worlds share: namespaces, classes.
    pub(crate) async fn prepare(&self, objects: &[Value]) {
        for object in objects {
            if let Err(refused) = self.create(object).await
                && refused.code != 409
            {
                panic!("{object}: {} {}", refused.code, refused.message);
            }
        }
    }

    /// Sends a world without the pods that wait. Objects that the API server's validation does not
    /// take are left out of `world` too; they are returned with the reason.
    pub(crate) async fn build(&self, world: &mut World) -> Vec<String> {
        let mut left_out = Vec::new();
        let plain = world
            .nodes
            .iter()
            .chain(&world.csi_nodes)
            .chain(&world.storage.attachments);
        let made = join_all(plain.map(|object| self.create(object))).await;
        if let Some(refused) = made.into_iter().find_map(Result::err) {
            panic!("a node's object: {} {}", refused.code, refused.message);
        }
        let stored = world.storage.claims.iter().chain(&world.storage.volumes);
        join_all(stored.map(|made| self.store(made))).await;
        let answers = join_all(world.bound.iter().map(|bound| self.create(&bound.pod))).await;
        let mut kept = Vec::new();
        for (bound, answer) in world.bound.drain(..).zip(answers) {
            match answer {
                Ok(_) => kept.push(bound),
                Err(refused) => left_out.push(refused.message),
            }
        }
        world.bound = kept;
        join_all(world.bound.iter().map(|bound| async {
            let path = path_of(&bound.pod);
            if bound.ended {
                let ended = json!({"status": {"phase": "Succeeded"}});
                self.must(Method::PATCH, &format!("{path}/status"), ended)
                    .await;
            }
            if bound.terminating {
                self.must(Method::DELETE, &path, json!({"gracePeriodSeconds": 3600}))
                    .await;
            }
        }))
        .await;
        left_out
    }

    async fn store(&self, made: &Made) {
        let path = path_of(&made.object);
        let mut object = made.object.clone();
        if made.deleting {
            object["metadata"]["finalizers"] = json!([HOLD]);
        }
        if let Err(refused) = self.create(&object).await {
            panic!("{}: {} {}", made.object, refused.code, refused.message);
        }
        let status = json!({"status": {"phase": made.phase}});
        self.must(Method::PATCH, &format!("{path}/status"), status)
            .await;
        if made.deleting {
            self.must(Method::DELETE, &path, Value::Null).await;
        }
    }

    /// All pods by UID.
    pub(crate) async fn pods(&self) -> BTreeMap<String, Value> {
        let list = self
            .must(Method::GET, "/api/v1/pods?resourceVersion=0", Value::Null)
            .await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items
            .into_iter()
            .filter_map(|pod| Some((pod["metadata"]["uid"].as_str()?.to_owned(), pod)))
            .collect()
    }

    /// All that the filters read, each object with its version and kind, which lists do not say.
    pub(crate) async fn everything(&self) -> Vec<Value> {
        let kinds = [
            ("v1", "Pod"),
            ("v1", "Node"),
            ("v1", "Namespace"),
            ("v1", "PersistentVolumeClaim"),
            ("v1", "PersistentVolume"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("storage.k8s.io/v1", "CSINode"),
            ("storage.k8s.io/v1", "CSIDriver"),
            ("storage.k8s.io/v1", "CSIStorageCapacity"),
            ("storage.k8s.io/v1", "VolumeAttachment"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("node.k8s.io/v1", "RuntimeClass"),
        ];
        let lists = join_all(kinds.map(|(version, kind)| async move {
            let path = collection(&json!({"apiVersion": version, "kind": kind}));
            let list = self.must(Method::GET, &path, Value::Null).await;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let named = |mut item: Value| {
                item["apiVersion"] = json!(version);
                item["kind"] = json!(kind);
                item
            };
            items.into_iter().map(named).collect::<Vec<Value>>()
        }));
        lists.await.concat()
    }

    /// Removes a pod at once.
    pub(crate) async fn remove(&self, pod: &Value) {
        self.must(
            Method::DELETE,
            &path_of(pod),
            json!({"gracePeriodSeconds": 0}),
        )
        .await;
    }

    /// Clears a world away.
    pub(crate) async fn clear(&self, world: &World) {
        let now = json!({"gracePeriodSeconds": 0});
        for kind in ["pods", "persistentvolumeclaims"] {
            join_all(NAMESPACES.map(|(namespace, _)| {
                let (path, now) = (
                    format!("/api/v1/namespaces/{namespace}/{kind}"),
                    now.clone(),
                );
                async move { self.must(Method::DELETE, &path, now).await }
            }))
            .await;
        }
        let everywhere = [
            "/api/v1/nodes",
            "/api/v1/persistentvolumes",
            "/apis/storage.k8s.io/v1/csinodes",
            "/apis/storage.k8s.io/v1/volumeattachments",
        ];
        join_all(everywhere.map(|path| self.must(Method::DELETE, path, Value::Null))).await;
        let stored = world.storage.claims.iter().chain(&world.storage.volumes);
        join_all(stored.filter(|made| made.deleting).map(|made| async {
            let free = json!({"metadata": {"finalizers": null}});
            self.must(Method::PATCH, &path_of(&made.object), free).await;
        }))
        .await;
    }
}

/// The path of the objects of a kind.
fn collection(object: &Value) -> String {
    let group = match object["apiVersion"].as_str().unwrap_or_default() {
        "v1" => "/api/v1".to_owned(),
        group => format!("/apis/{group}"),
    };
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let plural = if kind.ends_with("class") {
        format!("{kind}es")
    } else if let Some(stem) = kind.strip_suffix('y') {
        format!("{stem}ies")
    } else {
        format!("{kind}s")
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
        None => format!("{group}/{plural}"),
    }
}

fn path_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("{}/{name}", collection(object))
}
