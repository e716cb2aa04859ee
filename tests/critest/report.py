"""What critest told (ginkgo's JSON), against what is expected."""

import datetime
import json
import re
from pathlib import Path

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


class Report:
    """The specs of one run."""

    def __init__(self, file):
        suites = json.loads(Path(file).read_text())
        self.seed = suites[0]["SuiteConfig"]["RandomSeed"]
        self.seconds = sum(suite["RunTime"] for suite in suites) / 1e9
        self.specs = [spec for suite in suites for spec in suite["SpecReports"] or [] if spec["LeafNodeType"] == "It"]
        # What fails around the specs: set-up of the whole suite.
        self.around = [spec for suite in suites for spec in suite["SpecReports"] or [] if spec["LeafNodeType"] != "It" and spec["State"] not in ("passed", "skipped")]

    def of(self, *states):
        return [spec for spec in self.specs if spec["State"] in states]

    @property
    def failed(self):
        return [spec for spec in self.specs if spec["State"] not in ("passed", "skipped", "pending")] + self.around

    def against_expected(self):
        """What is not as expected, one line each."""
        wrong, used = [], set()
        for spec in self.of("skipped", "pending"):
            known = next((index for index, row in enumerate(EXPECTED["skipped"]) if re.search(row["specs"], name_of(spec))), None)
            if known is None:
                wrong.append(f"skipped without a known reason: {name_of(spec)}{': ' if _message(spec) else ''}{_message(spec)}")
            used.add(known)
        passed, skipped = len(self.of("passed")), len(self.of("skipped", "pending"))
        # Those that a machine with AppArmor can run come on top.
        if not self.failed and passed + skipped != EXPECTED["passed"] + sum(row["count"] for row in EXPECTED["skipped"]):
            wrong.append(f"{passed} passed and {skipped} were skipped; {EXPECTED['passed']} and {sum(row['count'] for row in EXPECTED['skipped'])} are known")
        if passed < EXPECTED["passed"]:
            wrong.append(f"{passed} specs passed, {EXPECTED['passed']} must")
        return wrong

    def failures(self, log):
        """The text of every failed spec, with what the daemon logged meanwhile."""
        for spec in self.failed:
            yield f"{spec['State'].upper()}: {name_of(spec)} ({spec['RunTime'] / 1e9:.1f} s)"
            yield from _indented("\n".join(_message(spec).splitlines()[:12]))
            place = (spec.get("Failure") or {}).get("Location") or {}
            yield f"    at {place.get('FileName', '?')}:{place.get('LineNumber', '?')}"
            for title, lines in (("critest", _told(spec)), ("the daemon", _logged(log, spec))):
                yield f"    -- {title}{'' if lines else ' said nothing'}:"
                yield from _indented("\n".join(line for line in lines[-40:] if line.strip()))

    def longest(self, count):
        return sorted(self.specs, key=lambda spec: -spec["RunTime"])[:count]


def name_of(spec):
    """Its whole name."""
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]).strip() or spec["LeafNodeType"]


def _message(spec):
    return (spec.get("Failure") or {}).get("Message", "")


def _told(spec):
    return (spec.get("CapturedGinkgoWriterOutput") or "").splitlines()


def _logged(log, spec):
    """Lines of the daemon's log from the begin to the end of the spec, by their time stamps."""
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
