"""Programs with a time limit, their results, and assertions."""

import json
import os
import re
import signal
import subprocess
import time


class Failure(Exception):
    """A check failed. The message contains the expected and the actual result."""


class Result:
    """Exit code and output of a program."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    def __str__(self):
        command = " ".join(self.argv)
        return f"$ {command[:1500]}\nexit code {self.code}\n{self.out[-4000:]}{self.err[-4000:]}"

    def check(self, code=0, out=None, err=None, both=None):
        """Fails unless the exit code is `code` and the patterns (regular expressions) match the output.

        `out` is searched in standard output, `err` in standard error, and `both` in the two together.
        """
        if self.code != code:
            raise Failure(f"expected exit code {code}\n{self}")
        for name, pattern, text in (("stdout", out, self.out), ("stderr", err, self.err), ("stdout or stderr", both, self.out + self.err)):
            if pattern is not None and not re.search(pattern, text, re.MULTILINE):
                raise Failure(f"expected {pattern!r} in {name}\n{self}")
        return self

    def check_fails(self, both=None):
        """Fails unless the exit code is not 0, and `both` matches the output."""
        if self.code == 0:
            raise Failure(f"expected an error\n{self}")
        return self.check(self.code, both=both)

    @property
    def text(self):
        """Standard output without leading and trailing white space."""
        return self.out.strip()

    @property
    def json(self):
        """Standard output, parsed as JSON."""
        try:
            return json.loads(self.out)
        except ValueError as error:
            raise Failure(f"expected JSON: {error}\n{self}") from error


def run(*argv, timeout=60, stdin=None, env=None, user=None, cwd=None):
    """Runs a program until it exits. After `timeout` seconds its process group is killed and the step fails."""
    argv = [str(part) for part in argv]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})}, start_new_session=True, text=True, errors="replace", user=user, group=user,
        extra_groups=[] if user else None, cwd=cwd,
    )
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            out, err = "", "(another process keeps its output open)"
        raise Failure(f"timed out after {timeout} s\n{Result(argv, 'none', out, err)}") from None
    return Result(argv, process.returncode, out, err)


def spawn(*argv, log, env=None):
    """Starts a program that keeps running, such as a daemon, with its output in a file."""
    with open(log, "ab") as sink:
        return subprocess.Popen(
            [str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
            env={**os.environ, **(env or {})}, start_new_session=True,
        )


def wait_until(description, condition, seconds=20):
    """Waits until `condition()` is true and returns its value; fails after `seconds`. Errors of it count as false."""
    last, end = None, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (Failure, OSError, KeyError, IndexError) as error:
            last = error
        time.sleep(0.05)
    raise Failure(f"{description}: timed out after {seconds} s; last result: {last}")


def assert_equal(actual, expected, description):
    """Fails unless both values are equal."""
    if actual != expected:
        raise Failure(f"{description}: expected {expected!r}, got {actual!r}")
