"""A stand-in for Cilium's agent, which needs BPF programs: the calls of its API that the CNI plugin makes, and nothing else.

It assigns addresses and keeps a list of endpoints. There is no datapath: no packet leaves a pod.
"""

import contextlib
import json
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote

SOCKET = Path("/run/cilium/cilium.sock")
ROUTER, NETWORK, MTU = "10.70.0.1", "10.70.0.", 1430


class Agent:
    """Serves the API on its default socket."""

    def __init__(self):
        self.endpoints, self.addresses = {}, {}
        self.refuses = False
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def address_string(self):
                return "local"

            def log_message(self, *_):
                pass

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = agent.answer(self.command, unquote(self.path).split("?")[0].removeprefix("/v1"), json.loads(body or b"null"))
                text = json.dumps(answer).encode() if answer is not None else b""
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                # Some calls of the plugin do not wait for the answer.
                with contextlib.suppress(BrokenPipeError):
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815

        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        SOCKET.unlink(missing_ok=True)
        self.server = socketserver.ThreadingUnixStreamServer(str(SOCKET), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, method, path, body):
        """Returns status and body of an answer."""
        addressing = {"ipv4": {"enabled": True, "ip": ROUTER, "alloc-range": f"{NETWORK}0/24"}}
        if (method, path) == ("GET", "/config"):
            return 200, {"status": {"addressing": addressing, "datapathMode": "veth", "ipam-mode": "cluster-pool", "deviceMTU": 1500, "routeMTU": MTU}}
        if (method, path) == ("GET", "/healthz"):
            return 200, {"cilium": {"state": "Ok"}}
        if (method, path) == ("POST", "/ipam"):
            address = next(f"{NETWORK}{last}" for last in range(2, 255) if f"{NETWORK}{last}" not in self.addresses)
            self.addresses[address] = True
            return 201, {"address": {"ipv4": address, "ipv4-pool-name": "default"}, "host-addressing": addressing, "ipv4": {"ip": address, "gateway": ROUTER, "cidrs": [f"{NETWORK}0/24"]}}
        if method == "DELETE" and path.startswith("/ipam/"):
            return (200, None) if self.addresses.pop(path.removeprefix("/ipam/"), None) else (404, None)
        if match := re.fullmatch("/endpoint/([^/]+)(/healthz)?", path):
            return self._endpoint(method, match[1], match[2], body)
        return 404, None

    def _endpoint(self, method, identifier, health, body):
        if method == "PUT" and self.refuses:
            return 500, "the stand-in refuses endpoints"
        if method == "PUT":
            # The plugin creates an endpoint without knowing its number, which the agent assigns.
            self.endpoints[f"cni-attachment-id:{body['container-id']}:{body['container-interface-name']}"] = body
            return 201, {"id": len(self.endpoints), "status": {"state": "ready", "networking": {"addressing": [body["addressing"]], "mac": body["mac"]}}}
        endpoint = self.endpoints.get(identifier)
        if endpoint is None:
            return 404, None
        if method == "DELETE":
            del self.endpoints[identifier]
            # The agent, not the plugin, releases the addresses of an endpoint.
            self.addresses.pop(endpoint["addressing"]["ipv4"], None)
            return 200, None
        return (200, {"overallHealth": "OK", "connected": True}) if health else (200, {"id": 1})

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        SOCKET.unlink(missing_ok=True)
