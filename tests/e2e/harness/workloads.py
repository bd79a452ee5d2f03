"""Objects of the cluster that the stories make."""

# The hollow runtime "pulls" whatever it is asked for.
IMAGE = "registry.k8s.io/pause:3.10"


# The names that the product and the stories know a pool by.
POOL_LABEL = "pve-autoscaler.io/pool"


def pod_spec(cpu, memory, node_selector=None, tolerations=None, prefers=None):
    """One container with requests; `prefers` is a label that its node better has."""
    preference = {
        "weight": 100,
        "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in (prefers or {}).items()]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    return {
        "affinity": affinity if prefers else {},
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": node_selector or {},
        "tolerations": tolerations or [],
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }
        ],
    }


def deployment(name, replicas, spec):
    """A Deployment of `spec`, labelled app=NAME."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def daemon_set(name, spec):
    """A DaemonSet of `spec`, labelled app=NAME."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def budget(name, app, min_available):
    """A PodDisruptionBudget for the pods labelled app=APP."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }
