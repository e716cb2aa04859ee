"""Calico: its plugin and calico-ipam, with etcd as the datastore and with the records that calico/node would write."""

import json
import os
import re
from pathlib import Path

from session.program import assert_equal, run, wait_until

from .etcd import CLIENTS, Etcd
from .links import Namespace, connect
from .node import VERSIONS, Node, assert_nothing_left, state

NODE = "node-a"
POOLS = """
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pool4}
spec: {cidr: 10.60.0.0/24, blockSize: 26, ipipMode: Never, vxlanMode: Never, natOutgoing: false, nodeSelector: all()}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pool6}
spec: {cidr: "fd60::/112", blockSize: 122, ipipMode: Never, vxlanMode: Never, natOutgoing: false, nodeSelector: all()}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: node-a}
spec: {bgp: {ipv4Address: 192.0.2.1/24}}
"""
# calico/node writes it when it starts.
INFORMATION = {"kind": "ClusterInformation", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "default", "uid": "11111111-1111-1111-1111-111111111111",
               "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"clusterGUID": "0123456789abcdef0123456789abcdef", "datastoreReady": True}}
FILES = ("/var/lib/cni", "/var/lib/calico", "/run/calico")
STAYS = (r"nft: (table|chain|type|\}|comment|(.* )?jump (hostports|hostip_hostports|masquerading)|meta mark)", r"files: /run/calico(/ipam.lock)?$", r"files: /var/lib/cni$")
PREFIX = "/calico/resources/v3/projectcalico.org/"


def lists(families=("ipv4",), **fields):
    """Returns the plugins of Calico's manifest, with etcd instead of the API server."""
    ipam = {"type": "calico-ipam", **{f"assign_{family}": "true" if family in families else "false" for family in ("ipv4", "ipv6")}}
    return ({"type": "calico", "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log", "datastore_type": "etcdv3", "etcd_endpoints": CLIENTS, "mtu": 1440, "nodename_file_optional": False,
             "ipam": ipam, "container_settings": {"allow_ip_forwarding": False}, "policy": {"type": ""}, "kubernetes": {"k8s_api_root": "https://127.0.0.1:6443"}, **fields},
            {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}, {"type": "bandwidth", "capabilities": {"bandwidth": True}})


class Datastore:
    """What Calico keeps in etcd."""

    def __init__(self, program, work, etcd):
        self.program, self.work, self.etcd = program, work, etcd

    def calicoctl(self, *argv, **options):
        return run(self.program, "--allow-version-mismatch", *argv, env={"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": CLIENTS, "HOME": os.fspath(self.work)}, **options)

    def prepare(self):
        """Writes what calico/node and an administrator write: pools, the record of the node, the state of the cluster."""
        self.etcd.put(f"{PREFIX}clusterinformations/default", INFORMATION)
        self.calicoctl("apply", "-f", "-", stdin=POOLS).check()

    def endpoints(self):
        """Returns the workload endpoints by the name of their pod."""
        found = (json.loads(value)["spec"] for value in self.etcd.list(f"{PREFIX}workloadendpoints/").values())
        return {spec["pod"]: spec for spec in found}

    def addresses(self):
        """Returns the addresses that are assigned, by handle."""
        handles = {}
        for value in self.etcd.list("/calico/ipam/v2/assignment/").values():
            block = json.loads(value)
            for index in block["allocations"]:
                if index is not None:
                    handle = block["attributes"][index]["handle_id"]
                    handles[handle] = handles.get(handle, 0) + 1
        return handles


def assert_forgotten(store):
    """Fails if the datastore knows a pod."""
    assert_equal(store.endpoints(), {}, "workload endpoints")
    assert_equal(store.addresses(), {}, "assigned addresses")
    assert_equal(list(store.etcd.list("/calico/ipam/v2/handle/")), [], "handles")


def failures(steps, node, store):
    with steps.step("calico without calico/node: the pod fails with the reason, and nothing is left"):
        before = state(*FILES)
        node.use("k8s-pod-network", "0.3.1", *lists())
        node.run_pod()[0].check_fails(both="nodename: no such file or directory: check that the calico/node container is running")
        Path("/var/lib/calico").mkdir(exist_ok=True)
        Path("/var/lib/calico/nodename").write_text(NODE)
        assert_nothing_left(before, *FILES, allowed=(*STAYS, "files: /var/lib/calico"))
    with steps.step("calico without its records: the pod fails with the reason"):
        node.run_pod()[0].check_fails(both="(?i)ClusterInformation")
    with steps.step("DEL of both pods, which failed like ADD, is repeated until it succeeds"):
        store.prepare()
        wait_until("the pods are removed", lambda: not node.engine.crictl("pods", "-q").check().text, 60)
        assert_nothing_left(before, *FILES, allowed=(*STAYS, "files: /var/lib/calico"))
    with steps.step("calico-ipam without a free address: the pod fails with the reason, and nothing is left"):
        before = state(*FILES)
        node.use("k8s-pod-network", "0.3.1", *lists(ipam={"type": "calico-ipam", "ipv4_pools": ["10.61.0.0/24"]}))
        node.run_pod()[0].check_fails(both="10.61.0.0/24|pool")
        assert_forgotten(store)
        assert_nothing_left(before, *FILES, allowed=STAYS)


def life(node, store, far, version, families=("ipv4",)):
    """Two pods, from their creation; returns the state before."""
    before = state(*FILES)
    node.use("k8s-pod-network", version, *lists(families))
    node.wait_for_status(True)
    annotations = {"kubernetes.io/ingress-bandwidth": "800M", "kubernetes.io/egress-bandwidth": "800M"}
    first, second = node.pod(ports=[(8080, 80)], annotations=annotations), node.pod()
    for pod in (first, second):
        name = pod.status()["status"]["metadata"]["name"]
        endpoint = store.endpoints()[name]
        assert_equal((endpoint["node"], endpoint["containerID"], endpoint["endpoint"]), (NODE, pod.id, "eth0"), "workload endpoint")
        assert_equal(pod.address in [network.split("/")[0] for network in endpoint["ipNetworks"]], True, f"{pod.address} is in {endpoint['ipNetworks']}")
        assert_equal(json.loads(pod.inside("-j", "link", "show", "eth0"))[0]["mtu"], 1440, "MTU")
        assert_equal(json.loads(run("ip", "-j", "link", "show", endpoint["interfaceName"]).check().out)[0]["operstate"], "UP", "link of the node")
        if "ipv4" in families:
            assert_equal("default via 169.254.1.1 dev eth0" in pod.inside("route"), True, "default route of the pod")
            assert_equal(f"dev {endpoint['interfaceName']}" in run("ip", "route", "get", pod.address).out, True, "route of the node")
    assert_equal(sum(store.addresses().values()), 2 * len(families), "assigned addresses")
    first.pings(second.address)
    second.pings(first.address, size=1400)
    run("ping", "-c", "1", "-W", "5", first.address).check()
    if "ipv4" in families:
        far.run("ping", "-c", "1", "-W", "5", second.address).check()
        for argv in ([], far.argv()):
            run(*argv, "curl", "-fsS", "-m", "5", "http://192.0.2.1:8080/").check(out="served")
    if version != "0.3.1":
        first.check().check()
    qdiscs = run("tc", "qdisc", "show", "dev", store.endpoints()[first.status()["status"]["metadata"]["name"]]["interfaceName"]).out
    assert_equal("tbf" in qdiscs, True, f"bandwidth of the pod: {qdiscs}")
    return before, first, second


def without_datastore(node, store, far):
    """A pod that is removed while etcd does not run stays, and is removed later."""
    before, first, second = life(node, store, far, "1.0.0")
    second.stop_and_remove()
    store.etcd.stop()
    stopped = first.crictl("stopp", first.id, timeout=200)
    # The plugin waits for etcd, longer than the client waits for the daemon.
    stopped.check_fails(both="calico|deadline")
    assert_equal("calico" in node.engine("why", first.id).check().out, True, "`pinion why` names the plugin")
    store.etcd.start()
    wait_until("the pod is removed", lambda: first.crictl("rmp", "-f", first.id, timeout=200).code == 0, 120)
    assert_forgotten(store)
    assert_nothing_left(before, *FILES, allowed=STAYS)


def unsupported(node, store):
    """A version that Calico does not support: the network is not ready until the configuration is replaced."""
    before = state(*FILES)
    node.use("k8s-pod-network", "1.1.0", *lists())
    node.wait_for_status(False, "CNI plugin calico STATUS: .*version", 90)
    node.run_pod()[0].check_fails(both=r"incompatible CNI versions.*it supports .*1\.0\.0")
    # DEL has the version of ADD, so the plugin refuses it, too, and the pod stays. A plugin whose program is missing is skipped.
    node.engine.crictl("rmp", "-fa", timeout=200).check_fails(both="incompatible CNI versions")
    link = node.work / "bin/calico"
    program = link.readlink()
    link.unlink()
    wait_until("the pod is removed", lambda: node.engine.crictl("rmp", "-fa", timeout=200) and not node.engine.crictl("pods", "-q").check().text, 90)
    link.symlink_to(program)
    node.use("k8s-pod-network", "1.0.0", *lists())
    node.wait_for_status(True, seconds=5)
    node.pod().stop_and_remove()
    assert_forgotten(store)
    assert_nothing_left(before, *FILES, allowed=STAYS)


def session(steps, work, programs, registry):
    node = Node(work, registry, {"calico": programs["calico"], "calico-ipam": programs["calico"]})
    etcd = Etcd(programs["etcd"], work).start()
    store = Datastore(programs["calicoctl"], work, etcd)
    # Another node, with the route that BGP would give it. The node answers the ARP requests of pods because it has a
    # default route. Felix, which does not run here, would turn forwarding on.
    far = Namespace(work / "far.log")
    connect(far)
    far.run("ip", "route", "add", "10.60.0.0/24", "via", "192.0.2.1").check()
    run("sysctl", "-q", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1").check()
    try:
        node.start()
        failures(steps, node, store)
        for version, families in [*((version, ("ipv4",)) for version in VERSIONS[:3]), ("1.0.0", ("ipv4", "ipv6")), ("1.0.0", ("ipv6",))]:
            with steps.step(f"calico {version}, {' and '.join(families)}: two pods until nothing is left"):
                before, first, second = life(node, store, far, version, families)
                node.restart()
                first.pings(second.address)
                first.stop_and_remove()
                assert_equal(len(store.endpoints()), 1, "workload endpoints")
                second.stop_and_remove()
                assert_forgotten(store)
                assert_nothing_left(before, *FILES, allowed=STAYS)
        with steps.step("calico: a pod is removed while the datastore does not run, and after it runs again"):
            without_datastore(node, store, far)
        with steps.step("calico 1.1.0, which it does not support"):
            unsupported(node, store)
        with steps.step("calicoctl finds no leaked address"):
            report = store.calicoctl("ipam", "show").check().out
            assert_equal(re.search(r"IP Pool +\| +10\.60\.0\.0/24 +\| +256 +\| 0 ", report) is not None, True, report)
    finally:
        node.clean_up()
        etcd.stop()
        run("ip", "link", "del", "up0")
        far.end()
