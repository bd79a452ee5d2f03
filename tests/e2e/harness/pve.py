"""A small client of the PVE API: for looking at what the product did there."""

import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT_SECONDS = 20
# PVE's tickets live for two hours.
TICKET_SECONDS = 3600

MARK = re.compile(r"^pve-autoscaler:v1 (\{.*\})$", re.MULTILINE)


class Pve:
    """Logged in as root with a password, trusting the host's CA."""

    def __init__(self, address, ca_file, password):
        self.base = f"https://{address}/api2/json"
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.password = password
        self.ticket, self.minted = None, 0.0

    def get(self, path, **query):
        """GET with a ticket; returns `data`."""
        if time.monotonic() - self.minted > TICKET_SECONDS:
            form = urllib.parse.urlencode({"username": "root@pam", "password": self.password})
            self.ticket = self._send("/access/ticket", form.encode())["ticket"]
            self.minted = time.monotonic()
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        return self._send(target, None)

    def _send(self, target, body):
        headers = {"Cookie": f"PVEAuthCookie={urllib.parse.quote(self.ticket)}"} if self.ticket else {}
        request = urllib.request.Request(self.base + target, body, headers)
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
        try:
            return self.get(f"/nodes/{vm['node']}/qemu/{vm['vmid']}/config")
        except urllib.error.HTTPError as error:
            # Destroyed between the two reads.
            if error.code in (403, 500):
                return None
            raise
