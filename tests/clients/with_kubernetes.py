"""A workload's life on the simulated Kubernetes API, told through PyPI's kubernetes client."""

import sys
import threading
import time

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

SECONDS = 60
NAMESPACE = "default"
# How many changes the simulator remembers here; see run.py.
HISTORY = 500


def expect(condition, what):
    """An assertion with words."""
    if not condition:
        raise SystemExit(f"kubernetes: {what}")


def refused(code, call, *arguments, **parameters):
    """Checks that a call is refused with this code and a Status for a body."""
    try:
        answer = call(*arguments, **parameters)
    except ApiException as error:
        expect(error.status == code, f"{call.__name__}: {error.status} {error.body}, wanted {code}")
        expect('"kind":"Status"' in error.body.replace(" ", ""), f"{call.__name__}: body {error.body}")
        return
    raise SystemExit(f"kubernetes: {call.__name__} was not refused but answered {answer}")


def until(what, look):
    """Waits with a deadline."""
    end = time.monotonic() + SECONDS
    while not look():
        expect(time.monotonic() < end, f"not within {SECONDS} s: {what}")
        time.sleep(0.2)


def pod(name, cpu, labels):
    """A pod with a request."""
    resources = client.V1ResourceRequirements(requests={"cpu": cpu, "memory": "64Mi"})
    container = client.V1Container(name="main", image="registry.k8s.io/pause:3.10", resources=resources)
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels=labels), spec=client.V1PodSpec(containers=[container])
    )


def discovery(api):
    """Versions and groups, as every client looks first."""
    version = client.VersionApi(api).get_code()
    expect(version.major == "1" and int(version.minor.rstrip("+")) >= 30, f"version: {version}")
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    expect({"apps", "policy", "coordination.k8s.io"} <= groups, f"groups: {groups}")


def watched(core):
    """A watch sees a pod come, change and go; a resource version that is too old is 410."""
    listed = core.list_namespaced_pod(NAMESPACE)
    seen, stop = [], watch.Watch()

    def follow():
        stream = stop.stream(
            core.list_namespaced_pod,
            NAMESPACE,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=SECONDS,
        )
        for event in stream:
            if event["object"].metadata.name == "watched":
                seen.append(event["type"])
                if event["type"] == "DELETED":
                    break

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    made = core.create_namespaced_pod(NAMESPACE, pod("watched", "100m", {"app": "watched"}))
    expect(made.metadata.uid and made.metadata.resource_version, f"created: {made.metadata}")
    refused(409, core.create_namespaced_pod, NAMESPACE, pod("watched", "100m", {}))
    core.patch_namespaced_pod("watched", NAMESPACE, {"metadata": {"annotations": {"example.test/a": "b"}}})
    core.delete_namespaced_pod("watched", NAMESPACE, grace_period_seconds=0)
    thread.join(SECONDS)
    expect(seen and seen[0] == "ADDED" and seen[-1] == "DELETED" and "MODIFIED" in seen, f"watched: {seen}")
    refused(404, core.read_namespaced_pod, "watched", NAMESPACE)


def expired(core):
    """A watch from before what the server remembers is told so: 410, in the answer or as its first event."""
    for number in range(2 * HISTORY):
        core.patch_namespace(NAMESPACE, {"metadata": {"annotations": {"example.test/turn": str(number)}}})
    stream = watch.Watch().stream(
        core.list_namespaced_pod, NAMESPACE, resource_version="1", timeout_seconds=SECONDS
    )
    try:
        event = next(stream)
    except ApiException as error:
        expect(error.status == 410, f"an old watch: {error.status} {error.reason}")
        return
    raise SystemExit(f"kubernetes: an old watch began with {event['type']}")


