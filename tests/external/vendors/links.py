"""Network namespaces of a session besides those of pods, and a link to another node."""

from session.program import run, spawn, wait_until


class Namespace:
    """A network namespace that exists as long as its process."""

    def __init__(self, log):
        self.process = spawn("unshare", "--net", "sleep", "1000000", log=log)
        wait_until("the namespace exists", lambda: open(f"/proc/{self.process.pid}/comm", encoding="ascii").read().strip() == "sleep")

    @property
    def path(self):
        return f"/proc/{self.process.pid}/ns/net"

    def argv(self, *argv):
        """Returns the argument vector that runs a program in the namespace."""
        return ["nsenter", f"--net={self.path}", *argv]

    def run(self, *argv):
        return run(*self.argv(*argv))

    def end(self):
        self.process.kill()
        self.process.wait()


def connect(far):
    """Connects the session (up0, 192.0.2.1) with another node (up1, 192.0.2.2)."""
    run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1", "netns", far.process.pid).check()
    run("ip", "addr", "add", "192.0.2.1/24", "dev", "up0").check()
    # A link-local address appears seconds later, and would count as left over by what a plugin did in the meantime.
    run("ip", "link", "set", "up0", "addrgenmode", "none", "up").check()
    for argv in (("ip", "link", "set", "lo", "up"), ("ip", "addr", "add", "192.0.2.2/24", "dev", "up1"), ("ip", "link", "set", "up1", "up")):
        far.run(*argv).check()
    run("ip", "route", "add", "default", "via", "192.0.2.2").check()
