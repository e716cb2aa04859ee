"""Reads the report of critest (JSON of ginkgo) and compares it with the expected results."""

import datetime
import json
import re
from pathlib import Path

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


class Report:
    """The specs of a run of critest."""

    def __init__(self, file):
        suites = json.loads(Path(file).read_text())
        self.seed = suites[0]["SuiteConfig"]["RandomSeed"]
        self.seconds = sum(suite["RunTime"] for suite in suites) / 1e9
        self.specs = [spec for suite in suites for spec in suite["SpecReports"] or [] if spec["LeafNodeType"] == "It"]
        # Failures outside of the specs, such as in the setup of the suite.
        self.suite_failures = [spec for suite in suites for spec in suite["SpecReports"] or [] if spec["LeafNodeType"] != "It" and spec["State"] not in ("passed", "skipped")]

    def in_state(self, *states):
        return [spec for spec in self.specs if spec["State"] in states]

    @property
    def failed(self):
        return [spec for spec in self.specs if spec["State"] not in ("passed", "skipped", "pending")] + self.suite_failures

    def unexpected(self):
        """Lists the differences from expected.json, one line each."""
        differences = []
        for spec in self.in_state("skipped", "pending"):
            known = next((index for index, row in enumerate(EXPECTED["skipped"]) if re.search(row["specs"], name_of(spec))), None)
            if known is None:
                differences.append(f"skipped without a known reason: {name_of(spec)}{': ' if _message(spec) else ''}{_message(spec)}")
        passed, skipped = len(self.in_state("passed")), len(self.in_state("skipped", "pending"))
        # More specs may pass and fewer be skipped: on a machine with AppArmor its specs run too.
        if not self.failed and passed + skipped != EXPECTED["passed"] + sum(row["count"] for row in EXPECTED["skipped"]):
            differences.append(f"{passed} passed and {skipped} were skipped; expected {EXPECTED['passed']} and {sum(row['count'] for row in EXPECTED['skipped'])}")
        if passed < EXPECTED["passed"]:
            differences.append(f"{passed} specs passed; expected at least {EXPECTED['passed']}")
        return differences

    def failures(self, log):
        """Yields lines about every failed spec: its message, its output and the log of the daemon in the meantime."""
        for spec in self.failed:
            yield f"{spec['State'].upper()}: {name_of(spec)} ({spec['RunTime'] / 1e9:.1f} s)"
            yield from _indented("\n".join(_message(spec).splitlines()[:12]))
            location = (spec.get("Failure") or {}).get("Location") or {}
            yield f"    at {location.get('FileName', '?')}:{location.get('LineNumber', '?')}"
            for title, lines in (("critest", _output(spec)), ("the daemon", _daemon_log(log, spec))):
                yield f"    -- {title}{'' if lines else ' logged nothing'}:"
                yield from _indented("\n".join(line for line in lines[-40:] if line.strip()))

    def longest(self, count):
        return sorted(self.specs, key=lambda spec: -spec["RunTime"])[:count]


def name_of(spec):
    """Returns the full name of a spec."""
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]).strip() or spec["LeafNodeType"]


def _message(spec):
    return (spec.get("Failure") or {}).get("Message", "")


def _output(spec):
    return (spec.get("CapturedGinkgoWriterOutput") or "").splitlines()


def _daemon_log(log, spec):
    """Returns the lines of the daemon's log between start and end of a spec, by their time stamps."""
    begin, end = (datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", spec[key])) for key in ("StartTime", "EndTime"))
    lines = []
    for line in Path(log).read_text(errors="replace").splitlines() if log else []:
        stamp = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", line)
        if stamp:
            time = datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", stamp[0]))
            if begin - datetime.timedelta(milliseconds=50) <= time <= end + datetime.timedelta(milliseconds=50):
                lines.append(line)
    return lines


def _indented(text):
    return ("    " + line for line in text.splitlines())
