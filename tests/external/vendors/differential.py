"""flannel's plugin and `pinion-cni` with the same input: results, files, links, addresses, routes, rules, sysctls.

Each also deletes what the other one added.
"""

import json
import os
import re
from pathlib import Path

from session.engines import Pinion
from session.program import Failure, assert_equal, run

from .links import Namespace

FILE = Path("/run/flannel/compared.env")
CONTAINER = "0123456789abcdef0123456789abcdef"
V4 = "FLANNEL_NETWORK=10.99.0.0/16\nFLANNEL_SUBNET=10.99.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
MASQUERADE = V4.replace("true", "false")
DUAL = V4 + "FLANNEL_IPV6_NETWORK=fd99::/48\nFLANNEL_IPV6_SUBNET=fd99:0:0:3::1/64\n"
# Both masquerade with nftables.
NFTABLES = {"ipMasqBackend": "nftables"}
# Name: description by the daemon, members of the configuration.
CASES = {
    "defaults": (V4, {}),
    "kube-flannel": (V4, {"delegate": {"hairpinMode": True, "isDefaultGateway": True}}),
    "masquerading by the delegate": (MASQUERADE, {"delegate": NFTABLES}),
    "two families": (DUAL, {"delegate": {"isDefaultGateway": True}}),
    "two families, masquerading": (DUAL.replace("true", "false"), {"delegate": NFTABLES}),
    "IPv6 only": (re.sub("FLANNEL_(NETWORK|SUBNET).*\n", "", DUAL), {"delegate": {"isDefaultGateway": True}}),
    "two networks": (V4.replace("10.99.0.0/16", "10.99.0.0/16,10.98.0.0/16,10.99.0.0/16"), {}),
    "MTU and bridge of the delegate": (V4, {"delegate": {"mtu": 1300, "bridge": "flan0", "promiscMode": True}}),
    "no gateway": (V4, {"delegate": {"isGateway": False}}),
    "ptp": (V4, {"delegate": {"type": "ptp"}}),
    "macvlan": (V4, {"delegate": {"type": "macvlan", "master": "up0"}}),
    "routes and other addresses": (V4, {"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.99.3.254"}], "ranges": [[{"subnet": "10.1.0.0/24"}]]}}),
    "arguments of the runtime": (V4, {"runtimeConfig": {"mac": "02:00:00:00:00:99"}}),
}
# Both fail.
INVALID = {
    "no MTU": (V4.replace("FLANNEL_MTU=1450\n", ""), {}),
    "no subnet": (V4.replace("FLANNEL_SUBNET=10.99.3.1/24\n", ""), {}),
    "no network": (V4.replace("FLANNEL_NETWORK=10.99.0.0/16\n", ""), {}),
    "damaged MTU": (V4.replace("1450", "many"), {}),
    "damaged subnet": (V4.replace("10.99.3.1/24", "10.99.3.1"), {}),
    "name of the delegate": (V4, {"delegate": {"name": "other"}}),
    "addresses of the delegate": (V4, {"delegate": {"ipam": {"type": "static"}}}),
    "type of the delegate": (V4, {"delegate": {"type": 5}}),
    "unknown type": (V4, {"delegate": {"type": "missing"}}),
    "no description": (None, {}),
}


class Plugin:
    """A program of the type `flannel`."""

    def __init__(self, name, argv, path):
        self.name, self.argv, self.path = name, argv, path

    def call(self, command, namespace, config):
        environment = {"CNI_COMMAND": command, "CNI_CONTAINERID": CONTAINER, "CNI_NETNS": namespace.path, "CNI_IFNAME": "eth0", "CNI_PATH": self.path,
                       "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p"}
        return run(*self.argv, stdin=json.dumps(config), env=environment)


# Members of the output of `ip` that differ between two attachments, or count, or follow some moments later.
VOLATILE = {"ifindex", "link_index", "link_netnsid", "address", "bridge_id", "root_id", "designated_bridge", "designated_root", "ifalias", "link", "txqlen", "valid_life_time",
            "preferred_life_time", "operstate", "tentative", *(f"{name}_timer" for name in ("hello", "tcn", "topology_change", "gc", "hold", "message_age", "forward_delay"))}


def normal(text):
    """Replaces random names and addresses, and the path of the namespace."""
    text = re.sub(r"\bveth[0-9a-f]+\b", "VETH", text)
    text = re.sub(r"\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b", "MAC", text)
    return re.sub(r"/proc/\d+/ns/net", "NAMESPACE", re.sub(r"fe80::[0-9a-f:]+", "LINK-LOCAL", text))


