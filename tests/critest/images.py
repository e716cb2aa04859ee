"""Every image that critest v1.36.0 names, out of Debian packages.

    tests/critest/images.py HOST:PORT       makes them and pushes them to a plain registry

They get the upstream paths with the host dropped, so an engine under test takes registry.k8s.io, k8s.gcr.io and gcr.io from
that registry as a mirror. What the specs ask of them:

    busybox       applets that are files of their own (one is masked), ping, brctl, netstat, pgrep, ipcs
    nginx         its process title, /var/run/nginx.pid, a page on port 80; another on 12003 for the host's network
    httpd         a page on port 80, and `httpd` in its log
    nonewprivs    a setuid program that prints its effective uid
    test-image-*  small, and different from each other; one with users and groups of its own
    pause:3.9     one id under two registries; containerd's own pauses must have others
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "external"))

from session.images import ARCHITECTURE, PAUSE, Image, Layer, busybox, compiled, nginx  # noqa: E402
from session.runtime import CACHE  # noqa: E402
from session.sources import packages_unpacked  # noqa: E402

NONEWPRIVS = '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("Effective uid: %d\\n", (int)geteuid()); return 0; }\n'
E2E, STAGING = "e2e-test-images/", "k8s-staging-cri-tools/"


def by_digest():
    """The image that critest pulls by digest. It is made of nothing that a newer Debian package would change."""
    return Image([Layer().file("test-image-digest", "")], Cmd=["/test-image-digest"])


def every(directory):
    """(repository, tags, image) of each."""
    base, pause = busybox(CACHE / "deb"), Layer().copy(compiled(directory, "pause", PAUSE), "pause")
    setuid = Layer().copy(compiled(directory, "nnp", NONEWPRIVS), "nnp", 0o4755)

    def shell(*layers, **config):
        return Image([base, *layers], Cmd=["sh"], **config)

    def web(port):
        return Image([base, nginx(CACHE / "deb", port)], Cmd=["nginx", "-g", "daemon off;"], StopSignal="SIGQUIT")

    def marked(name):
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
    yield STAGING + "test-image-predefined-group", ["latest"], shell(_group_of_its_own(base), User="1000")
    for name in ("1", "2", "3", "latest"):
        yield STAGING + f"test-image-{name}", ["latest"], marked(name)
    yield STAGING + "test-image-digest", ["latest"], by_digest()
    yield STAGING + "test-image-tags", ["1", "2", "3"], marked("tags")
    for tag in ("test", "all"):
        yield STAGING + "test-image-tag", [tag], marked(tag)


def _group_of_its_own(base):
    def more(path, line):
        return base.entries[path][1] + line

    return (Layer().file("etc/passwd", more("etc/passwd", b"default-user:x:1000:1000::/home:/bin/sh\n"))
            .file("etc/group", more("etc/group", b"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")))


def fetch():
    """What needs the network, once."""
    packages_unpacked(CACHE / "deb", "busybox")
    packages_unpacked(CACHE / "deb", "nginx")


def push(host, directory):
    """Makes and pushes all of them."""
    for repository, tags, image in every(Path(directory)):
        image.push(host, repository, *tags)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch()
    push(sys.argv[1], CACHE / "compiled")
