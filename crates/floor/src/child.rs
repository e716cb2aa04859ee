//! The child process: sets up the container and executes the program.

use std::{ffi::CStr, io};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, Gid, Mode, OFlags, Uid, makedev, mkdirat, mknodat, openat, symlinkat},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount,
        open_tree, unmount,
    },
    process::{DumpableBehavior, chdir, fchdir, pivot_root, set_dumpable_behavior, setsid, umask},
    system::sethostname,
    thread::{
        CapabilitySet, CapabilitySets, UnshareFlags, clear_ambient_capability_set, remove_capability_from_bounding_set,
        set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};
use syscall::{clone::unshare_process, exec::StringArray, mount_attributes::MountAttributes};

use crate::{Arguments, cgroups::Cgroups};

const GUARDED: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC).union(MountAttrFlags::MOUNT_ATTR_NODEV);
const MASKED_FILES: [&CStr; 5] =
    [c"/proc/kcore", c"/proc/keys", c"/proc/latency_stats", c"/proc/timer_list", c"/proc/sched_debug"];
const MASKED_DIRECTORIES: [&CStr; 4] = [c"/proc/acpi", c"/proc/asound", c"/proc/scsi", c"/sys/firmware"];
const READONLY: [&CStr; 5] = [c"/proc/bus", c"/proc/fs", c"/proc/irq", c"/proc/sys", c"/proc/sysrq-trigger"];
const DEVICES: [(&CStr, u32, u32); 6] =
    [(c"null", 1, 3), (c"zero", 1, 5), (c"full", 1, 7), (c"random", 1, 8), (c"urandom", 1, 9), (c"tty", 5, 0)];
const LINKS: [(&CStr, &CStr); 5] = [
    (c"/proc/self/fd", c"fd"),
    (c"/proc/self/fd/0", c"stdin"),
    (c"/proc/self/fd/1", c"stdout"),
    (c"/proc/self/fd/2", c"stderr"),
    (c"pts/ptmx", c"ptmx"),
];

/// Sets up the container and executes the program. Returns only an error.
pub(crate) fn run(arguments: &Arguments, cgroups: &Cgroups) -> io::Error {
    match set_up(arguments, cgroups) {
        Ok(error) | Err(error) => error,
    }
}

fn set_up(arguments: &Arguments, cgroups: &Cgroups) -> io::Result<io::Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setsid()?;
    umask(Mode::empty());
    cgroups.join(false)?;
    unshare_process(UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC | UnshareFlags::NEWNET)?;
    syscall::loopback::up()?;
    sethostname(b"bench")?;
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    enter_root(arguments, cgroups)?;
    mask_paths()?;
    set_credentials()?;
    cgroups.join(true)?;
    set_no_new_privs(true)?;
    let program = arguments.program.first().ok_or_else(|| io::Error::other("no program"))?;
    let program_arguments = StringArray::new(arguments.program.clone());
    let environment =
        [c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", c"HOSTNAME=bench", c"HOME=/"];
    let environment = StringArray::new(environment.map(CStr::to_owned).into());
    syscall::descriptors::close_on_exec_from(3)?;
    syscall::seccomp::load_filter(&arguments.filter, 1 << 2)?;
    Ok(syscall::exec::execve(program, &program_arguments, &environment))
}

