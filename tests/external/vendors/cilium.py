"""Cilium: its plugin without an agent, and with a stand-in for the agent."""

import json
from pathlib import Path

from session.program import assert_equal, run

from .agent import MTU, ROUTER, Agent
from .node import VERSIONS, Node, assert_nothing_left, state

FILES = ("/run/cilium",)
QUEUE = Path("/run/cilium/deleteQueue")
PLUGIN = {"type": "cilium-cni", "enable-debug": False, "log-file": "/run/cilium/cilium-cni.log"}
# The plugin keeps its log, and a directory with a lock. Without an agent a file for each deleted endpoint is there, which
# the agent reads when it starts.
STAYS = (r"files: /run/cilium/(cilium-cni\.log|deleteQueue|deleteQueue/lockfile)$",)
QUEUED = (*STAYS, r"files: /run/cilium/deleteQueue/[0-9a-f]+\.delete$")


def without_agent(steps, node):
    with steps.step("cilium-cni without an agent: the pod fails with the reason, and nothing is left"):
        before = state(*FILES)
        node.use("cilium", "0.3.1", PLUGIN)
        # ADD tries to connect for 30 s, DEL for 20 s.
        node.run_pod()[0].check_fails(both="unable to connect to Cilium agent")
        assert_equal(node.engine.crictl("pods", "-q").check().text, "", "pods")
        assert_nothing_left(before, *FILES, allowed=QUEUED)


def life(node, agent, version):
    """Two pods, from their creation to their removal."""
    before = state(*FILES)
    node.use("cilium", version, PLUGIN)
    node.wait_for_status(True)
    pods = node.pod(), node.pod()
    for pod in pods:
        endpoint = agent.endpoints[f"cni-attachment-id:{pod.id}:eth0"]
        metadata = pod.status()["status"]["metadata"]
        assert_equal((endpoint["k8s-pod-name"], endpoint["k8s-namespace"], endpoint["k8s-uid"]), (metadata["name"], "default", metadata["uid"]), "identity of the endpoint")
        assert_equal(endpoint["addressing"]["ipv4"], pod.address, "address")
        assert_equal(int(endpoint["netns-cookie"]) > 0, True, "cookie of the network namespace")
        link = json.loads(run("ip", "-j", "link", "show", endpoint["interface-name"]).check().out)[0]
        assert_equal((link["ifindex"], link["operstate"]), (endpoint["interface-index"], "UP"), "link of the node")
        assert_equal(f"inet {pod.address}/32" in pod.inside("addr", "show", "eth0"), True, "address in the pod")
        assert_equal(f"default via {ROUTER} dev eth0 mtu {MTU}" in pod.inside("route"), True, "default route of the pod")
    if version != "0.3.1":
        pods[0].check().check()
        address = pods[0].address
        pods[0].inside("addr", "flush", "dev", "eth0")
        pods[0].check().check_fails(both=f"expected ip .*{address}")
    for pod in pods:
        pod.stop_and_remove()
    assert_equal((agent.endpoints, agent.addresses), ({}, {}), "endpoints and addresses of the agent")
    assert_nothing_left(before, *FILES, allowed=STAYS)


def with_agent(steps, node, agent):
    for version in VERSIONS:
        with steps.step(f"cilium-cni {version} with a stand-in for the agent: two pods until nothing is left"):
            life(node, agent, version)
    with steps.step("an agent that refuses the endpoint: the pod fails with the reason, and nothing is left"):
        before = state(*FILES)
        node.use("cilium", "0.3.1", PLUGIN)
        agent.refuses = True
        node.run_pod()[0].check_fails(both="unable to create endpoint")
        agent.refuses = False
        assert_equal((agent.endpoints, agent.addresses), ({}, {}), "endpoints and addresses of the agent")
        assert_nothing_left(before, *FILES, allowed=STAYS)


def agent_ends(node, agent):
    """A pod is removed after its agent has ended: the plugin leaves the rest to the next agent."""
    before = state(*FILES)
    node.use("cilium", "0.3.1", PLUGIN)
    pod = node.pod()
    agent.stop()
    pod.stop_and_remove()
    assert_nothing_left(before, *FILES, allowed=QUEUED)
    queued = [path.read_text() for path in QUEUE.glob("*.delete")]
    assert_equal(any(pod.id in text for text in queued), True, f"the endpoint is in the queue of the agent: {queued}")


def not_ready(node):
    """STATUS reports that no agent is running; a configuration without STATUS is not affected by that."""
    node.use("cilium", "1.1.0", PLUGIN)
    # The daemon calls it every minute, and the plugin tries to connect for 30 s.
    node.wait_for_status(False, "CNI plugin cilium-cni STATUS: .*unable to connect to Cilium agent", 150)
    node.use("cilium", "0.3.1", PLUGIN)
    node.wait_for_status(True, seconds=5)


def session(steps, work, programs, registry):
    node = Node(work, registry, {"cilium-cni": programs["cilium-cni"]})
    agent = None
    try:
        node.start()
        without_agent(steps, node)
        agent = Agent()
        with_agent(steps, node, agent)
        with steps.step("cilium-cni: a pod is removed after its agent has ended"):
            agent_ends(node, agent)
            agent = None
        with steps.step("cilium-cni without an agent: STATUS"):
            not_ready(node)
    finally:
        node.clean_up()
        if agent:
            agent.stop()
