"""A small client of the Kubernetes API: enough to tell a story and to check it."""

import base64
import http.client
import json
import os
import re
import ssl
import tempfile
from urllib.parse import quote, urlencode, urlsplit

# No answer of the API server to a single request takes longer.
TIMEOUT_SECONDS = 20


class Status(Exception):
    """An answer that is not a success: code and the API server's own words."""

    def __init__(self, code, message, body):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.body = body


class Kube:
    """Talks to one API server with a client certificate out of a kubeconfig."""

    def __init__(self, kubeconfig):
        config = read_kubeconfig(kubeconfig)
        self.address = urlsplit(config["server"])
        self.tls = ssl.create_default_context(cadata=config["ca"].decode())
        with tempfile.TemporaryDirectory() as scratch:
            cert, key = os.path.join(scratch, "crt"), os.path.join(scratch, "key")
            for path, data in ((cert, config["cert"]), (key, config["key"])):
                with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(data)
            self.tls.load_cert_chain(cert, key)

    def call(self, method, path, body=None, content_type="application/json", **query):
        """One request; returns the decoded answer or raises `Status`."""
        connection = http.client.HTTPSConnection(
            self.address.hostname, self.address.port, timeout=TIMEOUT_SECONDS, context=self.tls
        )
        target = path + ("?" + urlencode(query) if query else "")
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        try:
            connection.request(method, target, data, {"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = text
        if answer.status >= 300:
            message = decoded.get("message") if isinstance(decoded, dict) else decoded
            raise Status(answer.status, message, decoded)
        return decoded

    def get(self, path, **query):
        """GET, or None when there is no such object."""
        try:
            return self.call("GET", path, **query)
        except Status as status:
            if status.code == 404:
                return None
            raise

    def items(self, path, **query):
        """The items of a list."""
        return self.call("GET", path, **query)["items"]

    def create(self, path, body):
        """POST."""
        return self.call("POST", path, body)

    def merge(self, path, body):
        """PATCH with a merge patch."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path):
        """DELETE; an object that is not there is fine."""
        try:
            return self.call("DELETE", path)
        except Status as status:
            if status.code != 404:
                raise
            return None

    def apply(self, manifest):
        """Server-side apply of a file with YAML documents."""
        with open(manifest, encoding="utf-8") as file:
            documents = re.split(r"^---\s*$", file.read(), flags=re.MULTILINE)
        for document in documents:
            kind = re.search(r"^kind: *(\w+)", document, re.MULTILINE)
            if kind:
                metadata = document[document.index("\nmetadata:") :]
                name = re.search(r"^  name: *(\S+)", metadata, re.MULTILINE)[1].strip("\"'")
                namespace = re.search(r"^  namespace: *(\S+)", metadata, re.MULTILINE)
                path = collection(kind[1], namespace and namespace[1].strip("\"'"))
                self.call(
                    "PATCH", f"{path}/{quote(name)}", document, "application/apply-patch+yaml", fieldManager="e2e", force="true"
                )

    def events(self):
        """All events, as (reason, object's name, message)."""
        return [
            (event.get("reason"), event.get("involvedObject", {}).get("name"), event.get("message") or "")
            for event in self.items("/api/v1/events")
        ]

    def evict(self, namespace, name):
        """The Eviction API for one pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
        }
        return self.create(f"/api/v1/namespaces/{namespace}/pods/{quote(name)}/eviction", body)

    def nodes(self):
        """All nodes by name."""
        return {node["metadata"]["name"]: node for node in self.items("/api/v1/nodes")}

    def pods(self, namespace="default", **labels):
        """The pods of a namespace, by labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        query = {"labelSelector": selector} if selector else {}
        return self.items(f"/api/v1/namespaces/{namespace}/pods", **query)

    def bootstrap_tokens(self):
        """The ids of all bootstrap tokens there are."""
        secrets = self.items(
            "/api/v1/namespaces/kube-system/secrets",
            fieldSelector="type=bootstrap.kubernetes.io/token",
        )
        return [secret["metadata"]["name"].removeprefix("bootstrap-token-") for secret in secrets]


def collection(kind, namespace):
    """The path of a kind's objects."""
    group, plural = KINDS[kind]
    return group + (f"/namespaces/{namespace}" if namespace else "") + "/" + plural


# Kinds that manifests of the product have.
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": (ADMISSION, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": (ADMISSION, "validatingadmissionpolicybindings"),
}


def is_ready(node):
    """Whether a node's Ready condition is true."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", [])
    )


def read_kubeconfig(path):
    """The few fields of a kubeconfig with one user and one cluster, as kubeadm and the product write
    it: no YAML parser needed."""
    wanted = {
        "certificate-authority-data": "ca",
        "client-certificate-data": "cert",
        "client-key-data": "key",
        "server": "server",
    }
    found = {}
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for key, name in wanted.items():
        value = re.search(rf'"?{key}"?: *"?([^"\s,]+)', text)[1]
        found[name] = value if name == "server" else base64.b64decode(value)
    return found
