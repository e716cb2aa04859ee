"""Where a session's programs come from: Debian packages, Go modules at pinned versions, and our own image."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from .program import run, spawn, until
from .runtime import CACHE, REPOSITORY

GO = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOSUMDB": "off", "GOTOOLCHAIN": "local"}


def packages(*names):
    """Installs those that are missing. A package's service does not start."""
    missing = [name for name in names if run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name).out != "ii "]
    if not missing:
        return
    print(f"# installing {' '.join(missing)}", flush=True)
    policy, placed = Path("/usr/sbin/policy-rc.d"), False
    if not policy.exists():
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        placed = True
    try:
        apt = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq"]
        _loud(*apt, "update")
        _loud(*apt, "install", "-y", "--no-install-recommends", *missing, env={"DEBIAN_FRONTEND": "noninteractive"})
    finally:
        if placed:
            policy.unlink()


def packages_unpacked(directory, *names):
    """The files of Debian packages without installing them (their own, not those of what they need): the directory."""
    root = Path(directory) / "-".join(names)
    if not root.exists():
        print(f"# fetching {' '.join(names)}", flush=True)
        begun = root.with_suffix(".begun")
        shutil.rmtree(begun, ignore_errors=True)
        (begun / "deb").mkdir(parents=True)
        # apt fetches as a user of its own, who cannot write where only root can.
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", *names]
        if subprocess.run(command, cwd=begun / "deb", capture_output=True, check=False).returncode:
            _loud("apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq", "update")
            _loud(*command, cwd=begun / "deb")
        for package in (begun / "deb").iterdir():
            _loud("dpkg-deb", "-x", package, begun)
        begun.rename(root)
    return root


def module(path, version, name):
    """A writable copy of a Go module's source. Kept; a second call is quick."""
    copy = CACHE / "src" / f"{name}-{version}"
    if not copy.exists():
        if not shutil.which("go"):
            sys.exit(f"{name}: Go 1.24 or newer is needed to build it; see https://go.dev/dl")
        print(f"# fetching {path}@{version}", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        told = _loud("go", "mod", "download", "-json", f"{path}@{version}", env=GO, cwd=CACHE)
        begun = copy.with_suffix(".begun")
        shutil.rmtree(begun, ignore_errors=True)
        shutil.copytree(json.loads(told)["Dir"], begun)
        _loud("chmod", "-R", "u+w", begun)
        begun.rename(copy)
    return copy


def build(source, out, *arguments, cgo=False, command=("build",)):
    """`go build` (or another command of go) in a module's copy, unless the product is there."""
    if not Path(out).exists():
        print(f"# building {Path(out).name}", flush=True)
        begin = time.monotonic()
        _loud("go", *command, "-trimpath", "-o", out, *arguments, env={**GO, "CGO_ENABLED": "1" if cgo else "0"}, cwd=source)
        print(f"# built {Path(out).name} in {time.monotonic() - begin:.0f} s", flush=True)
    return out


def image(directory, name, command=None):
    """Our busybox image as an OCI layout and an archive of it; gives the archive's path. `command`: another entry point."""
    directory = Path(directory)
    run(REPOSITORY / "scripts/make-image", directory, name, env={"BUSYBOX": "/bin/busybox"}).must()
    if command:
        _give_command(directory / "layout", command)
        run("tar", "-C", directory / "layout", "-cf", directory / "image.tar", ".").must()
    return directory / "image.tar"


def _give_command(layout, command):
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
    """A plain registry on 127.0.0.1 with our images: `host` is its address. Port 0: one that is free."""

    def __init__(self, work, port=5000):
        self.host = f"127.0.0.1:{port or _free_port()}"
        config = work / "registry.yaml"
        config.write_text(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}}}\nhttp: {{addr: {self.host}}}\n")
        self.log = work / "registry.log"
        self.process = spawn("docker-registry", "serve", config, log=self.log)
        until("the registry answers", lambda: run("curl", "-fsS", f"http://{self.host}/v2/").code == 0)

    def push(self, directory, repository, tag="1"):
        """Pushes the image of a layout that `image` made; gives its reference."""
        run(REPOSITORY / "scripts/push-image", Path(directory) / "layout", self.host, repository, tag).must()
        return f"{self.host}/{repository}:{tag}"

    def stop(self):
        """Ends it."""
        self.process.terminate()
        self.process.wait(10)


def _free_port():
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def _loud(*argv, env=None, cwd=None):
    """Runs a step of the set-up; if it fails the session cannot begin."""
    done = subprocess.run([str(part) for part in argv], env={**os.environ, **(env or {})}, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"external: {' '.join(map(str, argv))} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout
