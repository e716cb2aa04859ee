"""A Pinion whose network is a list of plugins, its pods, and what exists on the node."""

import json
import re
from pathlib import Path

from session.engines import Pinion
from session.plugins import IMAGE
from session.program import Failure, assert_equal, run, wait_until

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")


class PinionWithPrograms(Pinion):
    """Pinion with a directory for the programs of plugins."""

    def configure(self, registry):
        super().configure(registry)
        (self.work / "bin").mkdir()
        text = self.config.read_text().replace("[network]\n", f'[network]\ncni_bin_dirs = ["{self.work}/bin"]\n')
        self.config.write_text(text)


class Node:
    """Pinion, and the programs of plugins by the name of their type."""

    def __init__(self, work, registry, plugins):
        self.engine = PinionWithPrograms(work, registry=registry)
        self.work, self.pods = self.engine.work, 0
        for name, program in plugins.items():
            (self.work / "bin" / name).symlink_to(program)

    def start(self):
        self.engine.start()
        self.engine.crictl("pull", IMAGE).check()
        return self

    def restart(self):
        """Kills the daemon, and starts it again."""
        self.engine.kill()
        self.engine.start()

    def use(self, name, version, *plugins, extension="conflist", **fields):
        """Makes a list of plugins the network of the next pods; several versions are `cniVersions`."""
        versions = {"cniVersion": version} if isinstance(version, str) else {"cniVersion": version[0], "cniVersions": list(version)}
        directory = self.work / "cni"
        for file in directory.iterdir():
            file.unlink()
        (directory / f"10-{name}.{extension}").write_text(json.dumps({**versions, "name": name, "plugins": plugins, **fields}))

    def run_pod(self, ports=(), annotations=None, name=None):
        """Runs RunPodSandbox; returns its result and the file of the request."""
        self.pods += 1
        name = name or f"pod-{self.pods}"
        file = self.work / f"{name}.json"
        file.write_text(json.dumps({
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "attempt": 0}, "log_directory": str(self.work / "log" / name), "annotations": annotations or {},
            "port_mappings": [{"protocol": 0, "container_port": inner, "host_port": outer} for outer, inner in ports],
            "linux": {"cgroup_parent": "/vendors-test"}}))
        return self.engine.crictl("-t", "180s", "runp", file, timeout=200), file

    def pod(self, **options):
        """Runs a pod with a container."""
        result, file = self.run_pod(**options)
        return Pod(self, result.check().text, file)

    def ready(self):
        """Returns whether the network is ready, and the reason."""
        conditions = self.engine.crictl("info").check().json["status"]["conditions"]
        condition = next(condition for condition in conditions if condition["type"] == "NetworkReady")
        return condition["status"], condition.get("message", "")

    def wait_for_status(self, ready, pattern="", seconds=20):
        """Waits until the network is ready or not, with a reason that matches."""
        def matches():
            status = self.ready()
            if status[0] == ready and re.search(pattern, status[1]):
                return True
            raise Failure(f"network ready: {status}")
        wait_until(f"NetworkReady is {ready} with {pattern!r}", matches, seconds)

    def clean_up(self):
        self.engine.crictl("rmp", "-fa", timeout=200)
        self.engine.clean_up()


class Pod:
    """A pod with a container named `web`."""

    def __init__(self, node, identifier, file):
        self.node, self.id, self.file, self.crictl = node, identifier, file, node.engine.crictl
        path = file.with_suffix(".web.json")
        path.write_text(json.dumps({
            "metadata": {"name": "web"}, "image": {"image": IMAGE}, "log_path": "web.log",
            "command": ["sh", "-c", "mkdir -p /srv; echo served > /srv/index.html; httpd -p 80 -h /srv; sleep 1000"],
            "linux": {"security_context": {"capabilities": {"add_capabilities": ["NET_RAW"]}}}}))
        self.container = self.crictl("create", identifier, path, file).check().text
        self.crictl("start", self.container).check()

    def status(self):
        return self.crictl("inspectp", "-o", "json", self.id).check().json

    @property
    def address(self):
        """The address that Kubernetes would show."""
        return self.status()["status"]["network"]["ip"]

    def exec(self, *argv):
        return self.crictl("exec", "-s", self.container, *argv)

    def pings(self, address, size=56):
        """Fails unless an address answers."""
        self.exec("ping", "-c", "1", "-W", "5", "-s", size, address).check(out="1 packets received")

    def inside(self, *argv):
        """Runs `ip` in the network namespace of the pod."""
        return run("ip", "-n", self.id, *argv).check().out

    def check(self):
        """Has the plugins check the pod."""
        return self.node.engine("inspect", "--check", "--json", self.id)

    def stop_and_remove(self):
        """Stops and removes the pod; both must succeed."""
        self.crictl("stopp", self.id, timeout=200).check()
        self.crictl("rmp", self.id, timeout=200).check()


def state(*directories):
    """Returns what plugins may leave on the node: links, addresses, routes, rules, namespaces, and files of directories."""
    def lines(*argv):
        # Indices, counters and lifetimes differ.
        return {re.sub(r"^\d+: |@\w+|\bif\d+\b| (packets|bytes) \d+|valid_lft.*", "", line).strip() for line in run(*argv).out.splitlines()} - {""}

    pins = Path("/run/netns")
    return {
        "links": lines("ip", "-br", "link"), "addresses": lines("ip", "-o", "addr"), "routes": lines("ip", "route", "show", "table", "all"),
        "routes6": lines("ip", "-6", "route", "show", "table", "all"), "rules": lines("ip", "rule"), "nft": lines("nft", "list", "ruleset"),
        "namespaces": {path.name for path in pins.iterdir()} if pins.exists() else set(),
        "files": {str(path) for directory in directories for path in Path(directory).rglob("*")}}


def assert_nothing_left(before, *directories, allowed=()):
    """Fails unless the node is as it was, except for what matches a pattern."""
    def left():
        now = state(*directories)
        items = (f"{kind}: {item}" for kind in now for item in sorted(now[kind] - before[kind]))
        return [item for item in items if not any(re.search(pattern, item) for pattern in allowed)]

    try:
        wait_until("nothing is left", lambda: not left(), 5)
    except Failure:
        assert_equal(left(), [], "left on the node")
