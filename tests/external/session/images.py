"""Container images made of files, byte for byte the same each time, and pushed to a registry."""

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from .program import run
from .sources import packages_unpacked

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


class Layer:
    """Files of one layer. Directories above a file come by themselves."""

    def __init__(self):
        self.entries = {}
        self._packed = None

    def directory(self, *paths, mode=0o755):
        for path in paths:
            self.entries[path] = (tarfile.DIRTYPE, b"", "", mode)
        return self

    def file(self, path, content, mode=0o644):
        self.entries[path] = (tarfile.REGTYPE, content.encode() if isinstance(content, str) else content, "", mode)
        return self

    def copy(self, source, path, mode=0o755):
        return self.file(path, Path(source).read_bytes(), mode)

    def same(self, path, to):
        """A hard link."""
        self.entries[path] = (tarfile.LNKTYPE, b"", to, 0o755)
        return self

    def link(self, path, to):
        """A symbolic link."""
        self.entries[path] = (tarfile.SYMTYPE, b"", to, 0o777)
        return self

    def program(self, source, path):
        """A program and the libraries that the machine's loader finds for it."""
        self.copy(source, path)
        told = run("ldd", source).out
        if lacking := re.findall(r"(\S+) => not found", told):
            raise SystemExit(f"images: {source} needs {', '.join(lacking)}, which this machine does not have")
        for library in re.findall(r"(/\S+) \(0x", told):
            self.copy(os.path.realpath(library), library.lstrip("/"))
        return self

    def packed(self):
        """(bytes, digest unpacked): gzip over tar, without time stamps or names."""
        if not self._packed:
            stream = io.BytesIO()
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                for path in sorted(self._whole(), key=lambda path: (self.entries.get(path, (b"",))[0] == tarfile.LNKTYPE, path)):
                    kind, content, to, mode = self.entries.get(path, (tarfile.DIRTYPE, b"", "", 0o755))
                    head = tarfile.TarInfo(path)
                    head.type, head.size, head.linkname, head.mode = kind, len(content), to, mode
                    archive.addfile(head, io.BytesIO(content))
            plain = stream.getvalue()
            self._packed = (gzip.compress(plain, 6, mtime=0), _digest(plain))
        return self._packed

    def _whole(self):
        parents = {str(parent) for path in self.entries for parent in Path(path).parents}
        return (set(self.entries) | parents) - {"."}


class Image:
    """Layers and a configuration (`Cmd`, `User`, …)."""

    def __init__(self, layers, **config):
        self.layers = layers
        self.config = {"Env": [PATH], **config}

    def parts(self):
        """(blobs by digest, manifest)."""
        blobs, described, plain = {}, [], []
        for layer in self.layers:
            packed, unpacked = layer.packed()
            described.append(_describe(blobs, packed, "application/vnd.oci.image.layer.v1.tar+gzip"))
            plain.append(unpacked)
        config = {"architecture": ARCHITECTURE, "os": "linux", "config": self.config, "rootfs": {"type": "layers", "diff_ids": plain}, "history": []}
        config = _describe(blobs, json.dumps(config, sort_keys=True).encode(), "application/vnd.oci.image.config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": described}
        return blobs, json.dumps(manifest, sort_keys=True).encode()

    @property
    def digest(self):
        return _digest(self.parts()[1])

    def push(self, host, repository, *tags):
        """Pushes it under every tag."""
        base = f"http://{host}/v2/{repository}"
        blobs, manifest = self.parts()
        for digest, blob in blobs.items():
            try:
                _ask("HEAD", f"{base}/blobs/{digest}")
            except urllib.error.HTTPError:
                where = _ask("POST", f"{base}/blobs/uploads/", b"").headers["Location"]
                _ask("PUT", f"{where}{'&' if '?' in where else '?'}digest={digest}", blob, "application/octet-stream")
        for tag in tags:
            _ask("PUT", f"{base}/manifests/{tag}", manifest, MANIFEST)


def busybox(directory):
    """A layer of Debian's busybox, the dynamic one: the shell of the static one runs its applets inside itself.

    Applets are hard links, so that each is a file of its own right. `ipcs` is util-linux's; `pgrep NAME` is pidof.
    """
    program = packages_unpacked(directory, "busybox") / "bin/busybox"
    layer = Layer().program(program, "bin/busybox").program("/usr/bin/ipcs", "usr/bin/ipcs")
    for applet in run(program, "--list").must().out.split():
        if applet != "busybox":
            layer.same(f"bin/{applet}", "bin/busybox")
    layer.file("bin/pgrep", '#!/bin/sh\nexec pidof "$@"\n', 0o755)
    layer.directory("dev", "proc", "sys", "root", "home", "run", "var/run", "var/www", "mnt").directory("tmp", mode=0o1777)
    layer.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n")
    return layer.file("etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n")


def nginx(directory, port=80):
    """A layer of Debian's nginx, serving one page on a port."""
    layer = Layer().program(packages_unpacked(directory, "nginx") / "usr/sbin/nginx", "usr/sbin/nginx")
    layer.directory("var/log/nginx", "var/lib/nginx", "var/run")
    layer.file("usr/share/nginx/html/index.html", "<html><title>Welcome to nginx!</title></html>\n")
    return layer.file("etc/nginx/nginx.conf", f"""user root;
worker_processes 1;
pid /var/run/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log /dev/stdout; server {{ listen {port}; root /usr/share/nginx/html; }} }}
""")


def compiled(directory, name, source):
    """A small static program out of C."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.c").write_text(source)
    run("gcc", "-Os", "-static", "-s", "-o", directory / name, directory / f"{name}.c").must()
    return directory / name


PAUSE = """#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
  struct sigaction a = {.sa_handler = end};
  sigaction(SIGINT, &a, 0);
  sigaction(SIGTERM, &a, 0);
  a.sa_handler = reap;
  a.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &a, 0);
  for (;;) pause();
}
"""


def _describe(blobs, content, kind):
    blobs[_digest(content)] = content
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _ask(method, url, data=None, kind=None):
    request = urllib.request.Request(url, data, {"Content-Type": kind} if kind else {}, method=method)
    return urllib.request.urlopen(request, timeout=30)
