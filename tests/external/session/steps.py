"""Test steps. Each prints one line: `ok 3 - name (0.4 s)`, or `not ok 3 - name` followed by the reason."""

import contextlib
import time
import traceback

from .program import Failure


class Steps:
    """Counts the steps of one session."""

    def __init__(self):
        self.count = 0
        self.failed = []

    @contextlib.contextmanager
    def step(self, name):
        """Runs a block as a step, which passes if the block does not raise. A failed step does not end the session."""
        self.count += 1
        begin = time.monotonic()
        try:
            yield
        except Failure as failure:
            self._not_ok(name, str(failure))
        except (Exception, SystemExit):  # noqa: BLE001: a bug in the test, or a consequence of an earlier failed step
            self._not_ok(name, traceback.format_exc(limit=-2))
        else:
            print(f"ok {self.count} - {name} ({time.monotonic() - begin:.1f} s)", flush=True)

    def note(self, name, reason):
        """Prints a note about a limitation of this machine."""
        print(f"# {name}: {reason}", flush=True)

    def _not_ok(self, name, text):
        self.failed.append(name)
        print(f"not ok {self.count} - {name}", flush=True)
        for line in text.rstrip().splitlines()[-60:]:
            print(f"#   {line}", flush=True)

    def summary(self):
        """Prints the last line and returns the exit code."""
        if self.failed:
            print(f"# {len(self.failed)} of {self.count} steps failed: " + "; ".join(self.failed), flush=True)
            return 1
        if self.count:
            print(f"# all {self.count} steps passed", flush=True)
        return 0
