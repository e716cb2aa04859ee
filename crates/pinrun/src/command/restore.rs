//! `restore ID`: a container from what `checkpoint` wrote.

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
        DESCRIPTORS, explained,
        options::{Directories, FLAGS, common},
        outside,
        request::{Answer, Kind, Options},
        service::{Preparation, Service},
    },
    exit_code::ExitCode,
    failure::{Failure, warn},
    flags::{Flag, Flags, Order, switch, value},
    foreground::{self, Foreground},
    launch::{self, Made, absolute, place, write_pid},
    state::{Directory, Record},
};

const LOG: &str = "restore.log";
/// CRIU's root must be a mount whose parent is not covered.
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
    // Before anything is opened: CRIU opens it again through this process, and mounts there.
    leave_hosts_mounts().map_err(|errno| Failure::io("make a mount namespace for criu", errno))?;
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
    let asked = Asked {
        global,
        flags: &flags,
        directories: &directories,
        id: &id,
        directory: &directory,
        state,
        socket,
        descriptors,
    };
    let restored = asked.restore(bundle, pid_file.as_deref());
    // Neither is there if nothing came so far.
    let _ = unmount(asked.state.join(ROOT), UnmountFlags::DETACH);
    let _ = unlinkat(directory.dir(), ROOT, AtFlags::REMOVEDIR);
    let Restored { record, group, pidfd, terminal } = match restored {
        Ok(restored) => restored,
        Err(failure) => {
            // What failed first is what to tell.
            let _ = directory.remove();
            return Err(explained(failure, &directories.log(LOG)).within(format!("restore container {id}")));
        }
    };
    directory.unlock();
    if detach {
        return Ok(ExitCode::SUCCESS);
    }
    let code = Foreground::prepare()?.stay(&pidfd, terminal)?;
    if let Err(failure) = delete::clean(global, directory, record, Some(group)) {
        warn(global, &failure.message);
    }
    Ok(ExitCode::from(code))
}

struct Asked<'a> {
    global: &'a Global,
    flags: &'a Flags,
    directories: &'a Directories,
    id: &'a str,
    directory: &'a Directory,
    /// The directory's path.
    state: PathBuf,
    socket: Option<ConsoleSocket>,
    /// What 0, 1 and 2 were.
    descriptors: Vec<String>,
}

struct Restored {
    record: Record,
    group: Group,
    /// Of the init, a child of this process.
    pidfd: OwnedFd,
    terminal: Option<OwnedFd>,
}

