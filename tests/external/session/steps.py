"""A step is one line of output: `ok 3 - name (0.4 s)`, or `not ok` with what was seen below it."""

import contextlib
import time
import traceback

from .program import Failed


class Steps:
    """Counts the steps of one session."""

    def __init__(self):
        self.count = 0
        self.failed = []

    @contextlib.contextmanager
    def step(self, name):
        """The step passes if the block does not raise. A failed step does not end the session: the next ones are tried."""
        self.count += 1
        begin = time.monotonic()
        try:
            yield
        except Failed as failure:
            self._not_ok(name, str(failure))
        except Exception:  # noqa: BLE001: a mistake in the test, or what follows from a step that failed before
            self._not_ok(name, traceback.format_exc(limit=-2))
        else:
            print(f"ok {self.count} - {name} ({time.monotonic() - begin:.1f} s)", flush=True)

    def expect_failure(self, name, reason):
        """Says in the output what this machine cannot do, beside the step that showed it."""
        print(f"# {name}: {reason}", flush=True)

    def _not_ok(self, name, text):
        self.failed.append(name)
        print(f"not ok {self.count} - {name}", flush=True)
        for line in text.rstrip().splitlines()[-60:]:
            print(f"#   {line}", flush=True)

    def summary(self):
        """Prints the last line; gives the exit code."""
        if self.failed:
            print(f"# {len(self.failed)} of {self.count} steps failed: " + "; ".join(self.failed), flush=True)
            return 1
        if self.count:
            print(f"# all {self.count} steps passed", flush=True)
        return 0
