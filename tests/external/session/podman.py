"""Podman on directories of its own, as root or as an ordinary user."""

import json
import os
from pathlib import Path

from .cgroups import limit_of
from .program import run
from .runtime import RUNTIME
from .terminal import Terminal

IMAGE = "example.org/pinion/busybox:1"
_RUNTIME_NAME = os.path.basename(RUNTIME)


class Podman:
    """`podman(…)` runs it. `user` is (uid, home): an ordinary user."""

    def __init__(self, work, user=None):
        self.work, self.user = work, user
        directory = work / "podman"
        directory.mkdir(mode=0o755)
        self.env = {
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(directory / "registries.conf"),
        }
        home = Path(user[1]) if user else directory
        if user:
            self.env |= {"HOME": str(home), "XDG_RUNTIME_DIR": f"/run/user/{user[0]}", "XDG_CONFIG_HOME": f"{home}/.config",
                         "TMPDIR": str(home), "USER": "pinion-test", "LOGNAME": "pinion-test", "DBUS_SESSION_BUS_ADDRESS": "none"}
        runroot = f"/run/user/{user[0]}/containers" if user else "/run/containers"
        driver = "vfs" if user else "overlay"
        (directory / "storage.conf").write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{home}/storage"\nrunroot = "{runroot}"\n')
        (directory / "registries.conf").write_text('unqualified-search-registries = []\nshort-name-mode = "permissive"\n')
        (directory / "containers.conf").write_text(
            '[containers]\nlog_driver = "k8s-file"\n'
            f'[engine]\nruntime = "{_RUNTIME_NAME}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'runtime_supports_json = ["{_RUNTIME_NAME}"]\nno_pivot_root = false\n'
            f'[engine.runtimes]\n{_RUNTIME_NAME} = ["{RUNTIME}"]\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{home}/networks"\n'
        )
        Path("/etc/containers").mkdir(exist_ok=True)
        Path("/etc/containers/policy.json").write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
        if not user:
            # Where --userns auto takes its ranges from.
            for file in ("/etc/subuid", "/etc/subgid"):
                with open(file, "a", encoding="ascii") as ranges:
                    ranges.write("containers:300000:1000000\n")

    def __call__(self, *argv, flags=(), env=None, **options):
        return run("podman", *flags, *argv, env={**self.env, **(env or {})}, user=self.user and self.user[0], **options)

    def terminal(self, *argv):
        """Podman on a terminal."""
        return Terminal("podman", *argv, env=self.env, user=self.user and self.user[0])

    def run(self, *command, options=(), **more):
        """`podman run --rm` without a network."""
        return self("run", "--rm", "--network", "none", *options, IMAGE, *command, **more)

    def start(self, *command, options=(), name=None):
        """`podman run -d` without a network; gives the name."""
        named = ["--name", name] if name else []
        return self("run", "-d", "--network", "none", *named, *options, IMAGE, *command).must().word

    def inspect(self, name):
        """What podman knows of a container."""
        return json.loads(self("container", "inspect", name).must().out)[0]

    def limit(self, name, key):
        """What the kernel says of a running container's limit."""
        return limit_of(self.inspect(name)["State"]["Pid"], key)

    def has_image(self):
        """Whether the image is known by its name."""
        return self("image", "exists", IMAGE).code == 0

    def clean(self):
        """Ends and takes away everything, with what the engine itself keeps."""
        self("pod", "rm", "-af", "-t", "0", timeout=120)
        self("rm", "-af", "-t", "0", timeout=120)
        self("unmount", "-af")
        if self.user:
            self("system", "migrate")  # ends the process that holds the user's namespace for the next container
        storage = Path(self.user[1]) / "storage" if self.user else self.work / "podman/storage"
        for mount in (storage / "overlay", storage / "overlay-containers", storage):
            run("umount", mount)
