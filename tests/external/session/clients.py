"""Docker and Podman as their users have them: clients that run containers."""

import contextlib
import shutil
import signal
import subprocess
from pathlib import Path

from .podman import Podman
from .program import Failure, run, spawn, wait_until
from .sources import install_packages

# What they keep in a session.
ALLOWED_LEFTOVERS = ("/run/(docker|docker-own|libpod|containers|crun|xtables).*", "/run/netns", "/dev/shm/libpod_lock")


def install():
    """Installs Debian's Docker, unless there is one, and Podman. Docker does not start with the machine."""
    if not shutil.which("dockerd"):
        install_packages("docker.io")
        if shutil.which("systemctl"):
            run("systemctl", "disable", "docker.service", "docker.socket")
    install_packages("podman", "conmon", "crun", "netavark", "iptables", "golang-github-containers-common")


@contextlib.contextmanager
def started(work, reference, name_of_image):
    """Starts a dockerd. Returns the commands of Docker and Podman by name; one that does not work is left out. They have the image `reference` of a registry
    on this machine under the name `name_of_image`."""
    commands = {}
    with contextlib.ExitStack() as ended:
        for name, start in (("docker", _docker), ("podman", _podman)):
            try:
                command = ended.enter_context(start(work / f"client-{name}", reference))
                run(*command.split(), "pull", reference).check()
                run(*command.split(), "tag", reference, name_of_image).check()
                commands[name] = command
            except (Failure, OSError) as failure:
                print(f"# {name} is left out: {failure}", flush=True)
        yield commands


@contextlib.contextmanager
def _docker(work, _):
    work.mkdir()
    (work / "daemon.json").write_text("{}")
    socket = f"unix://{work}/docker.sock"
    # Its own directories, the runc of the other engines, and what a machine without systemd and CAP_SYS_RESOURCE needs. All else is its default.
    process = spawn("dockerd", "--config-file", work / "daemon.json", "--host", socket, "--data-root", work / "root", "--exec-root", "/run/docker-own",
                    "--pidfile", work / "dockerd.pid", "--exec-opt", "native.cgroupdriver=cgroupfs", "--oom-score-adjust", "0", "--bridge", "none",
                    "--iptables=false", log=work / "dockerd.log")
    command = f"env DOCKER_HOST={socket} DOCKER_CONFIG={work}/config docker"
    try:
        try:
            wait_until("dockerd responds", lambda: run(*command.split(), "version").code == 0, 60)
        except Failure as failure:
            raise Failure(f"{failure}\n{(work / 'dockerd.log').read_text()[-3000:]}") from None
        yield command
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _podman(work, reference):
    work.mkdir(0o755)
    podman = Podman(work)
    # Debian's runtime for it, and all else as it is after its installation.
    settings = Path(podman.env["CONTAINERS_CONF"])
    settings.write_text('[engine]\nruntime = "crun"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')
    Path(podman.env["CONTAINERS_REGISTRIES_CONF"]).write_text(f'[[registry]]\nlocation = "{reference.partition("/")[0]}"\ninsecure = true\n')
    variables = " ".join(f"{name}={value}" for name, value in podman.env.items())
    try:
        yield f"env {variables} podman"
    finally:
        podman.clean()