fn enter_root(arguments: &Arguments, cgroups: &Cgroups) -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = open_tree(CWD, arguments.rootfs.as_c_str(), clone | OpenTreeFlags::AT_RECURSIVE)?;
    let private = MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..Default::default() };
    private.apply(&root, false)?;
    let strict = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    let pts = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = new_mount(c"proc", &[], GUARDED)?;
    let dev = new_mount(c"tmpfs", &[(c"mode", c"755"), (c"size", c"65536k")], strict)?;
    let pts = new_mount(c"devpts", &[(c"ptmxmode", c"0666"), (c"mode", c"0620"), (c"gid", c"5")], pts)?;
    let sys = new_mount(c"sysfs", &[], GUARDED | MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    let mqueue = new_mount(c"mqueue", &[], GUARDED)?;
    let shm = new_mount(c"tmpfs", &[(c"mode", c"1777"), (c"size", c"67108864")], GUARDED)?;
    let trees = cgroup_trees(&arguments.group, cgroups)?;
    let cgroup = match trees.is_empty() {
        true => new_mount(c"cgroup2", &[], GUARDED | MountAttrFlags::MOUNT_ATTR_RDONLY)?,
        false => new_mount(c"tmpfs", &[(c"mode", c"755")], GUARDED)?,
    };
    move_mount(&root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    fchdir(&root)?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    chdir(c"/")?;
    attach(&proc, CWD, c"/proc")?;
    attach(&dev, CWD, c"/dev")?;
    for (tree, name) in [(&pts, c"pts"), (&mqueue, c"mqueue"), (&shm, c"shm")] {
        mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        attach(tree, dev.as_fd(), name)?;
    }
    attach(&sys, CWD, c"/sys")?;
    attach(&cgroup, CWD, c"/sys/fs/cgroup")?;
    for (name, tree) in &trees {
        mkdirat(&cgroup, *name, Mode::from_raw_mode(0o755))?;
        move_mount(tree, c"", cgroup.as_fd(), *name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    }
    if !trees.is_empty() {
        let set = GUARDED | MountAttrFlags::MOUNT_ATTR_RDONLY;
        MountAttributes { set, ..Default::default() }.apply(&cgroup, true)?;
    }
    for (name, major, minor) in DEVICES {
        mknodat(&dev, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
    }
    for (target, name) in LINKS {
        symlinkat(target, &dev, name)?;
    }
    Ok(())
}

/// Clones the container's cgroup directory of every v1 hierarchy.
fn cgroup_trees(group: &str, cgroups: &Cgroups) -> io::Result<Vec<(&'static str, OwnedFd)>> {
    let path = format!("/proc/{group}");
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mut trees = Vec::new();
    for (name, option) in cgroups.names() {
        let option = std::ffi::CString::new(option)?;
        mount(c"cgroup", c"/proc", c"cgroup", flags, Some(option.as_c_str()))?;
        trees.push((name, open_tree(CWD, path.as_str(), clone)?));
    }
    Ok(trees)
}

fn new_mount(kind: &CStr, options: &[(&CStr, &CStr)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"source", kind)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    std::mem::forget(context);
    Ok(mount)
}

fn attach(tree: &OwnedFd, at: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    Ok(move_mount(tree, c"", at, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn mask_paths() -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let readonly = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    for path in READONLY {
        let Ok(tree) = open_tree(CWD, path, clone) else { continue };
        readonly.apply(&tree, true)?;
        attach(&tree, CWD, path)?;
    }
    for path in MASKED_DIRECTORIES {
        let Ok(directory) = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { continue };
        let empty = new_mount(c"tmpfs", &[], MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&empty, c"", &directory, c"", flags)?;
    }
    for path in MASKED_FILES {
        if rustix::fs::stat(path).is_ok() {
            attach(&open_tree(CWD, c"/dev/null", clone)?, CWD, path)?;
        }
    }
    Ok(())
}

/// Returns Docker's default capabilities.
fn capabilities() -> CapabilitySet {
    CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FSETID
        | CapabilitySet::FOWNER
        | CapabilitySet::MKNOD
        | CapabilitySet::NET_RAW
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID
        | CapabilitySet::SETFCAP
        | CapabilitySet::SETPCAP
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::SYS_CHROOT
        | CapabilitySet::KILL
        | CapabilitySet::AUDIT_WRITE
}

fn set_credentials() -> io::Result<()> {
    let capability_set = capabilities();
    for number in 0..41u32 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !capability_set.contains(one) {
            remove_capability_from_bounding_set(one)?;
        }
    }
    set_keep_capabilities(true)?;
    set_thread_groups(&[Gid::ROOT, Gid::from_raw(10)])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    umask(Mode::from_raw_mode(0o022));
    let sets =
        CapabilitySets { effective: capability_set, permitted: capability_set, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    clear_ambient_capability_set()?;
    Ok(())
}