def stable(value):
    """Removes the volatile members of the output of `ip`, and the flags of the carrier."""
    if isinstance(value, dict):
        return {key: stable(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [flag for flag in value if flag not in ("NO-CARRIER", "LOWER_UP", "linkdown")]
    return [stable(item) for item in value] if isinstance(value, list) else value


def objects(*argv):
    """Returns the objects that a program of iproute2 prints, as sorted lines."""
    return sorted(json.dumps(stable(item), sort_keys=True) for item in json.loads(normal(run(*argv).check().out) or "[]") if item)


def observe(namespace):
    """Returns what exists inside and on the node."""
    sysctls = "for key in ipv4.ip_forward ipv4.conf.eth0.arp_notify ipv6.conf.eth0.accept_dad ipv6.conf.eth0.accept_ra ipv6.conf.eth0.disable_ipv6; do sysctl -n net.$key; done"
    seen = {}
    for where, argv in (("pod", namespace.argv()), ("node", [])):
        seen[f"{where}: links"] = objects(*argv, "ip", "-j", "-d", "link")
        # Link-local addresses are tentative for a moment.
        seen[f"{where}: addresses"] = objects(*argv, "ip", "-j", "addr", "show", "scope", "global")
        for family in ("-4", "-6"):
            routes = objects(*argv, "ip", "-j", family, "route", "show", "table", "all")
            # The kernel derives them from addresses, those of IPv6 when it knows that no other node has the address.
            derived = ("LINK-LOCAL", "ff00::/8", "fe80::", *(['"table": "local"'] if family == "-6" else []))
            seen[f"{where}: routes {family}"] = [route for route in routes if not any(word in route for word in derived)]
    seen["node: ports"] = objects("bridge", "-j", "-d", "link")
    # The comments of tables and chains have no effect; those of rules name the attachment. The reference plugins' DEL calls
    # iptables, too, which adds an empty table.
    rules = {line.strip() for line in normal(run("nft", "list", "ruleset").out).splitlines()}
    seen["node: rules"] = sorted(line for line in rules if line and not re.match(r"comment |table ip6? nat \{", line))
    seen["pod: sysctls"] = run(*namespace.argv(), "sh", "-c", sysctls).out.split("\n")
    seen["node: sysctls"] = run("sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding").out.split("\n")
    # Pinion's host-local has the boot of the leases in a file of its own.
    files = (path for path in Path("/var/lib/cni").rglob("*") if path.is_file() and path.name != "last_reserved_ip.boot_id")
    seen["files"] = sorted(f"{path}: {_content(path)}" for path in files)
    return seen


def _content(path):
    text = path.read_text()
    return json.dumps(json.loads(text), sort_keys=True) if text.startswith("{") else normal(text)


def assert_same(actual, expected, title):
    """Fails with the lines that only one of both has."""
    if actual != expected:
        only = [[line for line in some if line not in others] for some, others in ((expected, actual), (actual, expected))]
        raise Failure(f"{title}: only expected:\n" + "\n".join(only[0]) + "\nonly found:\n" + "\n".join(only[1]))


def reset():
    """Removes what attachments leave on the node by design."""
    for link in ("cni0", "flan0"):
        run("ip", "link", "del", link)
    run("nft", "flush", "ruleset")
    run("rm", "-rf", "/var/lib/cni/networks", "/var/lib/cni/flannel")
    for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        run("sysctl", "-q", f"{key}=0")


def attach(work, adding, deleting, config):
    """Adds and deletes an attachment; returns result, state with it, and state without it."""
    reset()
    namespace = Namespace(work / "namespace.log")
    try:
        added = adding.call("ADD", namespace, config).check()
        during = observe(namespace)
        deleting.call("DEL", namespace, config).check()
        deleting.call("DEL", namespace, config).check()
        return json.loads(normal(added.out)), during, observe(namespace)
    finally:
        namespace.end()


def configuration(version, text, members):
    FILE.unlink(missing_ok=True)
    if text is not None:
        FILE.write_text(text)
    return {"cniVersion": version, "name": "compared", "type": "flannel", "subnetFile": str(FILE), **members}


def compare_case(work, theirs, ours, config):
    expected = attach(work, theirs, theirs, config)
    for adding, deleting in ((ours, ours), (ours, theirs), (theirs, ours)):
        actual = attach(work, adding, deleting, config)
        title = f"ADD by {adding.name}, DEL by {deleting.name}"
        assert_equal(actual[0], expected[0], f"{title}: result")
        for number, moment in ((1, "with the pod"), (2, "after DEL")):
            for subject, value in expected[number].items():
                assert_same(actual[number][subject], value, f"{title}: {moment}: {subject}")


def compare(steps, work, programs):
    """Compares both plugins in every case, the first two in all versions."""
    if not Path("/sys/class/net/up0").exists():
        raise RuntimeError("the link up0 does not exist")
    reference = programs["reference"]
    theirs = Plugin("flannel's plugin", [programs["flannel"]], reference)
    ours = Plugin("pinion-cni", [os.fspath(Pinion.programs / "pinion-cni"), "flannel"], "/nonexistent")
    for name, (text, members) in CASES.items():
        versions = ("0.3.1", "0.4.0", "1.0.0", "1.1.0") if name in ("defaults", "two families") else ("1.0.0",)
        for version in versions:
            with steps.step(f"both plugins agree: {name}, {version}"):
                compare_case(work, theirs, ours, configuration(version, text, members))
    for name, (text, members) in INVALID.items():
        with steps.step(f"both plugins refuse: {name}"):
            reset()
            namespace = Namespace(work / "namespace.log")
            try:
                config = configuration("1.0.0", text, members)
                before = observe(namespace)
                for plugin in (theirs, ours):
                    failed = plugin.call("ADD", namespace, config).check_fails()
                    assert_equal(bool(failed.json.get("msg")), True, f"{plugin.name} names the reason")
                    deleted = plugin.call("DEL", namespace, config)
                    # Both have recorded a type that cannot be called, and keep it for a retry.
                    assert_equal(deleted.code == 0, name != "unknown type", f"DEL of {plugin.name} succeeds: {deleted}")
                    for subject, value in observe(namespace).items():
                        assert_same([line for line in value if "/var/lib/cni/" not in line], [line for line in before[subject] if "/var/lib/cni/" not in line], f"left by {plugin.name}: {subject}")
            finally:
                namespace.end()
    reset()
    FILE.unlink(missing_ok=True)
