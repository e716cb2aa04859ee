"""Every image that critest v1.36.0 uses, built from Debian packages.

    tests/critest/images.py HOST:PORT       builds the images and pushes them to an HTTP registry

They have the upstream paths without the host, so the registry can be the mirror of registry.k8s.io, k8s.gcr.io and
gcr.io for an engine under test. Requirements of the specs:

    busybox       applets that are separate files (one is masked), ping, brctl, netstat, pgrep, ipcs
    nginx         its process title, /var/run/nginx.pid, a page on port 80; another image on 12003 for the host network
    httpd         a page on port 80, and `httpd` in its log
    nonewprivs    a setuid program that prints its effective uid
    test-image-*  small and different images; one of them defines its own user and group
    pause:3.9     the same id in two registries; containerd's pause images must have other ids
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "external"))

from session.images import ARCHITECTURE, PAUSE, Image, Layer, busybox, compile_c, nginx  # noqa: E402
from session.runtime import CACHE  # noqa: E402
from session.sources import unpack_packages  # noqa: E402

NONEWPRIVS = '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("Effective uid: %d\\n", (int)geteuid()); return 0; }\n'
E2E, STAGING = "e2e-test-images/", "k8s-staging-cri-tools/"


def by_digest():
    """Returns the image that critest pulls by digest. Its digest is constant: no file is from a Debian package."""
    return Image([Layer().file("test-image-digest", "")], Cmd=["/test-image-digest"])


def all_images(directory):
    """Yields repository, tags and image."""
    base, pause = busybox(CACHE / "deb"), Layer().copy(compile_c(directory, "pause", PAUSE), "pause")
    setuid = Layer().copy(compile_c(directory, "nnp", NONEWPRIVS), "nnp", 0o4755)

    def shell(*layers, **config):
        return Image([base, *layers], Cmd=["sh"], **config)

    def web(port):
        return Image([base, nginx(CACHE / "deb", port)], Cmd=["nginx", "-g", "daemon off;"], StopSignal="SIGQUIT")

    def distinct(name):
        return shell(Layer().file(name, ""))

    yield E2E + "busybox", ["1.29-2"], shell()
    yield E2E + "nginx", ["1.14-2"], web(80)
    yield E2E + "httpd", ["2.4.39-4"], Image(
        [base, Layer().file("www/index.html", "It works!\n")], Cmd=["sh", "-c", "echo httpd: ready; exec httpd -f -vv -p 80 -h /www"])
    yield E2E + "nonewprivs", ["1.3"], Image([setuid], Entrypoint=["/nnp"])
    yield STAGING + f"hostnet-nginx-{ARCHITECTURE}", ["latest"], web(12003)
    for version in ("3.9", "3.10", "3.10.1", "3.10.2"):
        yield "pause", [version], Image([pause], Entrypoint=["/pause"], User="65535:65535", Labels={"version": version})
    for name, user in (("uid", "1002"), ("username", "www-data"), ("uid-group", "1003:1004"), ("username-group", "www-data:1004")):
        yield STAGING + f"test-image-user-{name}", ["latest"], shell(User=user)
    yield STAGING + "test-image-predefined-group", ["latest"], shell(_additional_group(base), User="1000")
    for name in ("1", "2", "3", "latest"):
        yield STAGING + f"test-image-{name}", ["latest"], distinct(name)
    yield STAGING + "test-image-digest", ["latest"], by_digest()
    yield STAGING + "test-image-tags", ["1", "2", "3"], distinct("tags")
    for tag in ("test", "all"):
        yield STAGING + "test-image-tag", [tag], distinct(tag)


def _additional_group(base):
    def append(path, line):
        return base.entries[path][1] + line

    return (Layer().file("etc/passwd", append("etc/passwd", b"default-user:x:1000:1000::/home:/bin/sh\n"))
            .file("etc/group", append("etc/group", b"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")))


def fetch():
    """Downloads the Debian packages, once."""
    unpack_packages(CACHE / "deb", "busybox")
    unpack_packages(CACHE / "deb", "nginx")


def push(host, directory):
    """Builds and pushes all images."""
    for repository, tags, image in all_images(Path(directory)):
        image.push(host, repository, *tags)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch()
    push(sys.argv[1], CACHE / "compiled")
