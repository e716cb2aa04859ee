"""CRI engines with separate directories, networks and sockets: Pinion, and containerd to compare with."""

import os
import shutil
import signal
from pathlib import Path

from .program import Failure, run, spawn, wait_until
from .runtime import REPOSITORY, TARGET
from .sources import install_packages

# Registries of the images that the test suites use.
UPSTREAM = ("registry.k8s.io", "k8s.gcr.io", "gcr.io")


def create_engine(name, work, **options):
    """Returns the engine of a name, without starting it."""
    kinds = {"pinion": Pinion, "containerd": Containerd}
    if name not in kinds:
        raise SystemExit(f"external: unknown engine {name}; known engines: {', '.join(kinds)}")
    return kinds[name](work, **options)


class Engine:
    """A daemon that serves the CRI. `socket` is the path of its socket, `log` its log file; `extra_config` ends its configuration."""

    name = ""
    # Addresses of pods.
    pod_network = ""
    # Patterns of objects that may still exist after the engine was stopped (see isolation.py).
    allowed_leftovers = ()

    def __init__(self, work, registry, extra_config=""):
        self.work = Path(work) / self.name
        self.work.mkdir()
        self.work.chmod(0o711)
        self.log = Path(os.environ.get("LOGS", self.work)) / f"{self.name}.log"
        self.process = None
        self.configure(registry)
        with self.config.open("a") as config:
            config.write(extra_config)

    @property
    def address(self):
        return f"unix://{self.socket}"

    def start(self):
        """Starts the engine and waits until it responds."""
        self.process = spawn(*self.command(), log=self.log, env=self.environment())
        wait_until(f"{self.name} responds", lambda: self._alive() and self.crictl("version", timeout=10).code == 0, 60)
        return self

    def _alive(self):
        if self.process.poll() is not None:
            raise SystemExit(f"external: start {self.name}: it exited; end of its log:\n" + "\n".join(self.log.read_text().splitlines()[-15:]))
        return True

    def environment(self):
        return {}

    def crictl_argv(self, *argv):
        """Returns the argument vector of crictl with the socket of the engine."""
        return [os.environ.get("CRICTL", str(TARGET / "tools/crictl")), "-t", "50s", "-r", self.address, "-i", self.address, *argv]

    def crictl(self, *argv, timeout=60, **options):
        """Runs crictl with the socket of the engine."""
        return run(*self.crictl_argv(*argv), timeout=timeout, **options)

    def kill(self):
        """Kills the engine with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the engine with SIGTERM."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def clean_up(self):
        """Stops the engine and removes the state that it keeps between two starts."""
        self.stop()


class Pinion(Engine):
    """`pinion` and `pinmon` in the directory PINION_BIN, or the ones built in this repository."""

    name = "pinion"
    pod_network = "10.85.0.0/16"
    # The directory for pins of network namespaces.
    allowed_leftovers = ("/run/netns",)
    # Objects that exist while the daemon is running without pods: the bridge, and the pool of network namespaces.
    allowed_without_pods = ("/run/pinion/.*", "pinion0", "table ip pinion", *allowed_leftovers)
    programs = Path(os.environ.get("PINION_BIN", TARGET / "dist"))

    @classmethod
    def prepare(cls):
        if not (cls.programs / "pinion").exists():
            raise SystemExit(f"external: {cls.programs}/pinion does not exist; build it with `make build`, or set PINION_BIN to its directory")

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
        """Runs the `pinion` command line."""
        return run(self.programs / "pinion", *argv, **options)

    def monitors(self):
        """Returns the pids of the monitor: one, or several while it is being replaced."""
        return [int(pid) for pid in run("pgrep", "-x", "pinmon").out.split()]

    def clean_up(self):
        super().clean_up()
        self("reset", "--yes", "--config", self.config).check()


class Containerd(Engine):
    """containerd of Debian, or of the directory CONTAINERD (containerd, containerd-shim-runc-v2, runc)."""

    name = "containerd"
    pod_network = "10.188.0.0/16"
    allowed_leftovers = ("/run/(containerd|runc|xtables|lock|netns|cni).*", "engine0", "table ip6? nat", "/sys/fs/cgroup/.*")

    @classmethod
    def prepare(cls):
        install_packages("containerd", "runc", "containernetworking-plugins", "iptables")

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
            ' "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "%s", "ranges": [[{"subnet": "%s"}]],'
            ' "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}' % (self.work / "addresses", self.pod_network)
        )
        is_v2 = run(self._program("containerd"), "--version").check().out.split()[2].lstrip("v").split(".")[0] != "1"
        self.config = self.work / "config.toml"
        self.config.write_text(self._config_v3() if is_v2 else self._config_v2())

    def _common_config(self, version):
        return f"""version = {version}
root = '{self.work}/root'
state = '/run/containerd/state'
imports = []
[grpc]
  address = '{self.socket}'
[plugins.'io.containerd.internal.v1.opt']
  path = '{self.work}/opt'
"""

    def _config_v3(self):
        return self._common_config(3) + f"""
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

    def _config_v2(self):
        return self._common_config(2) + f"""
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
    """Builds crictl unless it exists."""
    program = os.environ.get("CRICTL", str(TARGET / "tools/crictl"))
    if run(REPOSITORY / "scripts/crictl", program, timeout=600).code:
        raise Failure("build crictl: scripts/crictl failed")
