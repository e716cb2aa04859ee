"""etcd, the datastore of flannel and Calico."""

import base64
import json
import urllib.request

from session.program import spawn, wait_until

CLIENTS, PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"


def _encode(text):
    return base64.b64encode(text.encode()).decode()


class Etcd:
    """A member that listens on the loopback address and on `addresses`. Its data is in `work`, so that it can be restarted."""

    def __init__(self, program, work, addresses=()):
        self.program, self.work = program, work
        self.endpoints = [CLIENTS, *(f"http://{address}:2379" for address in addresses)]
        self.process = None

    def start(self):
        """Starts the member and waits until it responds."""
        urls = ",".join(self.endpoints)
        self.process = spawn(self.program, "--data-dir", self.work / "etcd", "--listen-client-urls", urls, "--advertise-client-urls", urls, "--listen-peer-urls", PEERS,
                             "--initial-advertise-peer-urls", PEERS, "--initial-cluster", f"default={PEERS}", "--unsafe-no-fsync", "--logger", "zap", "--log-level", "warn",
                             log=self.work / "etcd.log")
        wait_until("etcd responds", lambda: self._request("maintenance/status", {}), 30)
        return self

    def _request(self, method, body):
        request = urllib.request.Request(f"{CLIENTS}/v3/{method}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def put(self, key, value):
        """Writes a value, as JSON unless it is text."""
        self._request("kv/put", {"key": _encode(key), "value": _encode(value if isinstance(value, str) else json.dumps(value))})

    def list(self, prefix):
        """Returns all values below a prefix by key."""
        answer = self._request("kv/range", {"key": _encode(prefix), "range_end": _encode(prefix[:-1] + chr(ord(prefix[-1]) + 1))})
        return {base64.b64decode(pair["key"]).decode(): base64.b64decode(pair.get("value", "")).decode() for pair in answer.get("kvs", [])}

    def stop(self):
        """Stops the member; its data stays."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