def workload(core, apps):
    """A Deployment's pods are scheduled and run, more of them after a scale, none after a delete."""
    labels = {"app": "web"}
    template = pod(None, "100m", labels)
    spec = client.V1DeploymentSpec(
        replicas=2,
        selector=client.V1LabelSelector(match_labels=labels),
        template=client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=template.spec),
    )
    apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))

    def running(count):
        pods = core.list_namespaced_pod(NAMESPACE, label_selector="app=web").items
        return len(pods) == count and all(item.status.phase == "Running" and item.spec.node_name for item in pods)

    until("two pods run", lambda: running(2))
    apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
    until("three pods run", lambda: running(3))
    too_large = pod("too-large", "1000", {"app": "too-large"})
    core.create_namespaced_pod(NAMESPACE, too_large)

    def unschedulable():
        conditions = core.read_namespaced_pod("too-large", NAMESPACE).status.conditions or []
        return any(item.type == "PodScheduled" and item.reason == "Unschedulable" for item in conditions)

    until("a pod that fits nowhere is said to be unschedulable", unschedulable)
    core.delete_namespaced_pod("too-large", NAMESPACE)
    apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Foreground")
    until("no pod is left", lambda: running(0))


def budget(core, policy):
    """A disruption budget refuses an eviction with 429; without it the pod goes."""
    spec = client.V1PodDisruptionBudgetSpec(
        min_available=1, selector=client.V1LabelSelector(match_labels={"app": "kept"})
    )
    policy.create_namespaced_pod_disruption_budget(
        NAMESPACE, client.V1PodDisruptionBudget(metadata=client.V1ObjectMeta(name="kept"), spec=spec)
    )
    core.create_namespaced_pod(NAMESPACE, pod("kept", "100m", {"app": "kept"}))
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name="kept", namespace=NAMESPACE))
    core.patch_namespaced_pod_status(
        "kept",
        NAMESPACE,
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    )
    refused(429, core.create_namespaced_pod_eviction, "kept", NAMESPACE, body)
    policy.delete_namespaced_pod_disruption_budget("kept", NAMESPACE)
    core.create_namespaced_pod_eviction("kept", NAMESPACE, body)

    def gone():
        return "kept" not in [item.metadata.name for item in core.list_namespaced_pod(NAMESPACE).items]

    until("the evicted pod is gone", gone)


def nodes(core):
    """A node is made, tainted with a test on its resource version, and removed with its UID."""
    made = core.create_node(client.V1Node(metadata=client.V1ObjectMeta(name="by-hand", labels={"a": "b"})))
    core.patch_node("by-hand", {"spec": {"unschedulable": True}})
    stale = client.V1Node(
        metadata=client.V1ObjectMeta(name="by-hand", resource_version=made.metadata.resource_version),
        spec=client.V1NodeSpec(),
    )
    refused(409, core.replace_node, "by-hand", stale)
    selected = core.list_node(label_selector="a=b").items
    expect([node.metadata.name for node in selected] == ["by-hand"], f"selected: {selected}")
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="00000000-0000-4000-8000-000000000000"))
    refused(409, core.delete_node, "by-hand", body=wrong)
    right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=made.metadata.uid))
    core.delete_node("by-hand", body=right)
    refused(404, core.read_node, "by-hand")


def lease(coordination):
    """A Lease is taken once."""
    now = "2026-01-01T00:00:00.000000Z"
    body = {"metadata": {"name": "held"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": now}}
    made = coordination.create_namespaced_lease(NAMESPACE, body)
    body["spec"]["holderIdentity"] = "b"
    body["metadata"]["resourceVersion"] = made.metadata.resource_version
    coordination.replace_namespaced_lease("held", NAMESPACE, body)
    refused(409, coordination.replace_namespaced_lease, "held", NAMESPACE, body)
    coordination.delete_namespaced_lease("held", NAMESPACE)


def main(kubeconfig):
    """All of it."""
    config.load_kube_config(kubeconfig)
    api = client.ApiClient()
    core = client.CoreV1Api(api)
    discovery(api)
    watched(core)
    workload(core, client.AppsV1Api(api))
    budget(core, client.PolicyV1Api(api))
    nodes(core)
    lease(client.CoordinationV1Api(api))
    expired(core)
    print("kubernetes: good")


if __name__ == "__main__":
    main(sys.argv[1])
