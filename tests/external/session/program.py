"""Programs with a time limit, and what they answered."""

import json
import os
import re
import signal
import subprocess
import time


class Failed(Exception):
    """Something was not as it must be. Its text says what was seen."""


class Result:
    """What a program answered."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    def __str__(self):
        shown = " ".join(self.argv)
        return f"$ {shown[:1500]}\nexit code {self.code}\n{self.out[-4000:]}{self.err[-4000:]}"

    def must(self, code=0, out=None, err=None, both=None):
        """Fails unless the exit code is this one and the patterns (regular expressions) are found in what was written."""
        if self.code != code:
            raise Failed(f"exit code {code} was expected\n{self}")
        for name, pattern, text in (("output", out, self.out), ("errors", err, self.err), ("either", both, self.out + self.err)):
            if pattern is not None and not re.search(pattern, text, re.MULTILINE):
                raise Failed(f"{pattern!r} was expected in the {name}\n{self}")
        return self

    def fails(self, both=None):
        """Fails unless the program did."""
        if self.code == 0:
            raise Failed(f"an error was expected\n{self}")
        return self.must(self.code, both=both)

    @property
    def word(self):
        """The output without white space around it."""
        return self.out.strip()

    @property
    def json(self):
        """The output, parsed."""
        try:
            return json.loads(self.out)
        except ValueError as error:
            raise Failed(f"JSON was expected: {error}\n{self}") from error


def run(*argv, timeout=60, stdin=None, env=None, user=None, cwd=None):
    """Runs a program to its end. One that takes too long is killed, with its whole process group, and fails the step."""
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
            out, err = "", "(its output is still open)"
        raise Failed(f"no end within {timeout} s\n{Result(argv, 'none', out, err)}") from None
    return Result(argv, process.returncode, out, err)


def spawn(*argv, log, env=None):
    """Starts a program that stays (a daemon), its output in a file."""
    with open(log, "ab") as sink:
        return subprocess.Popen(
            [str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
            env={**os.environ, **(env or {})}, start_new_session=True,
        )


def until(what, condition, seconds=20):
    """Asks until the answer is true, and gives it; fails after this long. An error while asking counts as no."""
    last, end = None, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = condition()
            if answer:
                return answer
            last = answer
        except (Failed, OSError, KeyError, IndexError) as error:
            last = error
        time.sleep(0.05)
    raise Failed(f"{what}: not within {seconds} s; last seen: {last}")


def equal(seen, wanted, what):
    """Fails unless both are equal."""
    if seen != wanted:
        raise Failed(f"{what}: {wanted!r} was expected, seen: {seen!r}")
