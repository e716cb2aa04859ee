//! `restore ID`: restores a container from the image files of `checkpoint`.

use std::{
    cell::RefCell,
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use cgroup::{Group, GroupPath, Hierarchies, Joiner, Limits, systemd::Unit};
use container::hooks::Hooks;
use rustix::{
    fd::AsFd,
    fs::{AtFlags, CWD, Mode, mkdirat, unlinkat},
    io::Errno,
    mount::{
        MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount, open_tree,
        unmount,
    },
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{
    arguments::Global,
    bundle::{self, Bundle},
    command::delete,
    console::ConsoleSocket,
    criu::{
        DESCRIPTORS, external,
        options::{Directories, FLAGS, common_options},
        request::{Kind, Options, Response},
        service::{Preparation, Service},
        with_log_errors,
    },
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flag, Flags, Order, switch, value},
    foreground::{self, Foreground},
    launch::{self, NewContainer, absolute, set_cgroup_path, write_pid},
    log::warn,
    state::{Directory, Record},
};

const LOG: &str = "restore.log";
/// A mountpoint in the state directory: CRIU's root must be a mount whose parent is not covered.
const ROOT: &str = "criu-root";

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let more: [Flag; 8] = [
        value(&["bundle", "b"]),
        value(&["console-socket"]),
        value(&["pid-file"]),
        value(&["lsm-profile"]),
        value(&["lsm-mount-context"]),
        switch(&["detach", "d"]),
        switch(&["no-subreaper"]),
        switch(&["no-pivot"]),
    ];
    let known: Vec<Flag> = FLAGS.into_iter().chain(more).collect();
    let flags = Flags::parse(arguments, &known, Order::Mixed)?;
    let (id, detach) = (flags.id()?.to_owned(), flags.is_on("detach")?);
    let path = |name| flags.value(name).filter(|path| !path.is_empty());
    // Before any file is opened: CRIU reopens them through this process, and mounts there.
    unshare_mounts().map_err(|errno| Failure::io("create a mount namespace for criu", errno))?;
    let directories = Directories::open(&flags, false)?;
    let pid_file = path("pid-file").map(absolute).transpose()?;
    let socket = path("console-socket").map(ConsoleSocket::connect).transpose()?;
    let root = absolute(global.root.as_os_str())?;
    let bundle = bundle::load(path("bundle").map(OsStr::to_owned).as_deref())?;
    let descriptors = bundle::read_json(&directories.images.join(DESCRIPTORS), &format!("{DESCRIPTORS} of the image"))?;
    if !detach && !flags.is_on("no-subreaper")? {
        foreground::become_subreaper()?;
    }
    let directory = Directory::create(&root, &id)?;
    let state = root.join(&id);
    let restore = Restore {
        global,
        flags: &flags,
        directories: &directories,
        id: &id,
        directory: &directory,
        state,
        socket,
        descriptors,
    };
    let restored = restore.run(bundle, pid_file.as_deref());
    // These fail if the restore failed before it created them.
    let _ = unmount(restore.state.join(ROOT), UnmountFlags::DETACH);
    let _ = unlinkat(directory.dir(), ROOT, AtFlags::REMOVEDIR);
    let RestoredContainer { record, group, pidfd, terminal } = match restored {
        Ok(restored) => restored,
        Err(failure) => {
            // The first failure is the one to report.
            let _ = directory.remove();
            return Err(with_log_errors(failure, &directories.log(LOG)).within(format!("restore container {id}")));
        }
    };
    directory.unlock();
    if detach {
        return Ok(ExitCode::SUCCESS);
    }
    let code = Foreground::prepare()?.wait(&pidfd, terminal)?;
    if let Err(failure) = delete::clean(global, directory, record, Some(group)) {
        warn(global, &failure.message);
    }
    Ok(ExitCode::from(code))
}

