"""Programs on a pseudoterminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from .program import Failure


class Terminal:
    """A program whose standard streams are a terminal of `rows` × `columns`.

    with Terminal("podman", "run", "-it", ...) as terminal:
        terminal.wait_for("#")
        terminal.type("exit 5\\n")
        terminal.expect_exit(5)
    """

    def __init__(self, *argv, rows=24, columns=80, env=None, user=None):
        self.argv = [str(part) for part in argv]
        self.text = ""
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            self.argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, **(env or {})},
            user=user, group=user, extra_groups=[] if user else None,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)

    def resize(self, rows, columns):
        """Changes the size of the terminal."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        """Writes text to the terminal, as a user types it."""
        os.write(self.master, text.encode())

    def wait_for(self, pattern, seconds=20):
        """Reads until the pattern matches the output after the previous match; returns the match."""
        end = time.monotonic() + seconds
        while True:
            if match := re.search(pattern, self.text, re.MULTILINE):
                self.text = self.text[match.end():]
                return match
            if not self._read(end):
                raise Failure(f"expected {pattern!r} on the terminal of {' '.join(self.argv)}; output: {self.text[-2000:]!r}")

    def expect_exit(self, code, seconds=20):
        """Reads until the program exits; fails unless its exit code is `code`."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        try:
            exit_code = self.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"{' '.join(self.argv)}: still running after {seconds} s; output: {self.text[-2000:]!r}") from None
        if exit_code != code:
            raise Failure(f"{' '.join(self.argv)}: expected exit code {code}, got {exit_code}; output: {self.text[-2000:]!r}")

    def _read(self, end):
        ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
