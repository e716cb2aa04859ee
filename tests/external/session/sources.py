"""Sources of the programs of a session: Debian packages, Go modules at pinned versions, and the test image."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from .program import run, spawn, wait_until
from .runtime import CACHE, REPOSITORY

GO = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}


def install_packages(*names):
    """Installs missing Debian packages without starting their services."""
    missing = [name for name in names if run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name).out != "ii "]
    if not missing:
        return
    print(f"# installing {' '.join(missing)}", flush=True)
    policy, policy_installed = Path("/usr/sbin/policy-rc.d"), False
    if not policy.exists():
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        policy_installed = True
    try:
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq"]
        _run_or_exit(*apt, "update")
        _run_or_exit(*apt, "install", "-y", "--no-remove", "--no-install-recommends", *missing, env={"DEBIAN_FRONTEND": "noninteractive"})
    finally:
        if policy_installed:
            policy.unlink()


def unpack_packages(directory, *names):
    """Unpacks Debian packages, without their dependencies, instead of installing them. Returns the directory."""
    root = Path(directory) / "-".join(names)
    if not root.exists():
        print(f"# fetching {' '.join(names)}", flush=True)
        partial = root.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "deb").mkdir(parents=True)
        # By default apt downloads as the user _apt, which cannot write to this directory.
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", *names]
        if subprocess.run(command, cwd=partial / "deb", capture_output=True, check=False).returncode:
            _run_or_exit("apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq", "update")
            _run_or_exit(*command, cwd=partial / "deb")
        for package in (partial / "deb").iterdir():
            _run_or_exit("dpkg-deb", "-x", package, partial)
        partial.rename(root)
    return root


def go_module(path, version, name):
    """Returns a writable copy of the source of a Go module. The copy is reused by the next run."""
    copy = CACHE / "src" / f"{name}-{version}"
    if not copy.exists():
        if not shutil.which("go"):
            sys.exit(f"{name}: Go 1.24 or newer is needed to build it; see https://go.dev/dl")
        print(f"# fetching {path}@{version}", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        output = _run_or_exit("go", "mod", "download", "-json", f"{path}@{version}", env=GO, cwd=CACHE)
        partial = copy.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(json.loads(output)["Dir"], partial)
        _run_or_exit("chmod", "-R", "u+w", partial)
        partial.rename(copy)
    return copy


def go_build(source, out, *arguments, cgo=False, command=("build",)):
    """Runs `go build` (or another go command) in the copy of a module, unless `out` exists."""
    if not Path(out).exists():
        print(f"# building {Path(out).name}", flush=True)
        begin = time.monotonic()
        _run_or_exit("go", *command, "-trimpath", "-o", out, *arguments, env={**GO, "CGO_ENABLED": "1" if cgo else "0"}, cwd=source)
        print(f"# built {Path(out).name} in {time.monotonic() - begin:.0f} s", flush=True)
    return out


def runc_shim():
    """Builds containerd-shim-runc-v2, and installs runc; returns the path of the shim."""
    path, version = "github.com/containerd/containerd/v2", "v2.4.2"
    install_packages("runc")
    flags = f"-s -w -X {path}/version.Version={version.lstrip('v')}"
    out = CACHE / f"containerd-{version}" / "containerd-shim-runc-v2"
    return go_build(go_module(path, version, "containerd"), out, "-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", flags, "./cmd/containerd-shim-runc-v2")


def build_image(directory, name, command=None):
    """Builds the busybox test image as an OCI layout and an archive of it; returns the path of the archive.

    `command` replaces the entrypoint.
    """
    directory = Path(directory)
    run(REPOSITORY / "scripts/make-image", directory, name, env={"BUSYBOX": "/bin/busybox"}).check()
    if command:
        _set_entrypoint(directory / "layout", command)
        run("tar", "-C", directory / "layout", "-cf", directory / "image.tar", ".").check()
    return directory / "image.tar"


def _set_entrypoint(layout, command):
    blobs = layout / "blobs/sha256"

    def read(descriptor):
        return json.loads((blobs / descriptor["digest"].split(":")[1]).read_text())

    def write(content, descriptor):
        (blobs / descriptor["digest"].split(":")[1]).unlink()
        text = json.dumps(content).encode()
        digest = hashlib.sha256(text).hexdigest()
        (blobs / digest).write_bytes(text)
        descriptor.update(digest=f"sha256:{digest}", size=len(text))

    index = json.loads((layout / "index.json").read_text())
    manifest = read(index["manifests"][0])
    config = read(manifest["config"])
    config["config"].update(Entrypoint=command, Cmd=None)
    write(config, manifest["config"])
    write(manifest, index["manifests"][0])
    (layout / "index.json").write_text(json.dumps(index, separators=(",", ":")))


class Registry:
    """An HTTP registry on 127.0.0.1; `host` is its address. Port 0 selects a free port."""

    def __init__(self, work, port=5000):
        self.host = f"127.0.0.1:{port or _free_port()}"
        config = work / "registry.yaml"
        config.write_text(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}}}\nhttp: {{addr: {self.host}}}\n")
        self.log = work / "registry.log"
        self.process = spawn("docker-registry", "serve", config, log=self.log)
        wait_until("the registry responds", lambda: run("curl", "-fsS", f"http://{self.host}/v2/").code == 0)

    def push(self, directory, repository, tag="1"):
        """Pushes an image that `build_image` built; returns its reference."""
        run(REPOSITORY / "scripts/push-image", Path(directory) / "layout", self.host, repository, tag).check()
        return f"{self.host}/{repository}:{tag}"

    def stop(self):
        """Stops the registry."""
        self.process.terminate()
        self.process.wait(10)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run_or_exit(*argv, env=None, cwd=None):
    """Runs a program of the setup and returns its output. Exits with its output if it fails."""
    result = subprocess.run([str(part) for part in argv], env={**os.environ, **(env or {})}, cwd=cwd, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"external: {' '.join(map(str, argv))}: exit code {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result.stdout