/// The context of a restore.
struct Restore<'a> {
    global: &'a Global,
    flags: &'a Flags,
    directories: &'a Directories,
    id: &'a str,
    directory: &'a Directory,
    /// The path of `directory`.
    state: PathBuf,
    socket: Option<ConsoleSocket>,
    /// The targets of descriptors 0, 1 and 2 at the checkpoint.
    descriptors: Vec<String>,
}

struct RestoredContainer {
    record: Record,
    group: Group,
    /// The init, a child of this process.
    pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
}

impl Restore<'_> {
    fn run(&self, bundle: Bundle, pid_file: Option<&Path>) -> Result<RestoredContainer, Failure> {
        let Bundle { path, mut spec, rootfs } = bundle;
        let trees = Hierarchies::open()?;
        set_cgroup_path(&mut spec, self.id, self.global.systemd_cgroup, &trees)?;
        let hooks = spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
        let linux = spec.linux.clone().unwrap_or_default();
        external::check_cgroup_mounts(&spec, &linux, trees.layout() == cgroup::Layout::V2)?;
        if let Some(profile) = &linux.seccomp {
            // The image contains the filter of its processes; this one is for exec.
            let program = seccomp::compile(profile);
            self.directory.save_seccomp(&program.map_err(|error| Failure::new(error.to_string()))?)?;
        }
        external::make_mountpoints(&spec, &rootfs)?;
        let (options, inherited) = self.options(&spec, &rootfs)?;
        let (service, group) = self.start_service(&spec, &trees, &inherited, &rootfs)?;
        let container = ContainerSpec { spec, hooks, bundle: path, rootfs };
        let restored = self.request_restore(service, options, &group, container);
        let finished = restored.and_then(|(record, pidfd, terminal)| {
            if let Some(file) = pid_file {
                write_pid(file, record.pid)?;
            }
            Ok((record, pidfd, terminal))
        });
        match finished {
            Ok((record, pidfd, terminal)) => Ok(RestoredContainer { record, group, pidfd, terminal }),
            Err(failure) => {
                // These fail only if the cgroup does not exist anymore.
                let _ = group.kill();
                let _ = group.remove();
                Err(failure)
            }
        }
    }

    fn options(&self, spec: &oci::Spec, rootfs: &Path) -> Result<(Options, Vec<OwnedFd>), Failure> {
        let mut options = common_options(self.flags, self.directories, LOG, &spec.annotations)?;
        options.evasive_devices(true).sibling(true).root(&self.state.join(ROOT).to_string_lossy());
        if let Some(profile) = self.flags.text("lsm-profile")?.filter(|profile| !profile.is_empty()) {
            options.lsm_profile(profile);
        }
        if let Some(context) = self.flags.text("lsm-mount-context")?.filter(|context| !context.is_empty()) {
            options.lsm_mount_context(context);
        }
        let inherited = external::supply(&mut options, spec, rootfs)?;
        external::inherit_pipes(&mut options, &self.descriptors);
        Ok((options, inherited))
    }

    /// Mounts the root for CRIU and starts CRIU in the container's cgroup.
    fn start_service(
        &self,
        spec: &oci::Spec,
        trees: &Hierarchies,
        inherited: &[OwnedFd],
        rootfs: &Path,
    ) -> Result<(Service, Group), Failure> {
        let linux = spec.linux.clone().unwrap_or_default();
        let limits = Limits::from_spec(&linux.resources.unwrap_or_default())?;
        let path = linux.cgroups_path.unwrap_or_default();
        let created = mkdirat(self.directory.dir(), ROOT, Mode::from_raw_mode(0o755));
        created.map_err(|errno| Failure::io("create the root for criu", errno))?;
        mount_root(rootfs, &self.state.join(ROOT)).map_err(|errno| Failure::io("mount the root for criu", errno))?;
        let start = |joiner: &Joiner, waits| {
            let work = || {
                joiner.join_early()?;
                Ok(joiner.join_memory()?)
            };
            Service::start(&Preparation { cgroup: joiner.v2_dir(), waits, inherited, work: &work })
        };
        if self.global.systemd_cgroup {
            let unit = Unit::parse(Some(&path), self.id)?.with_annotations(&spec.annotations)?;
            let service = start(&Joiner::default(), true)?;
            let group = unit.start(trees, service.pid(), &limits)?;
            service.release();
            return Ok((service, group));
        }
        self.directory.save_cgroup_path(&path)?;
        let group = Group::create(trees, &GroupPath::parse(&path)?, &limits)?;
        let joiner = group.joiner();
        match joiner.map_err(Failure::from).and_then(|joiner| start(&joiner, false)) {
            Ok(service) => Ok((service, group)),
            Err(failure) => {
                let _ = group.remove();
                Err(failure)
            }
        }
    }

    fn request_restore(
        &self,
        service: Service,
        mut options: Options,
        group: &Group,
        container: ContainerSpec,
    ) -> Result<(Record, OwnedFd, Option<OwnedFd>), Failure> {
        service.wait_until_ready()?;
        for (controller, path) in process_cgroups(service.pid())? {
            options.cgroup_root(&controller, &path);
        }
        let ContainerSpec { spec, hooks, bundle, rootfs } = container;
        let state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: self.id.to_owned(),
            status: oci::Status::Creating,
            pid: 0,
            bundle: bundle.to_string_lossy().into_owned(),
            annotations: spec.annotations.clone(),
        };
        let (terminal, init) = (RefCell::new(None), RefCell::new(None));
        let on_notification = |notification: &Response, descriptor: Option<OwnedFd>| {
            match (notification.script.as_str(), descriptor, &self.socket) {
                ("setup-namespaces", ..) => {
                    hooks.create_runtime(&oci::State { pid: notification.pid, ..state.clone() })?;
                }
                ("orphan-pts-master", Some(master), Some(socket)) => socket.send(master.as_fd())?,
                ("orphan-pts-master", Some(master), None) => drop(terminal.replace(Some(master))),
                // The init exists and is not running yet.
                ("post-restore", ..) => {
                    let container = NewContainer {
                        id: self.id,
                        pid: notification.pid,
                        group,
                        own_keyring: false,
                        bundle: bundle.clone(),
                        rootfs: rootfs.clone(),
                    };
                    let record = launch::record(spec.clone(), container)?;
                    self.directory.save(&record)?;
                    init.replace(Some((record, open_process(notification.pid)?)));
                }
                _ => {}
            }
            Ok(())
        };
        let response = service.request(Kind::Restore, &options.request(Kind::Restore), on_notification);
        match (response, init.into_inner()) {
            (Ok(_), Some((record, pidfd))) => Ok((record, pidfd, terminal.into_inner())),
            (Ok(_), None) => Err(Failure::new("criu did not report the restored init")),
            (Err(failure), init) => {
                if let Some((_, pidfd)) = init {
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                }
                Err(failure)
            }
        }
    }
}

/// The container to restore.
struct ContainerSpec {
    spec: oci::Spec,
    hooks: Hooks,
    bundle: PathBuf,
    rootfs: PathBuf,
}

fn open_process(pid: i32) -> Result<OwnedFd, Failure> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Failure::new("criu reported process 0 as the restored init"))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Failure::io("open the restored process", errno))
}

/// Moves this process into a new mount namespace, so that mounts for CRIU do not appear on the host. Mounts and
/// unmounts of the host still propagate into it.
fn unshare_mounts() -> Result<(), Errno> {
    syscall::mount_namespace::unshare_mounts().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
}

/// Mounts a clone of the root at `at`.
fn mount_root(rootfs: &Path, at: &Path) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, rootfs, flags)?;
    move_mount(&tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Returns each controller (v2: "") with the path of the process's cgroup, from proc_pid_cgroup(5).
fn process_cgroups(pid: Pid) -> Result<Vec<(String, String)>, Failure> {
    let path = format!("/proc/{pid}/cgroup");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::io(format!("read {path}"), error))?;
    let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    Ok(lines
        .flat_map(|(controllers, path)| {
            controllers.split(',').map(|controller| (controller.to_owned(), path.to_owned())).collect::<Vec<_>>()
        })
        .collect())
}
