"""Features of pods: kinds of containers, namespaces, security contexts, volumes, limits, hooks."""

import os
import re
from pathlib import Path

from session.cgroups import limit_of
from session.program import Failure, assert_equal, run, wait_until

from .pods import BUSYBOX, FOREVER, pod, shell

MIB = 1 << 20


def _manifests(shared):
    mounted = {"name": "scratch", "mountPath": "/scratch"}
    yield pod("one", shell("main", f"echo started as $(hostname); {FOREVER}"))
    yield pod(
        "order", shell("main", f"echo $(cat /scratch/order) main; {FOREVER}", volumeMounts=[mounted]), shell("second", volumeMounts=[mounted]),
        initContainers=[
            shell("first", "echo first > /scratch/order", volumeMounts=[mounted]),
            shell("sidecar", f"echo $(cat /scratch/order) sidecar > /scratch/order; {FOREVER}", restartPolicy="Always", volumeMounts=[mounted],
                  startupProbe={"exec": {"command": ["grep", "-q", "sidecar", "/scratch/order"]}, "periodSeconds": 1}),
            shell("last", "echo $(cat /scratch/order) last > /scratch/order", volumeMounts=[mounted])],
        volumes=[{"name": "scratch", "emptyDir": {}}])
    yield pod("hostnet", shell("main"), hostNetwork=True, hostPID=True, hostIPC=True)
    yield pod("sharedpid", shell("main"), shell("other", "exec sleep 4321"), shareProcessNamespace=True)
    yield _security()
    yield _volumes(shared)
    yield pod(
        "limits", shell("main", resources={"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}}),
        shell("unlimited"))
    yield pod("userns", shell("main", volumeMounts=[mounted, {"name": "host", "mountPath": "/host"}]), hostUsers=False,
              volumes=[{"name": "scratch", "emptyDir": {}}, {"name": "host", "hostPath": {"path": str(shared)}}])
    yield pod("imagevolume", shell("main", volumeMounts=[{"name": "image", "mountPath": "/image"}, {"name": "image", "mountPath": "/etc-of-it", "subPath": "etc"}]),
              volumes=[{"name": "image", "image": {"reference": BUSYBOX, "pullPolicy": "IfNotPresent"}}])
    record = {"name": "record", "mountPath": "/record"}
    yield pod("hooks", shell("main", FOREVER, volumeMounts=[record], lifecycle={
        "postStart": {"exec": {"command": ["sh", "-c", "echo postStart >> /record/hooks"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo preStop >> /record/hooks"]}}}),
        volumes=[{"name": "record", "hostPath": {"path": str(shared / "record"), "type": "DirectoryOrCreate"}}])
    yield pod("names", shell("main", env=[
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "ODD", "value": "a=b \"c\" $(POD)\nnext"}]),
        hostname="named", subdomain="below", dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.53"], "searches": ["example.org"], "options": [{"name": "ndots", "value": "3"}]},
        hostAliases=[{"ip": "192.0.2.7", "hostnames": ["alias.example"]}])
    yield pod("port", shell("main", "echo page > /tmp/index.html; exec httpd -f -p 80 -h /tmp", ports=[{"containerPort": 80, "hostPort": 18080}]))


def _security():
    return pod(
        "security",
        shell("user", securityContext={"runAsUser": 1234, "runAsGroup": 2345}),
        shell("dropped", securityContext={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "allowPrivilegeEscalation": False,
                                          "seccompProfile": {"type": "RuntimeDefault"}}),
        shell("readonly", securityContext={"readOnlyRootFilesystem": True, "seccompProfile": {"type": "Unconfined"}}),
        shell("privileged", securityContext={"privileged": True}),
        securityContext={"fsGroup": 3456, "supplementalGroups": [4567], "sysctls": [
            {"name": "net.ipv4.ip_local_port_range", "value": "20000 30000"}, {"name": "net.core.somaxconn", "value": "777"}, {"name": "kernel.shm_rmid_forced", "value": "1"}]},
        volumes=[{"name": "owned", "emptyDir": {}}])


def _volumes(shared):
    return pod(
        "volumes", shell("main", volumeMounts=[
            {"name": "memory", "mountPath": "/memory"},
            {"name": "disk", "mountPath": "/disk"},
            {"name": "disk", "mountPath": "/part", "subPath": "a/part"},
            {"name": "disk", "mountPath": "/named", "subPathExpr": "of-$(POD)"},
            {"name": "host", "mountPath": "/host"},
            {"name": "host", "mountPath": "/host-ro", "readOnly": True},
            {"name": "file", "mountPath": "/etc/from-host", "readOnly": True},
            {"name": "host", "mountPath": "/host-slave", "mountPropagation": "HostToContainer"}],
            env=[{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]),
        volumes=[{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}, {"name": "disk", "emptyDir": {}},
                 {"name": "host", "hostPath": {"path": str(shared), "type": "Directory"}},
                 {"name": "file", "hostPath": {"path": str(shared / "file"), "type": "File"}}])


def start(steps, pods, shared):
    """Starts all pods at once and returns their names."""
    (shared / "file").write_text("of the host\n")
    manifests = list(_manifests(shared))
    for manifest in manifests:
        pods.node.add_manifest(manifest)
    # While the test waits for the first pod, the others start too, so they have a shorter time limit.
    for number, manifest in enumerate(manifests):
        with steps.step(f"pod {manifest['metadata']['name']} starts"):
            pods.wait_running(manifest["metadata"]["name"], seconds=20 if number else 60)
    return [manifest["metadata"]["name"] for manifest in manifests]


def _namespaces(*kinds):
    return "; ".join(f"readlink /proc/self/ns/{kind}" for kind in kinds)


def kinds(steps, pods):
    with steps.step("init containers, sidecar and main containers start in order"):
        pods.wait_for_log("order", "main", "first sidecar last main")
        state = pods.container("order", "first")["state"]
        assert_equal((state["terminated"]["exitCode"], state["terminated"]["reason"]), (0, "Completed"), "exit code and reason of the first init container")
        assert_equal("running" in pods.container("order", "sidecar")["state"], True, "the sidecar is running")
    with steps.step("the hostname is the name of the pod"):
        pods.wait_for_log("one", "main", "started as one-node")
    with steps.step("hostNetwork, hostPID and hostIPC"):
        namespaces = pods.exec_script("hostnet", "main", _namespaces("net", "ipc", "pid")).split()
        assert_equal(namespaces, [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "ipc", "pid")], "namespaces")
    with steps.step("a shared PID namespace: a container sees the processes of the other"):
        processes = pods.exec_script("sharedpid", "main", "ps")
        if "sleep 4321" not in processes:
            raise Failure(f"the process of the other container is missing:\n{processes}")
        if re.search(r"^\s*1\s.*sleep 4321", processes, re.MULTILINE):
            raise Failure(f"a container is pid 1 of a shared namespace:\n{processes}")
    with steps.step("containers of a pod share network and IPC namespaces, but not mount and PID namespaces"):
        pair = [pods.exec_script("order", name, _namespaces("net", "ipc", "mnt", "pid")).split() for name in ("main", "second")]
        assert_equal([one == other for one, other in zip(*pair)], [True, True, False, False], "shared namespaces (net, ipc, mnt, pid)")
    with steps.step("environment, downward API fields, /etc/hosts, resolv.conf, hostname"):
        address = pods.status("names")["podIP"]
        text = pods.exec_script("names", "main", 'echo "$POD|$IP|$ODD|"; hostname; cat /etc/resolv.conf /etc/hosts')
        for expected in (f"names-node|{address}|a=b \"c\" names-node\nnext|", "\nnamed", "nameserver 192.0.2.53", "search example.org", "options ndots:3",
                       "alias.example", f"{address}\tnamed.below"):
            if expected not in text:
                raise Failure(f"{expected!r} is not in\n{text}")
    with steps.step("a host port responds on 127.0.0.1, the container port on the pod's address"):
        for address in ("127.0.0.1:18080", f"{pods.status('port')['podIP']}:80"):
            wait_until(f"{address} responds", lambda: run("curl", "-fsS", "-m", "3", f"http://{address}/").check().text == "page")


def security(steps, pods):
    with steps.step("runAsUser, runAsGroup, supplementalGroups, fsGroup"):
        assert_equal(pods.exec_script("security", "user", "id -u; id -g; id -G").split("\n")[:2], ["1234", "2345"], "ids")
        assert_equal(set(pods.exec_script("security", "user", "id -G").split()), {"2345", "3456", "4567"}, "groups")
    with steps.step("capabilities, no_new_privs, seccomp"):
        values = {name: pods.exec_script("security", name, "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status").split()[1::2] for name in ("dropped", "readonly", "privileged")}
        assert_equal(values["dropped"], [f"{1 << 10:016x}", "1", "2"], "CapEff, NoNewPrivs, Seccomp with RuntimeDefault")
        assert_equal(values["readonly"][1:], ["0", "0"], "NoNewPrivs, Seccomp with Unconfined")
        all_capabilities = re.search(r"CapEff:\s+(\w+)", Path("/proc/self/status").read_text())[1]
        assert_equal(values["privileged"], [all_capabilities, "0", "0"], "CapEff, NoNewPrivs, Seccomp of the privileged container")
    with steps.step("a read-only root; sysctls of the pod"):
        pods.exec("security", "readonly", "touch", "/file").check_fails(both="Read-only file system")
        assert_equal(pods.exec_script("security", "user", "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/net/core/somaxconn /proc/sys/kernel/shm_rmid_forced").split(),
              ["20000", "30000", "777", "1"], "sysctls")
    with steps.step("a user namespace: root is mapped to an unprivileged id, which owns the process; volumes are idmapped"):
        line = pods.exec_script("userns", "main", "cat /proc/self/uid_map").split()
        first = int(line[1])
        if line[0] != "0" or first < 65536 or int(line[2]) != 65536:
            raise Failure(f"uid_map: {line}")
        pid = pods.pid("userns", "main")
        assert_equal(os.stat(f"/proc/{pid}").st_uid, first, "owner of the process")
        pods.exec_script("userns", "main", "echo inside > /scratch/file; chown 5 /scratch/file; stat -c %u /scratch/file /bin/busybox")
        assert_equal(pods.exec_script("userns", "main", "stat -c %u /scratch/file /bin/busybox /host/file").split(), ["5", "0", "0"], "owners in the container")
        on_disk = [os.stat(path).st_uid for path in (pods.node.work / "root/pods").glob("*/volumes/kubernetes.io~empty-dir/scratch/file")]
        assert_equal(on_disk, [5], "owner on disk of the file in the idmapped volume")
    with steps.step("two user namespaces of two pods do not overlap"):
        pods.start(pod("userns2", shell("main"), hostUsers=False))
        starts = [int(pods.exec_script(name, "main", "cat /proc/self/uid_map").split()[1]) for name in ("userns", "userns2")]
        if abs(starts[0] - starts[1]) < 65536:
            raise Failure(f"the user namespaces overlap: they start at {starts}")


def volumes(steps, pods, shared):
    with steps.step("emptyDir on disk and in memory, subPath, subPathExpr"):
        pods.exec_script("volumes", "main", "echo x > /disk/file; echo y > /part/file; echo z > /named/file")
        assert_equal(pods.exec_script("volumes", "main", "cat /disk/a/part/file /disk/of-default/file").split(), ["y", "z"], "files in the subpaths")
        mount = pods.exec_script("volumes", "main", "grep ' /memory ' /proc/mounts")
        if " tmpfs " not in mount:
            raise Failure(f"/memory is not a tmpfs: {mount}")
    with steps.step("hostPath: directory, file, read-only"):
        (shared / "below").mkdir(exist_ok=True)
        assert_equal(pods.exec_script("volumes", "main", "cat /etc/from-host /host/file").split("\n"), ["of the host"] * 2, "files of the host")
        pods.exec("volumes", "main", "touch", "/host-ro/new").check_fails(both="Read-only file system")
        pods.exec("volumes", "main", "touch", "/host/new").check()
        assert_equal((shared / "new").exists(), True, "the file on the host")
    with steps.step("mount propagation: later mounts of the host are visible with HostToContainer only"):
        run("mount", "-t", "tmpfs", "tmpfs", shared / "below").check()
        try:
            (shared / "below/late").write_text("")
            pods.exec("volumes", "main", "test", "-e", "/host-slave/below/late").check()
            pods.exec("volumes", "main", "test", "-e", "/host/below/late").check(1)
        finally:
            run("umount", shared / "below").check()
    with steps.step("an image as a volume, complete and with subPath, read-only"):
        pods.exec("imagevolume", "main", "/image/bin/busybox", "true").check()
        pods.exec("imagevolume", "main", "grep", "root", "/etc-of-it/passwd").check(out="root")
        pods.exec("imagevolume", "main", "touch", "/image/new").check_fails(both="Read-only file system")


def limits(steps, pods):
    with steps.step("limits and requests are set in the container's cgroups"):
        pid = pods.pid("limits", "main")
        assert_equal(limit_of(pid, "memory"), 64 * MIB, "memory")
        assert_equal(limit_of(pid, "cpu"), (50000, 100000), "CPU quota")
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        if not re.search(r"kubepods/burstable/pod", groups):
            raise Failure(f"the container is not in a burstable cgroup: {groups}")
        shares = pods.exec_script("limits", "main", "cat /sys/fs/cgroup/cpu/cpu.shares 2>/dev/null || cat /sys/fs/cgroup/cpu.weight")
        assert_equal(shares in ("256", "10", "17", "18", "19", "20", "35"), True, f"CPU shares of 250m ({shares})")
    with steps.step("the status reports the limits"):
        assert_equal(pods.container("limits", "main").get("resources", {}).get("limits"), {"cpu": "500m", "memory": "64Mi"}, "resources in the status")


def hooks(steps, pods, shared):
    with steps.step("postStart has run; preStop runs when the pod is removed"):
        wait_until("the postStart hook has written", lambda: (shared / "record/hooks").read_text() == "postStart\n")
        pods.node.remove_manifests("hooks")
        wait_until("the preStop hook has written", lambda: (shared / "record/hooks").read_text() == "postStart\npreStop\n")
