"""flannel: its daemon on two nodes, connected by VXLAN, its plugin, and Pinion's own type `flannel`."""

import json
import subprocess
from pathlib import Path

from session.program import assert_equal, run, spawn, wait_until

from .differential import compare
from .etcd import Etcd
from .links import Namespace, connect
from .node import VERSIONS, Node, assert_nothing_left, state

CONFIG = {"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}, "EnableNFTables": True}
ENVIRONMENT = Path("/run/flannel/subnet.env")
FILES = ("/var/lib/cni", "/run/flannel")
PORT_MAPPING = {"type": "portmap", "capabilities": {"portMappings": True}}
# The bridge stays, as the reference plugin leaves it, and so do the tables and empty chains of `portmap`, the directories,
# and the last address that `host-local` gave. A link-local address may appear only later.
STAYS = (r"\bcni0\b", r"flannel\.1 .*fe80:|fe80:.* flannel\.1", r"nft: (table|chain|type|\}|comment|(.* )?jump (hostports|hostip_hostports|masquerading)|meta mark)",
         r"files: /var/lib/cni(/networks|/flannel)?(/cbr0(/last_reserved_ip\.\w+|/lock)?)?$")


class Flannel:
    """flannel's daemon on this node and on another one."""

    def __init__(self, work, program, far):
        self.work, self.program, self.far, self.processes = work, program, far, []

    def start(self):
        """Starts both daemons, and waits for their descriptions."""
        common = ("--ip-masq", "--healthz-port", "0")
        near = (self.program, "--etcd-endpoints", "http://192.0.2.1:2379", "--iface", "up0", "--subnet-file", ENVIRONMENT, *common)
        far = self.far.argv(self.program, "--etcd-endpoints", "http://192.0.2.1:2379", "--iface", "up1", "--subnet-file", self.work / "far.env", *common)
        self.processes = [spawn(*near, log=self.work / "flanneld.log"), spawn(*far, log=self.work / "flanneld-far.log")]
        for file in (ENVIRONMENT, self.work / "far.env"):
            wait_until(f"flanneld writes {file}", file.exists, 30)
        # The route to the other node's subnet shows that both have seen each other.
        wait_until("both nodes have a route to each other", lambda: self.subnet("far.env") in run("ip", "route").out, 30)

    def read(self, name="near"):
        """Returns the variables of a description."""
        file = self.work / name if name != "near" else ENVIRONMENT
        return dict(line.split("=", 1) for line in file.read_text().splitlines() if line)

    def subnet(self, name="near"):
        return self.read(name)["FLANNEL_SUBNET"].replace(".1/", ".0/")

    def stop(self):
        """Stops both daemons, and removes what they leave on the node."""
        for process in self.processes:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        run("ip", "link", "del", "flannel.1")
        for table in run("nft", "list", "tables").out.splitlines():
            if "flannel" in table:
                run("nft", "delete", *table.split())
        ENVIRONMENT.unlink(missing_ok=True)


def lists(kind):
    """Returns the plugins of kube-flannel's configuration, with flannel's plugin as `kind`."""
    return {"type": kind, "delegate": {"hairpinMode": True, "isDefaultGateway": True}}, PORT_MAPPING


def without_daemon(steps, node):
    for kind in ("flannel", "go-flannel"):
        with steps.step(f"{kind} without flannel's daemon: the pod fails with the reason, and nothing is left"):
            before = state(*FILES)
            node.use("cbr0", "1.0.0", *lists(kind))
            node.run_pod()[0].check_fails(both=r"subnet\.env")
            assert_equal(node.engine.crictl("pods", "-q").check().text, "", "pods")
            assert_nothing_left(before, *FILES, allowed=STAYS)


def life(node, flannel, kind, version):
    """Two pods, from their creation to their removal."""
    before = state(*FILES)
    node.use("cbr0", version, *lists(kind))
    node.wait_for_status(True)
    first, second = node.pod(ports=[(8080, 80)]), node.pod()
    prefix = flannel.read()["FLANNEL_SUBNET"].removesuffix("1/24")
    for pod in (first, second):
        assert_equal(pod.address.startswith(prefix), True, f"{pod.address} is an address of {prefix}0/24")
        assert_equal(json.loads(pod.inside("-j", "link", "show", "eth0"))[0]["mtu"], int(flannel.read()["FLANNEL_MTU"]), "MTU")
    first.pings(second.address)
    second.pings(first.address, size=1400)
    # The address of the other node's VXLAN device is the first one of its subnet.
    first.pings(flannel.subnet("far.env").split("/")[0], size=1400)
    flannel.far.run("ping", "-c", "1", "-W", "5", second.address).check()
    run("curl", "-fsS", "-m", "5", "http://192.0.2.1:8080/").check(out="served")
    flannel.far.run("curl", "-fsS", "-m", "5", "http://192.0.2.1:8080/").check(out="served")
    if version != "0.3.1":
        first.check().check()
    return before, first, second


def broken(pod):
    """An address that an administrator removed: CHECK finds it."""
    pod.inside("addr", "flush", "dev", "eth0")
    pod.check().check_fails(both=r"eth0|address")


def lost_lease(node, before):
    """A lease of a container that does not exist is removed by GC when the daemon starts."""
    lease = Path("/var/lib/cni/networks/cbr0") / (run("sed", "-n", "s/^FLANNEL_SUBNET=\\(.*\\)\\.1\\/24/\\1/p", ENVIRONMENT).text + ".200")
    lease.write_text("0123456789abcdef\r\neth0")
    node.restart()
    wait_until("GC removes the lease", lambda: not lease.exists(), 30)
    assert_nothing_left(before, *FILES, allowed=STAYS)


def lost_description(node):
    """STATUS reports that the daemon's file is gone; another configuration is not affected by that."""
    text = ENVIRONMENT.read_text()
    ENVIRONMENT.unlink()
    node.use("cbr0", "1.1.0", *lists("flannel"))
    node.wait_for_status(False, r"CNI plugin flannel STATUS: .*subnet\.env", 90)
    ENVIRONMENT.write_text(text)
    node.use("cbr0", "1.0.0", *lists("flannel"))
    node.wait_for_status(True, seconds=5)


def session(steps, work, programs, registry):
    reference = Path(programs["reference"])
    node = Node(work, registry, {"go-flannel": programs["flannel"], **{name: reference / name for name in ("bridge", "ptp", "macvlan", "host-local")}})
    far = Namespace(work / "far.log")
    connect(far)
    etcd = Etcd(programs["etcd"], work, ["192.0.2.1"]).start()
    flannel = Flannel(work, programs["flanneld"], far)
    try:
        node.start()
        etcd.put("/coreos.com/network/config", CONFIG)
        without_daemon(steps, node)
        with steps.step("flannel's daemon runs on two nodes"):
            flannel.start()
        for kind in ("flannel", "go-flannel"):
            for version in VERSIONS:
                with steps.step(f"{kind} {version}: two pods and another node, until nothing is left"):
                    before, first, second = life(node, flannel, kind, version)
                    if version == "1.1.0":
                        node.restart()
                        first.pings(second.address)
                        first.check().check()
                    second.stop_and_remove()
                    first.stop_and_remove()
                    assert_nothing_left(before, *FILES, allowed=STAYS)
            with steps.step(f"{kind}: pods are removed after flannel's daemon and its file are gone"):
                before, first, second = life(node, flannel, kind, "1.0.0")
                text = ENVIRONMENT.read_text()
                ENVIRONMENT.unlink()
                first.stop_and_remove()
                second.stop_and_remove()
                ENVIRONMENT.write_text(text)
                assert_nothing_left(before, *FILES, allowed=STAYS)
        with steps.step("flannel: CHECK finds a missing address"):
            before, first, second = life(node, flannel, "flannel", "1.1.0")
            broken(first)
            second.check().check()
            first.stop_and_remove()
            second.stop_and_remove()
            assert_nothing_left(before, *FILES, allowed=STAYS)
        with steps.step("flannel: GC removes a lease that nothing has"):
            lost_lease(node, before)
        with steps.step("flannel without flannel's daemon: STATUS"):
            lost_description(node)
        compare(steps, work, programs)
    finally:
        node.clean_up()
        flannel.stop()
        etcd.stop()
        for link in ("cni0", "up0"):
            run("ip", "link", "del", link)
        far.end()
