//! What a person's setup asks of a cluster: its nodes and how it was made.

use std::net::IpAddr;

use serde::Deserialize;

use super::client::{KubeClient, KubeRequest};
use super::error::KubeError;

/// Nodes that are read; more say nothing that these do not.
const MAX_NODES: usize = 1_000;

/// A node as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFound {
    /// The node's name.
    pub name: String,
    /// Addresses that it reports, internal and external.
    pub addresses: Vec<IpAddr>,
    /// The node's operating system, such as `Talos (v1.11.2)`.
    pub os_image: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct List {
    /// It may be `null` where there is none.
    items: Option<Vec<ListedNode>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListedNode {
    metadata: Metadata,
    status: ListedNodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListedNodeStatus {
    addresses: Option<Vec<Address>>,
    node_info: Option<OsInfo>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OsInfo {
    os_image: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    address: String,
}

impl KubeClient {
    /// `GET /api/v1/nodes`: the first thousand nodes with their addresses.
    pub async fn find_nodes(&self) -> Result<Vec<NodeFound>, KubeError> {
        let request = KubeRequest::new("list", "nodes", "", "/api/v1/nodes".to_owned());
        let list: List = self
            .read(request.query("limit", MAX_NODES.to_string()))
            .await?;
        let nodes = list.items.into_iter().flatten().map(|item| NodeFound {
            name: item.metadata.name,
            os_image: item
                .status
                .node_info
                .and_then(|info| info.os_image)
                .unwrap_or_default(),
            addresses: item
                .status
                .addresses
                .into_iter()
                .flatten()
                .filter_map(|one| one.address.parse().ok())
                .collect(),
        });
        Ok(nodes.collect())
    }
}
