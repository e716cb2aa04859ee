"""`pinion-bench daemonsets` with this cluster."""

import json

from session.engines import Pinion
from session.program import Failure, assert_equal, run, wait_until

from .objects import BUSYBOX

SETS, ROUNDS = 10, 2


def daemon_sets(steps, cluster):
    """Measures DaemonSets on the node."""
    with steps.step("pinion-bench daemonsets measures the node"):
        summary = cluster.work / "daemonsets.json"
        command = [Pinion.programs / "pinion-bench", "daemonsets", "--kubeconfig", cluster.credentials.path("admin.conf"), "--kubectl", cluster.programs["kubectl"],
                   f"--node={cluster.engine.name}=node", "--image", BUSYBOX, "-n", SETS, "--at-once", f"1,{SETS}", "--rounds", ROUNDS, "--json", summary]
        result = run(*map(str, command), timeout=400).check()
        print(result.out, flush=True)
        rows = json.loads(summary.read_text())[0]["rows"]
        cells = {(row["metric"]["name"], row["parameter"]): row["contestants"][0] for row in rows}
        for at_once in (1, SETS):
            for metric, count in (("all pods ready", ROUNDS), ("all pods removed", ROUNDS), ("start of a pod", SETS * ROUNDS), ("removal of a pod", SETS * ROUNDS)):
                cell = cells[metric, at_once]
                assert_equal((cell["count"], cell["failures"]), (count, 0), f"{metric}, {at_once} at once: values and failures")
        if not cells["all pods ready", SETS]["median"]["value"] < cells["all pods ready", 1]["median"]["value"]:
            raise Failure("pods at once take longer than one after the other")
    with steps.step("it leaves nothing in the cluster"):
        wait_until("its namespace is gone", lambda: "pinion-bench" not in cluster.kubectl("get", "namespaces", "-o", "name").check().text, 60)
