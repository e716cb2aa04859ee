//! The guest from the start of the first process to the first request, and its end.

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    mount::{MountFlags, mount, mount_bind, mount_move},
    process::{chdir, chroot},
    system::{RebootCommand, reboot},
};

use crate::{during, modules};

/// File systems that are mounted: type, mount point, flags, options.
const MOUNTS: [(&str, &str, MountFlags, &std::ffi::CStr); 6] = [
    ("devtmpfs", "/dev", MountFlags::NOSUID.union(MountFlags::NOEXEC), c"mode=0755"),
    // Of all containers of the pod.
    ("tmpfs", "/dev/shm", HARMLESS, c"mode=1777"),
    ("proc", "/proc", HARMLESS, c""),
    ("sysfs", "/sys", HARMLESS, c""),
    ("tmpfs", "/run", MountFlags::NOSUID.union(MountFlags::NODEV), c"mode=0755"),
    ("cgroup2", "/sys/fs/cgroup", HARMLESS, c"nsdelegate"),
];
const HARMLESS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Mounts what a kernel has, and loads the modules that guests need.
pub(crate) fn prepare() -> io::Result<()> {
    enter_mounted_root()?;
    for (kind, point, flags, options) in MOUNTS {
        fs::create_dir_all(point).map_err(during(format_args!("create {point}")))?;
        match mount(kind, point, kind, flags, options) {
            // The kernel mounts devtmpfs by itself if it is so configured.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(errno) => return Err(during(format_args!("mount {kind} on {point}"))(errno)),
        }
    }
    delegate_controllers(Path::new("/sys/fs/cgroup"))?;
    modules::load_boot_modules()?;
    // A kernel without modules has no such file, and requests none.
    if let Err(error) = modules::serve_requests() {
        eprintln!("pinion-agent: {error}");
    }
    Ok(())
}

/// Makes the initramfs the root in a mount of its own: pivot_root(2), which every container needs, fails in the first mount
/// of the kernel.
fn enter_mounted_root() -> io::Result<()> {
    const POINT: &str = "/root";
    let failed = |errno: Errno| during("mount the root again")(errno);
    fs::create_dir_all(POINT).map_err(during(format_args!("create {POINT}")))?;
    mount_bind("/", POINT).map_err(failed)?;
    chdir(POINT).map_err(failed)?;
    mount_move(".", "/").map_err(failed)?;
    chroot(".").map_err(failed)?;
    chdir("/").map_err(failed)
}

/// Makes all controllers available to the cgroups of containers.
fn delegate_controllers(root: &Path) -> io::Result<()> {
    let file = root.join("cgroup.controllers");
    let controllers = fs::read_to_string(&file).map_err(during(format_args!("read {}", file.display())))?;
    let file = root.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        // One that cannot be enabled is missed by the container that limits it.
        if let Err(error) = fs::write(&file, format!("+{controller}")) {
            eprintln!("pinion-agent: enable controller {controller}: {error}");
        }
    }
    Ok(())
}

/// Writes what is cached to the file systems, and powers the guest off.
pub(crate) fn power_off() {
    rustix::fs::sync();
    if let Err(errno) = reboot(RebootCommand::PowerOff) {
        eprintln!("pinion-agent: power off: {errno}");
    }
}
