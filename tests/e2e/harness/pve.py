"""A small client of the PVE API: for looking at what the product did there."""

import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

from .until import expect, until

TIMEOUT_SECONDS = 20
TASK_SECONDS = 30
# PVE's tickets live for two hours.
TICKET_SECONDS = 3600

MARK = re.compile(r"^pve-autoscaler:v1 (\{.*\})$", re.MULTILINE)


class Pve:
    """Logged in as root with a password, trusting the host's CA."""

    def __init__(self, address, ca_file, password):
        self.base = f"https://{address}/api2/json"
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.password = password
        self.headers, self.minted = {}, None

    def get(self, path, **query):
        """GET; returns `data`."""
        return self._call("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""), None)

    def post(self, path, **form):
        """POST; returns `data`."""
        return self._call("POST", path, urllib.parse.urlencode(form).encode())

    def delete(self, path, **query):
        """DELETE; returns `data`."""
        return self._call("DELETE", path + ("?" + urllib.parse.urlencode(query) if query else ""), None)

    def task(self, upid):
        """Waits for a task and returns its exit status."""
        path = f"/nodes/{upid.split(':')[1]}/tasks/{urllib.parse.quote(upid, safe='')}/status"

        def ended():
            status = self.get(path)
            return status["status"] == "stopped" and status["exitstatus"]

        return until(TASK_SECONDS, f"{upid} ends", ended)

    def destroy(self, vmid):
        """Somebody stops and destroys a VM by hand."""
        vm = next(vm for vm in self.get("/cluster/resources", type="vm") if vm["vmid"] == vmid)
        path = f"/nodes/{vm['node']}/qemu/{vmid}"
        for act in (lambda: self.post(f"{path}/status/stop"), lambda: self.delete(path)):
            upid = act()
            expect(self.task(upid) == "OK", f"{upid} failed")

    def _call(self, method, target, body):
        if self.minted is None or time.monotonic() - self.minted > TICKET_SECONDS:
            self.headers = {}
            form = urllib.parse.urlencode({"username": "root@pam", "password": self.password})
            login = self._send("POST", "/access/ticket", form.encode())
            self.headers = {
                "Cookie": f"PVEAuthCookie={urllib.parse.quote(login['ticket'])}",
                "CSRFPreventionToken": login["CSRFPreventionToken"],
            }
            self.minted = time.monotonic()
        return self._send(method, target, body)

    def _send(self, method, target, body):
        request = urllib.request.Request(self.base + target, body, self.headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self.tls) as answer:
            return json.load(answer)["data"]

    def machines(self):
        """The VMs that carry the product's mark, by VMID: name, host, uuid, mark, config."""
        found = {}
        for vm in self.get("/cluster/resources", type="vm"):
            if vm["type"] != "qemu":
                continue
            config = self._config(vm)
            mark = MARK.search(config.get("description", "")) if config else None
            if mark:
                found[vm["vmid"]] = {
                    "name": config.get("name"),
                    "host": vm["node"],
                    "uuid": re.search(r"uuid=([0-9a-fA-F-]+)", config["smbios1"])[1],
                    "mark": json.loads(mark[1]),
                    "config": config,
                }
        return found

    def vmids(self):
        """All VMIDs there are, ours or not."""
        return {vm["vmid"] for vm in self.get("/cluster/resources", type="vm")}

    def _config(self, vm):
        """The VM's configuration; None when it was destroyed after it was listed."""
        end = time.monotonic() + TASK_SECONDS
        while vm and time.monotonic() < end:
            try:
                return self.get(f"/nodes/{vm['node']}/qemu/{vm['vmid']}/config")
            except urllib.error.HTTPError as error:
                if error.code not in (403, 500):
                    raise
            # Destroyed between the two reads, or moved: a clone goes to its target when its copy is there.
            listed = self.get("/cluster/resources", type="vm")
            vm = next((other for other in listed if other["vmid"] == vm["vmid"]), None)
        return None
