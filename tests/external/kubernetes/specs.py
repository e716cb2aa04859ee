"""Specs of e2e.test: how they are run, and their results compared with the expected ones of e2e.json."""

import json
import re
from pathlib import Path

from session.program import Failure, run

EXPECTED = Path(__file__).resolve().parents[1] / "e2e.json"
CONFORMANCE = r"\[NodeConformance\]|\[Conformance\]"
LIMIT = 5400
# Name, specs, specs that are left out, processes. Specs that are serial must not run at the same time as others.
SUITES = {
    "node": (r"\[sig-node\].*(" + CONFORMANCE + ")", r"\[Serial\]|\[Disruptive\]|\[Flaky\]", 6),
    # Ginkgo skips a spec that both expressions match. (Expressions of Go lack look-ahead.)
    "others": (CONFORMANCE, r"\[sig-node\]|\[Serial\]|\[Disruptive\]|\[Flaky\]", 6),
    "serial": (r"\[Serial\].*(" + CONFORMANCE + ")|(" + CONFORMANCE + r").*\[Serial\]", r"\[Flaky\]", 1),
}


class Results:
    """The results of one run, from the JSON report of ginkgo."""

    def __init__(self, file):
        suites = json.loads(Path(file).read_text())
        specs = [spec for suite in suites for spec in suite["SpecReports"] or []]
        # A report contains every spec of the suite; the ones that were not selected have no start time.
        self.specs = [spec for spec in specs if spec["LeafNodeType"] == "It" and (spec["State"] != "skipped" or spec.get("Failure", {}).get("Message"))]
        self.broken = [spec for spec in specs if spec["LeafNodeType"] != "It" and spec["State"] not in ("passed", "skipped")]

    def in_state(self, *states):
        return [spec for spec in self.specs if spec["State"] in states]

    @property
    def failed(self):
        return [spec for spec in self.specs if spec["State"] not in ("passed", "skipped", "pending")] + self.broken

    def unexpected(self, engine):
        """Returns a line for each failed or skipped spec that e2e.json does not list for this engine."""
        expected, lines = json.loads(EXPECTED.read_text()), []
        for kind, specs in (("failed", self.failed), ("skipped", self.in_state("skipped", "pending"))):
            rows = [row for row in expected[kind] if engine in row.get("engines", [engine])]
            for spec in specs:
                if not any(re.search(row["specs"], name_of(spec)) for row in rows):
                    message = spec.get("Failure", {}).get("Message", "").splitlines()
                    lines.append(f"{kind}: {name_of(spec)}: {message[0] if message else spec['State']}")
        return lines

    def summary(self):
        """Returns names of specs by their state, to compare two engines."""
        return {state: sorted(name_of(spec) for spec in specs) for state, specs in
                (("passed", self.in_state("passed")), ("failed", self.failed), ("skipped", self.in_state("skipped", "pending")))}


def name_of(spec):
    """Returns the full name of a spec."""
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]).strip() or spec["LeafNodeType"]


def end_of(log):
    """Returns the last lines of a log."""
    return log.read_text(errors="replace")[-4000:]


def run_suite(steps, cluster, name, focus, skip, processes):
    """Runs specs as one step, which fails if a spec fails or is skipped unexpectedly. Writes NAME.json with the results."""
    output = cluster.logs / f"e2e-{name}"
    output.mkdir(exist_ok=True)
    # Ginkgo accepts only programs with this name.
    program = output / "e2e.test"
    program.unlink(missing_ok=True)
    program.symlink_to(cluster.programs["e2e.test"])
    with steps.step(f"e2e.test: {name}"):
        # A file, which shows the progress of a run that takes an hour.
        result = run(
            "sh", "-c", 'exec "$@" > output.log 2>&1', "sh", cluster.programs["ginkgo"], "--procs", processes, "--no-color", "--timeout", f"{LIMIT}s",
            "--focus", focus, "--skip", skip, "--json-report", "report.json", "--output-dir", output, program, "--", "--kubeconfig", cluster.credentials.path("admin.conf"), "--provider", "skeleton",
            "--num-nodes", "1", "--dns-domain", "cluster.local", "--minStartupPods", "0", "--disable-log-dump", "--e2e-output-dir", output,
            "--kubectl-path", cluster.programs["kubectl"], timeout=LIMIT + 60, cwd=output)
        if not (output / "report.json").exists():
            raise Failure(f"ginkgo wrote no report\n{result}{end_of(output / 'output.log')}")
        results = Results(output / "report.json")
        (cluster.logs / f"{name}.json").write_text(json.dumps(results.summary(), indent=1))
        counts = {state: len(found) for state, found in results.summary().items()}
        print(f"# {name}: {counts}", flush=True)
        if not counts["passed"]:
            raise Failure(f"no spec passed\n{result}{end_of(output / 'output.log')}")
        if lines := results.unexpected(cluster.engine.name):
            raise Failure("\n".join(lines))
