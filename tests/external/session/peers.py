"""Engines and runtimes that are measured side by side: Pinion with its handlers, containerd, CRI-O with and without pause containers."""

import json
import os

from . import crio, runtimes
from .engines import Containerd, Pinion, create_engine, crictl
from .images import PAUSE, Image, Layer, compile_c
from .program import Failure, run
from .runtime import REPOSITORY, TARGET
from .sources import Registry, build_image, install_packages
from .wrapper import missing_capabilities

OCI = ("runc", "crun", "youki")
IMAGE = "registry.k8s.io/bench:1"
REGISTRY_PORT = 5000


class MeasuredCrio(crio.Crio):
    """CRI-O whose network does the same as that of containerd."""

    def configure(self, registry):
        super().configure(registry)
        file = self.work / "cni/10-own.conflist"
        network = json.loads(file.read_text())
        network["plugins"][0] |= {"ipMasq": True, "hairpinMode": True}
        network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]
        file.write_text(json.dumps(network))


class CrioWithPause(MeasuredCrio):
    """CRI-O whose pods have a pause container, as those of its default handler with user namespaces or host PIDs have."""

    name = "crio-pause"
    pod_network = "10.78.0.0/16"

    def __init__(self, work, registry, runtimes_by_name):
        super().__init__(work, registry, runtimes_by_name, pauseless=False)


# What the engines keep in a session.
ALLOWED_LEFTOVERS = (*Pinion.allowed_leftovers, *Containerd.allowed_leftovers, *crio.Crio.allowed_leftovers, "crio-pause-own0",
                     "/run/(youki|crun|containerd|runsc)")


def build():
    """Builds or installs the runtimes and engines that Pinion is measured with. Returns the paths of the programs by name."""
    names = (*OCI, "runsc", "runsc_shim", "containerd")
    programs = {name: str(getattr(runtimes, name)()) for name in names}
    # Not Debian's containerd: it would replace that of Docker.
    install_packages("docker-registry", "busybox-static", "curl", "jq", "nftables", "util-linux", "iproute2")
    crio.build()
    crictl()
    return programs


def guest_image():
    """Makes the image of virtual machines, once for the programs under test, and returns its directory."""
    directory = TARGET / "external/bench-guest"
    run(REPOSITORY / "tests/external/guest-image", directory, timeout=900, env={"PINION_BIN": str(Pinion.programs)}).check()
    return str(directory)


