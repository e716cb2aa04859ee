"""Programs on a real terminal, typed at and read from."""

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

from .program import Failed


class Terminal:
    """A program whose standard streams are a terminal of `rows` × `columns`.

    with Terminal("podman", "run", "-it", ...) as terminal:
        terminal.wait_for("#")
        terminal.type("exit 5\\n")
        terminal.ends_with(5)
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
        """Gives the terminal another size, as a window does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        """Types."""
        os.write(self.master, text.encode())

    def wait_for(self, pattern, seconds=20):
        """Reads until the pattern is found in what came since the last find; gives the match."""
        end = time.monotonic() + seconds
        while True:
            if found := re.search(pattern, self.text, re.MULTILINE):
                self.text = self.text[found.end():]
                return found
            if not self._read(end):
                raise Failed(f"{pattern!r} was expected on the terminal of {' '.join(self.argv)}; seen: {self.text[-2000:]!r}")

    def ends_with(self, code, seconds=20):
        """Reads to the end; fails unless the program ends with this exit code."""
        end = time.monotonic() + seconds
        while self._read(end):
            pass
        try:
            seen = self.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"no end of {' '.join(self.argv)} within {seconds} s; seen: {self.text[-2000:]!r}") from None
        if seen != code:
            raise Failed(f"exit code {code} was expected of {' '.join(self.argv)}, not {seen}; seen: {self.text[-2000:]!r}")

    def _read(self, end):
        ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # EIO: nobody holds the other end any more
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
