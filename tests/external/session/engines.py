"""CRI engines with directories, networks and sockets of their own, in a room: Pinion, and others to compare with."""

import os
import shutil
import signal
from pathlib import Path

from .program import Failed, run, spawn, until
from .runtime import REPOSITORY, TARGET
from .sources import packages

# Registries whose names the test suites use.
UPSTREAM = ("registry.k8s.io", "k8s.gcr.io", "gcr.io")


def engine(name, work, **options):
    """One by its name, not started yet."""
    kinds = {"pinion": Pinion, "containerd": Containerd}
    if name not in kinds:
        raise SystemExit(f"external: no engine named {name} (have: {', '.join(kinds)})")
    return kinds[name](work, **options)


class Engine:
    """A daemon that serves the CRI. `socket` is its address, `log` what it writes."""

    name = ""
    # What it keeps when it has ended (patterns of what the room finds).
    stays = ()

    def __init__(self, work, registry):
        self.work = Path(work) / self.name
        self.work.mkdir()
        self.work.chmod(0o711)
        self.log = Path(os.environ.get("LOGS", self.work)) / f"{self.name}.log"
        self.process = None
        self.configure(registry)

    @property
    def address(self):
        return f"unix://{self.socket}"

    def start(self):
        """Starts it and waits until it answers."""
        self.process = spawn(*self.command(), log=self.log, env=self.environment())
        until(f"{self.name} answers", lambda: self._alive() and self.crictl("version", timeout=10).code == 0, 60)
        return self

    def _alive(self):
        if self.process.poll() is not None:
            raise SystemExit(f"external: {self.name} did not start; its log ends:\n" + "\n".join(self.log.read_text().splitlines()[-15:]))
        return True

    def environment(self):
        return {}

    def crictl(self, *argv, timeout=60, **options):
        """crictl for this socket."""
        program = os.environ.get("CRICTL", str(TARGET / "tools/crictl"))
        return run(program, "-t", "50s", "-r", self.address, "-i", self.address, *argv, timeout=timeout, **options)

    def kill(self):
        """Without a warning."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Politely."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def end(self):
        """Stops it and takes away what it keeps between two starts."""
        self.stop()


class Pinion(Engine):
    """`pinion` and `pinmon` of PINION_BIN, else the built ones."""

    name = "pinion"
    # The machine's directory of network namespaces.
    stays = ("/run/netns",)
    # What it has while it runs: the network that came with the first pod, namespaces made ahead of the next one.
    at_rest = ("/run/pinion/.*", "pinion0", "table ip pinion", *stays)
    programs = Path(os.environ.get("PINION_BIN", TARGET / "dist"))

    @classmethod
    def prepare(cls):
        if not (cls.programs / "pinion").exists():
            raise SystemExit(f"external: there is no {cls.programs}/pinion; build it (make build) or name its directory with PINION_BIN=")

    def configure(self, registry):
        self.socket = "/run/pinion/pinion.sock"
        (self.work / "cni").mkdir()
        mirrors = "\n".join(f'"{host}" = ["http://{registry}"]' for host in UPSTREAM)
        self.config = self.work / "config.toml"
        self.config.write_text(
            f'data_dir = "{self.work}/data"\n'
            f'[network]\ncni_conf_dir = "{self.work}/cni"\n[registries.mirrors]\n{mirrors}\n'
        )

    def command(self):
        return [self.programs / "pinion", "serve", "--config", self.config]

    def __call__(self, *argv, **options):
        """`pinion` as people call it."""
        return run(self.programs / "pinion", *argv, **options)

    def monitors(self):
        """Pids of the monitor: one, but while it is being replaced."""
        return [int(pid) for pid in run("pgrep", "-x", "pinmon").out.split()]

    def end(self):
        super().end()
        self("reset", "--yes", "--config", self.config).must()


class Containerd(Engine):
    """containerd: Debian's, or of the directory CONTAINERD (containerd, containerd-shim-runc-v2, runc)."""

    name = "containerd"
    stays = ("/run/(containerd|runc|xtables|lock|netns|cni).*", "engine0", "table ip6? nat", "/sys/fs/cgroup/.*")

    @classmethod
    def prepare(cls):
        packages("containerd", "runc", "containernetworking-plugins", "iptables")

    def environment(self):
        return {"PATH": os.pathsep.join(filter(None, [os.environ.get("CONTAINERD"), os.environ["PATH"]]))}

    def _program(self, name):
        return shutil.which(name, path=self.environment()["PATH"])

    def configure(self, registry):
        self.socket = "/run/containerd/containerd.sock"
        for host in UPSTREAM:
            (self.work / "certs.d" / host).mkdir(parents=True)
            (self.work / "certs.d" / host / "hosts.toml").write_text(f'[host."http://{registry}"]\n  capabilities = ["pull", "resolve"]\n')
        (self.work / "cni").mkdir()
        (self.work / "cni/10-engine.conflist").write_text(
            '{"cniVersion": "1.0.0", "name": "engine", "plugins": [{"type": "bridge", "bridge": "engine0", "isGateway": true, "ipMasq": true,'
            ' "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "%s", "ranges": [[{"subnet": "10.188.0.0/16"}]],'
            ' "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}' % (self.work / "addresses")
        )
        new = run(self._program("containerd"), "--version").must().out.split()[2].lstrip("v").split(".")[0] != "1"
        self.config = self.work / "config.toml"
        self.config.write_text(self._new_config() if new else self._old_config())

    def _head(self, version):
        return f"""version = {version}
root = '{self.work}/root'
state = '/run/containerd/state'
imports = []
[grpc]
  address = '{self.socket}'
[plugins.'io.containerd.internal.v1.opt']
  path = '{self.work}/opt'
"""

    def _new_config(self):
        return self._head(3) + f"""
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{self.work}/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{self._program("runc")}'
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/usr/lib/cni']
  conf_dir = '{self.work}/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""

    def _old_config(self):
        return self._head(2) + f"""
[plugins.'io.containerd.grpc.v1.cri']
  restrict_oom_score_adj = true
  sandbox_image = 'registry.k8s.io/pause:3.10'
[plugins.'io.containerd.grpc.v1.cri'.registry]
  config_path = '{self.work}/certs.d'
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '/usr/lib/cni'
  conf_dir = '{self.work}/cni'
"""

    def command(self):
        return [self._program("containerd"), "-c", self.config]


def crictl():
    """Builds crictl where it is not there yet."""
    program = os.environ.get("CRICTL", str(TARGET / "tools/crictl"))
    if run(REPOSITORY / "scripts/crictl", program, timeout=600).code:
        raise Failed("crictl could not be built")
