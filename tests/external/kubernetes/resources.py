"""Resources that the kubelet manages: devices, CDI, DRA, huge pages, exclusive CPUs, memory of a NUMA node, an image file
system of its own; and the evented PLEG."""

import os
import re
from pathlib import Path

from session.program import Failure, assert_equal, run, spawn, wait_until

from .node import KUBELET_DIRECTORY
from .objects import DEVICE_PLUGIN, controller, pod, shell, spec

MIB = 1 << 20
HUGE_PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
# What the static policies require: a reservation of CPUs, and of memory that is divided among the NUMA nodes.
STATIC = {
    "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
    "kubeReserved": {"memory": "300Mi"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "400Mi"}}], "featureGates": {"EventedPLEG": True}}
DEVICES = ("/tmp/Dev-1", "/tmp/Dev-2")


def devices(steps, cluster):
    """A device plugin in a DaemonSet, whose devices are also injected by CDI."""
    volumes = {"plugins": "/var/lib/kubelet/device-plugins", "cdi": "/run/cdi", "tmp": "/tmp"}
    paths = {**volumes, "cdi": "/var/run/cdi"}
    try:
        with steps.step("a device plugin registers its devices with the kubelet"):
            Path("/run/cdi").mkdir(exist_ok=True)
            cluster.apply(controller("DaemonSet", "devices", spec(
                {"name": "main", "image": DEVICE_PLUGIN, "env": [{"name": "CDI_ENABLED", "value": "1"}], "securityContext": {"privileged": True},
                 "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()]},
                volumes=[{"name": name, "hostPath": {"path": path}} for name, path in volumes.items()])))
            wait_until("the node has devices", lambda: cluster.get("node", "node")["status"]["allocatable"].get("example.com/resource") == "2", 60)
        with steps.step("a container gets the mount of the plugin, and the variable and the device node of its CDI specification"):
            cluster.apply(pod("device", shell(resources={"limits": {"example.com/resource": "1"}})))
            cluster.wait_pod("device")
            text = cluster.shell("device", "ls -l /tmp; echo $CDI_DEVICE")
            name = re.search(r"CDI-Dev-\d$", text)[0]
            if not re.search(rf"^b.* 1, +\d+ .*{name}$", text, re.MULTILINE) or not re.search(r"^-.* Dev-\d$", text, re.MULTILINE):
                raise Failure(text)
        with steps.step("a pod that requests more devices than exist is not scheduled"):
            cluster.apply(pod("devices-exhausted", shell(resources={"limits": {"example.com/resource": "2"}})))
            wait_until("the condition", lambda: any(found["reason"] == "Unschedulable" for found in cluster.get("pod", "devices-exhausted")["status"].get("conditions", [])), 30)
    finally:
        cluster.kubectl("delete", "pod/device", "pod/devices-exhausted", "daemonset/devices", "--ignore-not-found", timeout=60)
        for path in DEVICES:
            Path(path).unlink(missing_ok=True)


def claims(steps, cluster):
    """Dynamic resource allocation with the test driver of Kubernetes, which injects variables by CDI."""
    (KUBELET_DIRECTORY / "plugins/test-driver.cdi.k8s.io").mkdir(parents=True, exist_ok=True)
    driver = spawn(cluster.programs["dra-test-driver"], "--kubeconfig", cluster.credentials.path("admin.conf"), "-v", "3", "kubelet-plugin", "--node-name", "node",
                   "--cdi-dir", "/run/cdi", log=cluster.logs / "dra-test-driver.log")
    try:
        with steps.step("DRA: the driver publishes its devices"):
            wait_until("the slice exists", lambda: cluster.get("resourceslices")["items"], 60)
        with steps.step("DRA: containers of a pod share the device of a claim; another container does not get it"):
            driver_name, using = "test-driver.cdi.k8s.io", {"resources": {"claims": [{"name": "device"}]}}
            cluster.apply(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "test"},
                 "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver_name}"'}}]}},
                {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "test"}, "spec": {"spec": {"devices": {
                    "requests": [{"name": "one", "exactly": {"deviceClassName": "test"}}],
                    "config": [{"opaque": {"driver": driver_name, "parameters": {"color": "green"}}}]}}}},
                pod("claim", shell(**using), shell("second", **using), shell("without"), resourceClaims=[{"name": "device", "resourceClaimTemplateName": "test"}]))
            cluster.wait_pod("claim")
            values = [cluster.shell("claim", "echo $user_color", container=name) for name in ("main", "second", "without")]
            assert_equal(values, ["green", "green", ""], "the variable that the driver adds")
            claim = cluster.get("resourceclaims")["items"][0]
            assert_equal(claim["status"]["allocation"]["devices"]["results"][0]["driver"], driver_name, "driver of the allocated device")
        with steps.step("DRA: the claim and its CDI specification are removed with the pod"):
            files = list(Path("/run/cdi").glob("*.json"))
            if not files:
                raise Failure("the driver wrote no CDI specification")
            cluster.delete("pod", "claim")
            wait_until("the claim is gone", lambda: not cluster.get("resourceclaims")["items"], 60)
            wait_until("its specification is gone", lambda: not any(file.exists() for file in files), 30)
    finally:
        driver.terminate()
        driver.wait(20)