class Peers:
    """The engines of a session. `with Peers(work, programs) as peers` starts them, and removes what they keep."""

    def __init__(self, work, programs, image=None):
        self.work, self.programs, self.image = work, programs, image
        # Those that are running, by name; and what readers of a report must know about contestants.
        self.engines = {}
        self.remarks = {}
        self.registry = None

    def __enter__(self):
        # Debian's crun and youki refuse a v2 tree next to v1 hierarchies.
        run("umount", "/sys/fs/cgroup/unified")
        os.environ["CONTAINERD"] = self.programs["containerd"]
        (self.work / "runc").symlink_to(self.programs["runc"])
        os.environ["PATH"] = f"{self.work}:{os.environ['PATH']}"
        self.registry = Registry(self.work, REGISTRY_PORT)
        try:
            build_image(self.work / "image", "bench:1")
            self.registry.push(self.work / "image", "bench")
            # One that ends by SIGTERM, for which CRI-O waits.
            pause = Layer().copy(compile_c(self.work / "compiled", "pause", PAUSE), "pause")
            for tag in ("3.10", "3.10.1", "3.10.2"):
                Image([pause], Entrypoint=["/pause"]).push(self.registry.host, "pause", tag)
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        work, host = self.work, self.registry.host
        shim = _runsc_options(work, self.programs)
        wrapped = {**self.programs, "crun": _edited(self.programs["crun"], work / "crun", _OLD_VERSION)}
        of_crio = {name: wrapped[name] for name in OCI}
        if "CAP_SYS_RESOURCE" in missing_capabilities():
            of_crio = {name: _edited(self.programs[name], work / f"{name}-of-crio", _OLD_VERSION, _NO_SCORE) for name in OCI}
            self.remarks["cri-o"] = self.remarks["cri-o+pause"] = "its runtimes are started through sh and sed, because this machine lacks CAP_SYS_RESOURCE"
        self.pinion = self._add("pinion", create_engine("pinion", work, registry=host, extra_config=self._handlers(shim)))
        self.containerd = self._add("containerd", create_engine("containerd", work, registry=host, extra_config=_containerd_config(wrapped, shim)))
        self.crio = self._add("cri-o", MeasuredCrio(work, host, of_crio))
        self.crio_pause = self._add("cri-o+pause", CrioWithPause(work, host, of_crio))

    def push_images(self):
        """Pushes images to pull: of busybox, of that and 64 MiB that cannot be compressed, and of that and 10 000 small files. Returns their references by name."""
        large, small = self.work / "large", self.work / "small"
        large.mkdir()
        (large / "data").write_bytes(os.urandom(64 << 20))
        for directory in range(100):
            (small / str(directory)).mkdir(parents=True)
            for file in range(100):
                (small / str(directory) / str(file)).write_text(f"{directory} {file}\n" * 50)
        references = {"busybox": IMAGE}
        for name, added in (("large", large), ("files", small)):
            # Another page makes other layers of all images.
            environment = {"BUSYBOX": "/bin/busybox", "ADD": str(added), "PAGE": name}
            run(REPOSITORY / "scripts/make-image", self.work / f"image-{name}", f"{name}:1", env=environment).check()
            self.registry.push(self.work / f"image-{name}", name)
            references[name] = f"registry.k8s.io/{name}:1"
        return references

    def _add(self, name, engine):
        """Starts an engine. One that does not start is left out, unless it is Pinion."""
        try:
            engine.start()
        except (Failure, SystemExit) as error:
            engine.clean_up()
            if name == "pinion":
                raise
            print(f"# {name} is left out: {error}", flush=True)
        else:
            self.engines[name] = engine
        return engine

    def _handlers(self, shim):
        tables = [f'[handlers.{name}]\nbinary = "{self.programs[name]}"\n' for name in OCI]
        tables.append(f'[handlers.runsc]\nkind = "shim"\nbinary = "{self.programs["runsc_shim"]}"\n'
                      f'options = {{ type_url = "{shim[0]}", config_path = "{shim[1]}" }}\n')
        if self.image:
            tables += [f'[handlers.{name}]\nkind = "vm"\nimage = "{self.image}"\nallow_emulation = true\ntemplate = {template}\n'
                       for name, template in (("vm", "false"), ("vm-template", "true"))]
        return "\n".join(tables)

    def __exit__(self, *_):
        for engine in self.engines.values():
            engine.clean_up()
        self.registry.stop()


def _runsc_options(work, programs):
    """Returns the type and the file of the options of gVisor's shim."""
    file = work / "runsc.toml"
    file.write_text(f'binary_name = "{programs["runsc"]}"\n')
    return "io.containerd.runsc.v1.options", file


def _edited(runtime, wrapper, *expressions):
    """Returns a wrapper for a runtime of another engine that edits specifications with sed. It costs two programs, sh and sed."""
    scripts = " ".join(f"-e '{expression}'" for expression in expressions)
    wrapper.write_text("#!/bin/sh\ncase \" $* \" in *' create '*)\n    bundle=${*##*--bundle }\n    bundle=${bundle%% *}\n"
                       f"    sed -i {scripts} \"$bundle/config.json\"\nesac\nexec {runtime} \"$@\"\n")
    wrapper.chmod(0o755)
    return str(wrapper)


# Debian's crun 1.8 refuses the version of the specification that containerd and CRI-O write.
_OLD_VERSION = 's/"ociVersion": *"[^"]*"/"ociVersion":"1.0.2"/'
# Without CAP_SYS_RESOURCE, runtimes fail to set the negative score that CRI-O gives to pause containers.
_NO_SCORE = 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/'


def _containerd_config(programs, shim):
    """Returns the runtimes in the configuration of containerd."""
    table = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes"
    text = "".join(f"{table}.{name}-handler]\n  runtime_type = 'io.containerd.runc.v2'\n{table}.{name}-handler.options]\n"
                   f"  BinaryName = '{programs[name]}'\n" for name in OCI)
    return (f"{text}{table}.runsc-handler]\n  runtime_type = 'io.containerd.runsc.v1'\n  runtime_path = '{programs['runsc_shim']}'\n"
            f"{table}.runsc-handler.options]\n  TypeUrl = '{shim[0]}'\n  ConfigPath = '{shim[1]}'\n")
