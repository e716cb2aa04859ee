"""Builds reproducible container images from files, and pushes them to a registry."""

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
from .sources import unpack_packages

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


class Layer:
    """The files of one layer. Parent directories of a file are added automatically."""

    def __init__(self):
        self.entries = {}
        self._compressed = None

    def directory(self, *paths, mode=0o755):
        for path in paths:
            self.entries[path] = (tarfile.DIRTYPE, b"", "", mode)
        return self

    def file(self, path, content, mode=0o644):
        self.entries[path] = (tarfile.REGTYPE, content.encode() if isinstance(content, str) else content, "", mode)
        return self

    def copy(self, source, path, mode=0o755):
        return self.file(path, Path(source).read_bytes(), mode)

    def hard_link(self, path, target):
        """Adds a hard link."""
        self.entries[path] = (tarfile.LNKTYPE, b"", target, 0o755)
        return self

    def symlink(self, path, target):
        """Adds a symbolic link."""
        self.entries[path] = (tarfile.SYMTYPE, b"", target, 0o777)
        return self

    def program(self, source, path):
        """Adds a program and the libraries that the machine's loader finds for it."""
        self.copy(source, path)
        output = run("ldd", source).out
        if missing := re.findall(r"(\S+) => not found", output):
            raise SystemExit(f"images: {source} needs {', '.join(missing)}, which this machine does not have")
        for library in re.findall(r"(/\S+) \(0x", output):
            self.copy(os.path.realpath(library), library.lstrip("/"))
        return self

    def compressed(self):
        """Returns the layer as gzip-compressed tar, without time stamps and user names, and the digest of the tar."""
        if not self._compressed:
            stream = io.BytesIO()
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                for path in sorted(self._all_paths(), key=lambda path: (self.entries.get(path, (b"",))[0] == tarfile.LNKTYPE, path)):
                    kind, content, target, mode = self.entries.get(path, (tarfile.DIRTYPE, b"", "", 0o755))
                    header = tarfile.TarInfo(path)
                    header.type, header.size, header.linkname, header.mode = kind, len(content), target, mode
                    archive.addfile(header, io.BytesIO(content))
            tar = stream.getvalue()
            self._compressed = (gzip.compress(tar, 6, mtime=0), _digest(tar))
        return self._compressed

    def _all_paths(self):
        parents = {str(parent) for path in self.entries for parent in Path(path).parents}
        return (set(self.entries) | parents) - {"."}


class Image:
    """An image: layers and a configuration (`Cmd`, `User`, …)."""

    def __init__(self, layers, **config):
        self.layers = layers
        self.config = {"Env": [PATH], **config}

    def blobs_and_manifest(self):
        """Returns the blobs by digest, and the manifest."""
        blobs, descriptors, diff_ids = {}, [], []
        for layer in self.layers:
            compressed, diff_id = layer.compressed()
            descriptors.append(_add_blob(blobs, compressed, "application/vnd.oci.image.layer.v1.tar+gzip"))
            diff_ids.append(diff_id)
        config = {"architecture": ARCHITECTURE, "os": "linux", "config": self.config, "rootfs": {"type": "layers", "diff_ids": diff_ids}, "history": []}
        config = _add_blob(blobs, json.dumps(config, sort_keys=True).encode(), "application/vnd.oci.image.config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": descriptors}
        return blobs, json.dumps(manifest, sort_keys=True).encode()

    @property
    def digest(self):
        return _digest(self.blobs_and_manifest()[1])

    def push(self, host, repository, *tags):
        """Pushes the image with every tag."""
        base = f"http://{host}/v2/{repository}"
        blobs, manifest = self.blobs_and_manifest()
        for digest, blob in blobs.items():
            try:
                _request("HEAD", f"{base}/blobs/{digest}")
            except urllib.error.HTTPError:
                location = _request("POST", f"{base}/blobs/uploads/", b"").headers["Location"]
                _request("PUT", f"{location}{'&' if '?' in location else '?'}digest={digest}", blob, "application/octet-stream")
        for tag in tags:
            _request("PUT", f"{base}/manifests/{tag}", manifest, MANIFEST)


def busybox(directory):
    """Returns a layer of Debian's dynamically linked busybox; the shell of the static one runs applets without exec.

    Applets are hard links, so that each of them is a regular file. `ipcs` is from util-linux; `pgrep NAME` calls pidof.
    """
    program = unpack_packages(directory, "busybox") / "bin/busybox"
    layer = Layer().program(program, "bin/busybox").program("/usr/bin/ipcs", "usr/bin/ipcs")
    for applet in run(program, "--list").check().out.split():
        if applet != "busybox":
            layer.hard_link(f"bin/{applet}", "bin/busybox")
    layer.file("bin/pgrep", '#!/bin/sh\nexec pidof "$@"\n', 0o755)
    layer.directory("dev", "proc", "sys", "root", "home", "run", "var/run", "var/www", "mnt").directory("tmp", mode=0o1777)
    layer.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n")
    return layer.file("etc/group", "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n")


def nginx(directory, port=80):
    """Returns a layer of Debian's nginx that serves one page on a port."""
    layer = Layer().program(unpack_packages(directory, "nginx") / "usr/sbin/nginx", "usr/sbin/nginx")
    layer.directory("var/log/nginx", "var/lib/nginx", "var/run")
    layer.file("usr/share/nginx/html/index.html", "<html><title>Welcome to nginx!</title></html>\n")
    return layer.file("etc/nginx/nginx.conf", f"""user root;
worker_processes 1;
pid /var/run/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log /dev/stdout; server {{ listen {port}; root /usr/share/nginx/html; }} }}
""")


def compile_c(directory, name, source):
    """Compiles a small static program from C source, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.c").write_text(source)
    run("gcc", "-Os", "-static", "-s", "-o", directory / name, directory / f"{name}.c").check()
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


def _add_blob(blobs, content, media_type):
    """Adds a blob and returns its descriptor."""
    blobs[_digest(content)] = content
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _request(method, url, data=None, content_type=None):
    request = urllib.request.Request(url, data, {"Content-Type": content_type} if content_type else {}, method=method)
    return urllib.request.urlopen(request, timeout=30)