def managers(steps, cluster):
    """The kubelet with static policies, huge pages and the evented PLEG."""
    pages = HUGE_PAGES.read_text()
    try:
        with steps.step("the kubelet starts again with static CPU and memory managers, huge pages and the evented PLEG"):
            cluster.node.stop()
            cluster.node.forget_managers()
            HUGE_PAGES.write_text(str(int(pages) + 16))
            cluster.node.start(**STATIC)
            cluster.wait_ready()
            wait_until("the node has huge pages", lambda: cluster.get("node", "node")["status"]["allocatable"].get("hugepages-2Mi") not in (None, "0"), 60)
        exclusive(steps, cluster)
        evented(steps, cluster)
    finally:
        cluster.kubectl("delete", "pod/exclusive", "pod/other", "pod/ends", "--ignore-not-found", timeout=60)
        HUGE_PAGES.write_text(pages)


def exclusive(steps, cluster):
    def status(name, key):
        return re.search(rf"^{key}:\s+(\S+)$", cluster.shell(name, "cat /proc/self/status"), re.MULTILINE)[1]

    with steps.step("a Guaranteed pod has a CPU of its own and the memory of one NUMA node; other containers lose the CPU"):
        cluster.apply(pod("other", shell()))
        cluster.wait_pod("other")
        limits = {"cpu": "1", "memory": "64Mi", "hugepages-2Mi": "8Mi"}
        cluster.apply(pod("exclusive", shell(script="exec sleep 2345", resources={"limits": limits}, volumeMounts=[{"name": "huge", "mountPath": "/huge"}]),
                          volumes=[{"name": "huge", "emptyDir": {"medium": "HugePages"}}]))
        cluster.wait_pod("exclusive")
        cpu = status("exclusive", "Cpus_allowed_list")
        if not cpu.isdigit() or cpu == "0":
            raise Failure(f"CPUs of the pod: {cpu}")
        assert_equal(status("exclusive", "Mems_allowed_list"), "0", "NUMA nodes of the pod")
        every = set(range(os.cpu_count()))
        wait_until("the other container loses the CPU", lambda: _numbers(status("other", "Cpus_allowed_list")) == every - {int(cpu)}, 60)
    with steps.step("huge pages: a volume of them, and the limit in the cgroup"):
        assert_equal(cluster.shell("exclusive", "grep -c ' /huge hugetlbfs ' /proc/mounts; fallocate -l 4M /huge/file && stat -c %s /huge/file").split(), ["1", str(4 * MIB)], "mount and size")
        assert_equal(_huge_page_limit("sleep 2345"), 8 * MIB, "limit of huge pages")
    with steps.step("the CPU is shared again when the pod is gone"):
        cluster.delete("pod", "exclusive")
        wait_until("the other container has all CPUs", lambda: _numbers(status("other", "Cpus_allowed_list")) == set(range(os.cpu_count())), 60)


