//! The table of what the fake API server serves: one row per resource, which drives paths,
//! discovery, defaulting and storage alike.

/// One row of the table.
#[derive(Debug)]
pub(super) struct ResourceKind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    /// Has a `status` subresource: then a write through the main door leaves the status alone.
    pub(super) status: bool,
    /// The server counts `metadata.generation` when the spec changes.
    pub(super) generation: bool,
    /// A question answered at once and never stored.
    pub(super) review: bool,
    pub(super) short: &'static [&'static str],
    /// Subresources besides `status`, with the kind they take.
    pub(super) subresources: &'static [(&'static str, &'static str)],
}

/// A row, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Res(pub(super) usize);

const PLAIN: ResourceKind = ResourceKind {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    status: false,
    generation: false,
    review: false,
    short: &[],
    subresources: &[],
};

const fn row(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> ResourceKind {
    ResourceKind {
        group,
        plural,
        singular,
        kind,
        ..PLAIN
    }
}

impl ResourceKind {
    const fn cluster(mut self) -> ResourceKind {
        self.namespaced = false;
        self
    }
    const fn with_status(mut self) -> ResourceKind {
        self.status = true;
        self
    }
    const fn counted(mut self) -> ResourceKind {
        self.generation = true;
        self
    }
    const fn question(mut self) -> ResourceKind {
        self.review = true;
        self
    }
    const fn short(mut self, short: &'static [&'static str]) -> ResourceKind {
        self.short = short;
        self
    }
    const fn sub(mut self, subresources: &'static [(&'static str, &'static str)]) -> ResourceKind {
        self.subresources = subresources;
        self
    }

    /// `v1` or `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `deployments.apps`, as error messages name it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

pub(super) const PODS: Res = Res(0);
pub(super) const NODES: Res = Res(1);
pub(super) const NAMESPACES: Res = Res(2);
pub(super) const DAEMONSETS: Res = Res(3);
pub(super) const REPLICASETS: Res = Res(4);
pub(super) const DEPLOYMENTS: Res = Res(5);
pub(super) const STATEFULSETS: Res = Res(6);
pub(super) const JOBS: Res = Res(7);
pub(super) const PDBS: Res = Res(8);
pub(super) const PVCS: Res = Res(9);
pub(super) const PVS: Res = Res(10);
pub(super) const STORAGECLASSES: Res = Res(11);
pub(super) const CSINODES: Res = Res(12);
pub(super) const VOLUMEATTACHMENTS: Res = Res(13);
pub(super) const LEASES: Res = Res(14);
pub(super) const CONFIGMAPS: Res = Res(15);
pub(super) const SECRETS: Res = Res(16);
pub(super) const SERVICEACCOUNTS: Res = Res(17);
pub(super) const EVENTS: Res = Res(18);
pub(super) const NEW_EVENTS: Res = Res(19);
pub(super) const PRIORITYCLASSES: Res = Res(20);
pub(super) const RUNTIMECLASSES: Res = Res(21);
pub(super) const CSRS: Res = Res(22);
pub(super) const CSIDRIVERS: Res = Res(32);
pub(super) const CSICAPACITIES: Res = Res(33);

/// The table. The constants above are positions in it (a test holds them together).
pub(super) static RESOURCES: &[ResourceKind] = &[
    row("", "pods", "pod", "Pod")
        .with_status()
        .counted()
        .short(&["po"])
        .sub(&[("binding", "Binding"), ("eviction", "Eviction")]),
    row("", "nodes", "node", "Node")
        .cluster()
        .with_status()
        .short(&["no"]),
    row("", "namespaces", "namespace", "Namespace")
        .cluster()
        .with_status()
        .short(&["ns"]),
    row("apps", "daemonsets", "daemonset", "DaemonSet")
        .with_status()
        .counted()
        .short(&["ds"]),
    row("apps", "replicasets", "replicaset", "ReplicaSet")
        .with_status()
        .counted()
        .short(&["rs"])
        .sub(&[("scale", "Scale")]),
    row("apps", "deployments", "deployment", "Deployment")
        .with_status()
        .counted()
        .short(&["deploy"])
        .sub(&[("scale", "Scale")]),
    row("apps", "statefulsets", "statefulset", "StatefulSet")
        .with_status()
        .counted()
        .short(&["sts"])
        .sub(&[("scale", "Scale")]),
    row("batch", "jobs", "job", "Job").with_status().counted(),
    row(
        "policy",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
    )
    .with_status()
    .counted()
    .short(&["pdb"]),
    row(
        "",
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
    )
    .with_status()
    .short(&["pvc"]),
    row(
        "",
        "persistentvolumes",
        "persistentvolume",
        "PersistentVolume",
    )
    .cluster()
    .with_status()
    .short(&["pv"]),
    row(
        "storage.k8s.io",
        "storageclasses",
        "storageclass",
        "StorageClass",
    )
    .cluster()
    .short(&["sc"]),
    row("storage.k8s.io", "csinodes", "csinode", "CSINode").cluster(),
    row(
        "storage.k8s.io",
        "volumeattachments",
        "volumeattachment",
        "VolumeAttachment",
    )
    .cluster()
    .with_status(),
    row("coordination.k8s.io", "leases", "lease", "Lease"),
    row("", "configmaps", "configmap", "ConfigMap").short(&["cm"]),
    row("", "secrets", "secret", "Secret"),
    row("", "serviceaccounts", "serviceaccount", "ServiceAccount").short(&["sa"]),
    row("", "events", "event", "Event").short(&["ev"]),
    row("events.k8s.io", "events", "event", "Event").short(&["ev"]),
    row(
        "scheduling.k8s.io",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
    )
    .cluster()
    .short(&["pc"]),
    row(
        "node.k8s.io",
        "runtimeclasses",
        "runtimeclass",
        "RuntimeClass",
    )
    .cluster(),
    row(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
    .cluster()
    .with_status()
    .short(&["csr"])
    .sub(&[("approval", "CertificateSigningRequest")]),
    row(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
    )
    .cluster()
    .question(),
    row(
        "authentication.k8s.io",
        "selfsubjectreviews",
        "selfsubjectreview",
        "SelfSubjectReview",
    )
    .cluster()
    .question(),
    row(
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
        "SelfSubjectRulesReview",
    )
    .cluster()
    .question(),
    row("", "services", "service", "Service")
        .with_status()
        .short(&["svc"]),
    row("", "endpoints", "endpoints", "Endpoints").short(&["ep"]),
    row("", "limitranges", "limitrange", "LimitRange").short(&["limits"]),
    row("", "resourcequotas", "resourcequota", "ResourceQuota")
        .with_status()
        .short(&["quota"]),
    row(
        "",
        "replicationcontrollers",
        "replicationcontroller",
        "ReplicationController",
    )
    .with_status()
    .short(&["rc"]),
    row("batch", "cronjobs", "cronjob", "CronJob")
        .with_status()
        .short(&["cj"]),
    row("storage.k8s.io", "csidrivers", "csidriver", "CSIDriver").cluster(),
    row(
        "storage.k8s.io",
        "csistoragecapacities",
        "csistoragecapacity",
        "CSIStorageCapacity",
    ),
    row("rbac.authorization.k8s.io", "roles", "role", "Role"),
    row(
        "rbac.authorization.k8s.io",
        "rolebindings",
        "rolebinding",
        "RoleBinding",
    ),
    row(
        "rbac.authorization.k8s.io",
        "clusterroles",
        "clusterrole",
        "ClusterRole",
    )
    .cluster(),
    row(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "clusterrolebinding",
        "ClusterRoleBinding",
    )
    .cluster(),
    row(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
    .cluster()
    .with_status()
    .counted(),
    row(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    )
    .cluster(),
    row(
        "discovery.k8s.io",
        "endpointslices",
        "endpointslice",
        "EndpointSlice",
    ),
    row(
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        "LocalSubjectAccessReview",
    )
    .question(),
];

impl Res {
    /// The row.
    pub(super) fn row(self) -> &'static ResourceKind {
        &RESOURCES[self.0]
    }

    /// Where its objects lie: both event APIs show one store.
    pub(super) fn stored(self) -> Res {
        if self == NEW_EVENTS { EVENTS } else { self }
    }

    /// The resource at a path.
    pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<Res> {
        RESOURCES
            .iter()
            .position(|r| r.group == group && r.version == version && r.plural == plural)
            .map(Res)
    }

    /// The resource that keeps objects of a kind, by the owner reference's words.
    pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<Res> {
        RESOURCES
            .iter()
            .position(|r| r.kind == kind && r.api_version() == api_version)
            .map(Res)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_name_their_rows() {
        for (res, plural) in [
            (PODS, "pods"),
            (NODES, "nodes"),
            (NAMESPACES, "namespaces"),
            (DAEMONSETS, "daemonsets"),
            (REPLICASETS, "replicasets"),
            (DEPLOYMENTS, "deployments"),
            (STATEFULSETS, "statefulsets"),
            (JOBS, "jobs"),
            (PDBS, "poddisruptionbudgets"),
            (PVCS, "persistentvolumeclaims"),
            (PVS, "persistentvolumes"),
            (STORAGECLASSES, "storageclasses"),
            (CSINODES, "csinodes"),
            (VOLUMEATTACHMENTS, "volumeattachments"),
            (LEASES, "leases"),
            (CONFIGMAPS, "configmaps"),
            (SECRETS, "secrets"),
            (SERVICEACCOUNTS, "serviceaccounts"),
            (EVENTS, "events"),
            (NEW_EVENTS, "events"),
            (PRIORITYCLASSES, "priorityclasses"),
            (RUNTIMECLASSES, "runtimeclasses"),
            (CSRS, "certificatesigningrequests"),
            (CSIDRIVERS, "csidrivers"),
            (CSICAPACITIES, "csistoragecapacities"),
        ] {
            assert_eq!(res.row().plural, plural);
        }
        assert_eq!(NEW_EVENTS.row().group, "events.k8s.io");
    }
}