impl Asked<'_> {
    fn restore(&self, bundle: Bundle, pid_file: Option<&Path>) -> Result<Restored, Failure> {
        let Bundle { path, mut spec, rootfs } = bundle;
        let trees = Hierarchies::open()?;
        place(&mut spec, self.id, self.global.systemd_cgroup, &trees)?;
        let hooks = spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
        let linux = spec.linux.clone().unwrap_or_default();
        outside::check_cgroup_mounts(&spec, &linux, trees.layout() == cgroup::Layout::V2)?;
        if let Some(profile) = &linux.seccomp {
            // The image has its own; this is for commands.
            let program = seccomp::compile(profile);
            self.directory.save_seccomp(&program.map_err(|error| Failure::new(error.to_string()))?)?;
        }
        outside::make_mountpoints(&spec, &rootfs)?;
        let (options, inherited) = self.options(&spec, &rootfs)?;
        let (service, group) = self.place_service(&spec, &trees, &inherited, &rootfs)?;
        let talked = self.converse(service, options, &group, Spec { spec, hooks, bundle: path, rootfs });
        let finished = talked.and_then(|(record, pidfd, terminal)| {
            if let Some(file) = pid_file {
                write_pid(file, record.pid)?;
            }
            Ok((record, pidfd, terminal))
        });
        match finished {
            Ok((record, pidfd, terminal)) => Ok(Restored { record, group, pidfd, terminal }),
            Err(failure) => {
                // Each fails only where the thing is gone already.
                let _ = group.kill();
                let _ = group.remove();
                Err(failure)
            }
        }
    }

    fn options(&self, spec: &oci::Spec, rootfs: &Path) -> Result<(Options, Vec<OwnedFd>), Failure> {
        let mut options = common(self.flags, self.directories, LOG, &spec.annotations)?;
        options.evasive_devices(true).sibling(true).root(&self.state.join(ROOT).to_string_lossy());
        if let Some(profile) = self.flags.text("lsm-profile")?.filter(|profile| !profile.is_empty()) {
            options.lsm_profile(profile);
        }
        if let Some(context) = self.flags.text("lsm-mount-context")?.filter(|context| !context.is_empty()) {
            options.lsm_mount_context(context);
        }
        let inherited = outside::find_all(&mut options, spec, rootfs)?;
        outside::inherit_pipes(&mut options, &self.descriptors);
        Ok((options, inherited))
    }

    /// CRIU in the container's group, with the root where it wants it.
    fn place_service(
        &self,
        spec: &oci::Spec,
        trees: &Hierarchies,
        inherited: &[OwnedFd],
        rootfs: &Path,
    ) -> Result<(Service, Group), Failure> {
        let linux = spec.linux.clone().unwrap_or_default();
        let limits = Limits::from_spec(&linux.resources.unwrap_or_default())?;
        let path = linux.cgroups_path.unwrap_or_default();
        let made = mkdirat(self.directory.dir(), ROOT, Mode::from_raw_mode(0o755));
        made.map_err(|errno| Failure::io("make the root for criu", errno))?;
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
            service.go();
            return Ok((service, group));
        }
        self.directory.note_group(&path)?;
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

    fn converse(
        &self,
        service: Service,
        mut options: Options,
        group: &Group,
        container: Spec,
    ) -> Result<(Record, OwnedFd, Option<OwnedFd>), Failure> {
        service.prepared()?;
        for (controller, path) in groups_of(service.pid())? {
            options.cgroup_root(&controller, &path);
        }
        let Spec { spec, hooks, bundle, rootfs } = container;
        let state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: self.id.to_owned(),
            status: oci::Status::Creating,
            pid: 0,
            bundle: bundle.to_string_lossy().into_owned(),
            annotations: spec.annotations.clone(),
        };
        let (terminal, init) = (RefCell::new(None), RefCell::new(None));
        let notice = |notice: &Answer, descriptor: Option<OwnedFd>| {
            match (notice.script.as_str(), descriptor, &self.socket) {
                ("setup-namespaces", ..) => hooks.create_runtime(&oci::State { pid: notice.pid, ..state.clone() })?,
                ("orphan-pts-master", Some(master), Some(socket)) => socket.send(master.as_fd())?,
                ("orphan-pts-master", Some(master), None) => drop(terminal.replace(Some(master))),
                // It is there, and does not run yet.
                ("post-restore", ..) => {
                    let made = Made {
                        id: self.id,
                        pid: notice.pid,
                        group,
                        own_keyring: false,
                        bundle: bundle.clone(),
                        rootfs: rootfs.clone(),
                    };
                    let record = launch::record(spec.clone(), made)?;
                    self.directory.save(&record)?;
                    init.replace(Some((record, open_process(notice.pid)?)));
                }
                _ => {}
            }
            Ok(())
        };
        let answer = service.ask(Kind::Restore, &options.request(Kind::Restore), notice);
        match (answer, init.into_inner()) {
            (Ok(_), Some((record, pidfd))) => Ok((record, pidfd, terminal.into_inner())),
            (Ok(_), None) => Err(Failure::new("criu did not tell of the restored init")),
            (Err(failure), init) => {
                if let Some((_, pidfd)) = init {
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                }
                Err(failure)
            }
        }
    }
}

/// What is restored.
struct Spec {
    spec: oci::Spec,
    hooks: Hooks,
    bundle: PathBuf,
    rootfs: PathBuf,
}

fn open_process(pid: i32) -> Result<OwnedFd, Failure> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Failure::new("criu tells of process 0"))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| Failure::io("open the restored process", errno))
}

/// Moves this process into a mount namespace of its own, so that nothing that is mounted for CRIU is on the host. What
/// the host mounts and unmounts still comes in.
fn leave_hosts_mounts() -> Result<(), Errno> {
    syscall::mount_namespace::unshare_mounts().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
}

/// The root as a mount of its own.
fn mount_root(rootfs: &Path, at: &Path) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, rootfs, flags)?;
    move_mount(&tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Each controller (v2: "") with the path of a process's group, from proc_pid_cgroup(5).
fn groups_of(pid: i32) -> Result<Vec<(String, String)>, Failure> {
    let path = format!("/proc/{pid}/cgroup");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::io(format!("read {path}"), error))?;
    let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    Ok(lines
        .flat_map(|(controllers, path)| {
            controllers.split(',').map(|controller| (controller.to_owned(), path.to_owned())).collect::<Vec<_>>()
        })
        .collect())
}