def evented(steps, cluster):
    with steps.step("the evented PLEG is connected, and the kubelet notices the exit of a container"):
        cluster.apply(pod("ends", shell(script="sleep 1"), restartPolicy="Never"))
        wait_until("the pod has succeeded", lambda: cluster.get("pod", "ends")["status"]["phase"] == "Succeeded", 30)
        text = cluster.kubectl("get", "--raw", "/api/v1/nodes/node/proxy/metrics").check().out
        counts = dict(re.findall(r"^kubelet_evented_pleg_connection_(success_count|error_count)\S* (\S+)$", text, re.MULTILINE))
        if float(counts.get("success_count", 0)) < 1:
            raise Failure(f"connections of the evented PLEG: {counts}")


def image_file_system(steps, cluster):
    """The engine with its data on a file system of its own, which is small."""
    data = cluster.engine.work / ("data" if cluster.engine.name == "pinion" else "root")
    size = 1500 * MIB
    cluster.remove_pods("--all-namespaces")
    cluster.node.stop()
    cluster.node.forget_managers()
    cluster.engine.stop()
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0711", "tmpfs", data).check()
    try:
        with steps.step("images and writable layers on a file system of their own: the kubelet reports its size"):
            cluster.engine.start()
            cluster.node.start(evictionHard={"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "700Mi"}, evictionPressureTransitionPeriod="5s")
            cluster.wait_ready()
            wait_until("the sizes", lambda: _capacities(cluster)[:2] == [size, size] and _capacities(cluster)[2] != size, 60)
        with steps.step("a pod that fills the image file system is evicted, and the pressure ends"):
            cluster.apply(pod("filler", shell(script="dd if=/dev/zero of=/big bs=1M count=900 2>/dev/null; exec sleep 3600"), restartPolicy="Never"))
            wait_until("the pod is evicted", lambda: cluster.get("pod", "filler")["status"].get("reason") == "Evicted", 150)
            cluster.delete("pod", "filler", "--now")
            wait_until("the pressure ends", lambda: _pressure(cluster) == "False", 120)
    finally:
        cluster.kubectl("delete", "pods", "--all", "--now", timeout=60)
        cluster.node.stop()
        cluster.engine.stop()
        run("umount", data).check()
        cluster.engine.start()
        cluster.node.start()


def _capacities(cluster):
    """Returns the capacities of the file systems of images, of containers and of the node."""
    node = cluster.kubectl("get", "--raw", "/api/v1/nodes/node/proxy/stats/summary").check().json["node"]
    return [part["capacityBytes"] for part in (node["runtime"]["imageFs"], node["runtime"]["containerFs"], node["fs"])]


def _pressure(cluster):
    return next(found["status"] for found in cluster.get("node", "node")["status"]["conditions"] if found["type"] == "DiskPressure")


def _huge_page_limit(command):
    """Returns the limit in the cgroup of the process with this command line, which is in a v1 or in the v2 hierarchy."""
    pid = run("pgrep", "-x", "-f", command).check().text
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        roots = ("unified", "") if number == "0" else ("hugetlb",) if controllers == "hugetlb" else ()
        for file in (Path("/sys/fs/cgroup") / root / path.lstrip("/") / name for root in roots for name in ("hugetlb.2MB.max", "hugetlb.2MB.limit_in_bytes")):
            if file.exists():
                return int(file.read_text())
    raise Failure(f"{command}: no cgroup limits huge pages")


def _numbers(text):
    """Returns the numbers of a list such as 0-2,5."""
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers

