"""Podman with separate directories, as root or as an unprivileged user."""

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
    """The podman command line: `podman(…)` runs a command. `user` is (uid, home) of an unprivileged user."""

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
            # --userns auto allocates its ranges from the user `containers`.
            for file in ("/etc/subuid", "/etc/subgid"):
                with open(file, "a", encoding="ascii") as ranges:
                    ranges.write("containers:300000:1000000\n")

    def __call__(self, *argv, flags=(), env=None, **options):
        return run("podman", *flags, *argv, env={**self.env, **(env or {})}, user=self.user and self.user[0], **options)

    def terminal(self, *argv):
        """Runs podman on a terminal."""
        return Terminal("podman", *argv, env=self.env, user=self.user and self.user[0])

    def run(self, *command, options=(), **more):
        """Runs `podman run --rm` without a network."""
        return self("run", "--rm", "--network", "none", *options, IMAGE, *command, **more)

    def start(self, *command, options=(), name=None):
        """Runs `podman run -d` without a network, and returns the id."""
        name_options = ["--name", name] if name else []
        return self("run", "-d", "--network", "none", *name_options, *options, IMAGE, *command).check().text

    def inspect(self, name):
        """Returns the output of `podman container inspect`."""
        return json.loads(self("container", "inspect", name).check().out)[0]

    def limit(self, name, key):
        """Returns a limit of a running container as set in the kernel."""
        return limit_of(self.inspect(name)["State"]["Pid"], key)

    def has_image(self):
        """Whether the image exists under its name."""
        return self("image", "exists", IMAGE).code == 0

    def clean(self):
        """Removes all pods and containers, the user's namespace and the storage mounts."""
        self("pod", "rm", "-af", "-t", "0", timeout=120)
        self("rm", "-af", "-t", "0", timeout=120)
        self("unmount", "-af")
        if self.user:
            self("system", "migrate")  # stops the process that keeps the user namespace for the next container
        storage = Path(self.user[1]) / "storage" if self.user else self.work / "podman/storage"
        for mount in (storage / "overlay", storage / "overlay-containers", storage):
            run("umount", mount)
