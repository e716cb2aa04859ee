//! Creates a container from a bundle, up to the point where it waits for its start: common to `create` and `run`.

mod record;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use cgroup::Hierarchies;
use container::{ContainerSetup, Inputs, Invocation, Plan, Progress, Rootfs, Stdio, hooks::Hooks};
use rustix::{
    fd::AsFd,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use crate::{
    arguments::Global,
    bundle::{self, Bundle},
    console::ConsoleSocket,
    failure::Failure,
    flags::{Flag, Flags, Order, switch, value},
    foreground, hook_output, keyring,
    log::{debug, warn, warn_each},
    module,
    open_files::OpenFiles,
    preserve::PreservedFds,
    staging,
    state::{Directory, Record},
};

use record::uses_caller_mounts;
pub(crate) use record::{NewContainer, record};

/// The options of both commands.
pub(crate) const FLAGS: [Flag; 8] = [
    value(&["bundle", "b"]),
    value(&["console-socket"]),
    value(&["pidfd-socket"]),
    value(&["pid-file"]),
    switch(&["no-pivot"]),
    switch(&["no-new-keyring"]),
    value(&["preserve-fds"]),
    switch(&["no-subreaper"]),
];

/// The parsed options of `create` or `run`.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: String,
    /// Whether this call returns while the container is running.
    pub(crate) detach: bool,
    bundle: Option<OsString>,
    pub(crate) console_socket: Option<ConsoleSocket>,
    pidfd_socket: Option<ConsoleSocket>,
    pid_file: Option<PathBuf>,
    preserved: PreservedFds,
    new_keyring: bool,
    no_pivot: bool,
}

impl Request {
    pub(crate) fn parse(arguments: Vec<OsString>, more: Vec<Flag>) -> Result<(Self, Flags), Failure> {
        let known: Vec<Flag> = FLAGS.into_iter().chain(more).collect();
        let flags = Flags::parse(arguments, &known, Order::Mixed)?;
        let path = |name| flags.value(name).filter(|path| !path.is_empty());
        let socket = |path: Option<&OsStr>| path.map(ConsoleSocket::connect).transpose();
        let preserved = PreservedFds::parse(&flags)?;
        let request = Self {
            id: flags.id()?.to_owned(),
            detach: flags.is_on("detach")?,
            bundle: path("bundle").map(OsStr::to_owned),
            console_socket: socket(path("console-socket"))?,
            pidfd_socket: socket(path("pidfd-socket"))?,
            pid_file: path("pid-file").map(absolute).transpose()?,
            preserved,
            new_keyring: !flags.is_on("no-new-keyring")?,
            no_pivot: flags.is_on("no-pivot")?,
        };
        Ok((request, flags))
    }
}

/// Makes a path absolute: the file is used after this process has changed to the bundle's directory.
pub(crate) fn absolute(path: &OsStr) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(format!("find the directory of {path:?}"), error))
}

/// Protects this program's file on the host from being overwritten by a container (CVE-2019-5736). To be called first.
pub(crate) fn protect() -> Result<(), Failure> {
    let protected = container::self_exe::protect();
    protected.map_err(|error| Failure::io("protect the program from containers: execute a read-only clone", error))
}

/// Which call starts the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// This call.
    ThisCall,
    /// A later call of `start`, over the start socket.
    LaterCall,
}

/// A container that is set up, has a record, and waits for its start.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) directory: Directory,
    pub(crate) record: Record,
    pub(crate) hooks: Hooks,
    pub(crate) setup: ContainerSetup,
    /// The master side of its terminal, unless it was sent to the console socket.
    pub(crate) terminal: Option<OwnedFd>,
}

impl Launched {
    /// Kills and removes the container. The caller reports the error that made this necessary.
    pub(crate) fn abandon(self, global: &Global) {
        abandon(self.setup);
        self.directory.detach_root();
        let _ = self.directory.remove();
        warn_each(global, self.hooks.poststop(&self.record.state(oci::Status::Stopped)));
    }
}

/// Creates the container. A failure leaves nothing behind.
pub(crate) fn launch(global: &Global, request: &Request, starter: Starter) -> Result<Launched, Failure> {
    let bundle = bundle::load(request.bundle.as_deref())?;
    debug(global, || format!("container {}: bundle {:?}, root {:?}", request.id, bundle.path, bundle.rootfs));
    check_terminal(&bundle, request, request.detach || starter == Starter::LaterCall)?;
    let hooks = bundle.spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
    let hooks = hooks.with_output(hook_output::open(&bundle.spec)?);
    if request.no_pivot {
        warn(global, "--no-pivot is not needed: roots on a ramdisk are entered like any other");
    }
    let directory = Directory::create(&global.root, &request.id)?;
    let creation = Creation { global, request, directory: &directory, hooks: &hooks };
    match creation.run(bundle, starter) {
        Ok((record, setup, terminal)) => Ok(Launched { directory, record, hooks, setup, terminal }),
        Err(failure) => {
            directory.detach_root();
            // The first failure is the one to report.
            let _ = directory.remove();
            Err(failure)
        }
    }
}

fn check_terminal(bundle: &Bundle, request: &Request, detach: bool) -> Result<(), Failure> {
    let terminal = bundle.spec.process.as_ref().is_some_and(|process| process.terminal);
    match (terminal, &request.console_socket) {
        (true, None) if detach => {
            Err(Failure::new("cannot allocate tty if runc will detach without setting console socket"))
        }
        (false, Some(_)) => Err(Failure::new("cannot use console socket if runc will not detach or allocate tty")),
        _ => Ok(()),
    }
}

/// The context of the creation of a container.
struct Creation<'a> {
    global: &'a Global,
    request: &'a Request,
    directory: &'a Directory,
    hooks: &'a Hooks,
}

impl Creation<'_> {
    fn run(&self, bundle: Bundle, starter: Starter) -> Result<(Record, ContainerSetup, Option<OwnedFd>), Failure> {
        let Bundle { path, mut spec, rootfs } = bundle;
        let trees = Hierarchies::open()?;
        // This process is short-lived: leave closing the descriptors of the cgroup trees to its exit.
        std::mem::forget(trees.clone());
        if !self.global.no_cgroup {
            set_cgroup_path(&mut spec, &self.request.id, self.global.systemd_cgroup, &trees)?;
        }
        if let Some(process) = &mut spec.process {
            self.request.preserved.set_activation(&mut process.env);
        }
        let interpreter = module::interpreter(&spec, &rootfs)?;
        if interpreter.is_some() {
            module::hide_process_files(&mut spec);
        }
        let state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: self.request.id.clone(),
            status: oci::Status::Creating,
            pid: 0,
            bundle: path.to_string_lossy().into_owned(),
            annotations: spec.annotations.clone(),
        };
        let (open_files, effective_spec) = OpenFiles::raise_for(&spec)?;
        let inputs = self.inputs(&spec, rootfs.clone(), state.clone(), starter)?;
        let plan = Plan::new(&effective_spec, Inputs { interpreter, ..inputs })?;
        plan.warnings().iter().for_each(|warning| warn(self.global, warning));
        if self.request.new_keyring {
            let label = spec.process.as_ref().and_then(|process| process.selinux_label.as_deref());
            keyring::join(self.global, &self.request.id, label);
        }
        let rdt = spec.linux.as_ref().and_then(|linux| linux.intel_rdt.clone());
        let mut setup = container::create(&trees, plan)?;
        open_files.restore();
        let cloned = setup.wait_until_cloned();
        debug(self.global, || {
            format!("container {}: cloned process {} into cgroup {}", self.request.id, setup.pid, setup.group.path())
        });
        let state = oci::State { pid: setup.pid.as_raw_pid(), ..state };
        let set_up = cloned.map_err(Failure::from).and_then(|()| self.set_up(&mut setup, &state));
        let finished = set_up.and_then(|terminal| {
            debug(self.global, || format!("container {}: set up, waiting for start", self.request.id));
            let terminal = hand_over(self.request, &setup, terminal)?;
            let (id, own_keyring) = (&self.request.id, self.request.new_keyring);
            let (pid, group) = (setup.pid.as_raw_pid(), &setup.group);
            let mut record = record(spec, NewContainer { id, pid, group, own_keyring, bundle: path, rootfs })?;
            if self.global.no_cgroup {
                record.cgroup.clear();
            }
            self.directory.save(&record)?;
            if let Some(file) = &self.request.pid_file {
                write_pid(file, pid)?;
            }
            Ok((record, terminal))
        });
        match finished {
            Ok((record, terminal)) => Ok((record, setup, terminal)),
            Err(failure) => {
                abandon(setup);
                let _ = rdt.map(|rdt| container::intel_rdt::remove(&rdt, &self.request.id));
                warn_each(self.global, self.hooks.poststop(&oci::State { pid: 0, ..state }));
                Err(failure)
            }
        }
    }

    /// Returns the inputs other than the spec, and saves in the directory what a later call needs if this process is
    /// killed.
    fn inputs(
        &self,
        spec: &oci::Spec,
        rootfs: PathBuf,
        state: oci::State,
        starter: Starter,
    ) -> Result<Inputs, Failure> {
        let linux = spec.linux.as_ref();
        let seccomp = match linux.and_then(|linux| linux.seccomp.as_ref()) {
            Some(profile) => {
                let program = seccomp::compile(profile).map_err(|error| Failure::new(error.to_string()))?;
                self.directory.save_seccomp(&program)?;
                Some(program)
            }
            None => None,
        };
        let creates_cgroup = !self.global.systemd_cgroup && !self.global.no_cgroup;
        if let Some(path) = linux.and_then(|linux| linux.cgroups_path.as_ref()).filter(|_| creates_cgroup) {
            self.directory.save_cgroup_path(path)?;
        }
        if uses_caller_mounts(&spec.linux) {
            self.directory.save_root_mount(&rootfs)?;
        }
        let invocation = Invocation {
            state,
            start_listener: if starter == Starter::LaterCall { Some(self.directory.listen()?) } else { None },
            systemd_cgroup: self.global.systemd_cgroup,
            staging: staging::open(),
            no_cgroup: self.global.no_cgroup,
            keep_groups: keeps_groups(&spec.annotations),
            nesting: None,
            host_mount_namespace: None,
            hook_output: hook_output::open(spec)?,
        };
        let relays = self.request.console_socket.is_none() && spec.process.as_ref().is_some_and(|p| p.terminal);
        Ok(Inputs {
            rootfs: Rootfs::Path(rootfs),
            mounts: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            stdio: Stdio {
                inherit: true,
                raw_newlines: relays && foreground::is_piped(),
                preserve_fds: self.request.preserved.count,
                ..Stdio::default()
            },
            seccomp,
            interpreter: None,
            invocation,
        })
    }

    /// Runs the setup until the container waits for its start. Returns its terminal.
    fn set_up(&self, setup: &mut ContainerSetup, state: &oci::State) -> Result<Option<OwnedFd>, Failure> {
        loop {
            wait(setup)?;
            match setup.advance()? {
                Progress::Pending => {}
                Progress::NamespacesCreated => {
                    debug(self.global, || format!("container {}: namespaces created, running hooks", self.request.id));
                    self.hooks.create_runtime(state)?;
                    setup.continue_setup()?;
                }
                Progress::Ready { terminal } => return Ok(terminal),
                Progress::Executed => {
                    return Err(Failure::new("the container's process did not wait for its start"));
                }
            }
        }
    }
}

/// Reports whether crun's annotation is set which Podman passes for `--group-add keep-groups`.
pub(crate) fn keeps_groups(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get("run.oci.keep_original_groups").is_some_and(|value| value != "0")
}

/// Completes `linux.cgroupsPath`: an empty path gets a default, a relative one becomes absolute.
pub(crate) fn set_cgroup_path(
    spec: &mut oci::Spec,
    id: &str,
    systemd: bool,
    trees: &Hierarchies,
) -> Result<(), Failure> {
    let linux = spec.linux.get_or_insert_default();
    let path = linux.cgroups_path.get_or_insert_default();
    if path.contains('\0') {
        return Err(Failure::new(format!("linux.cgroupsPath: {path:?} contains a NUL byte")));
    }
    match (systemd, path.is_empty()) {
        (false, true) => *path = trees.resolve(id)?.as_str().to_owned(),
        (false, false) if !path.starts_with('/') => *path = trees.resolve(path)?.as_str().to_owned(),
        (true, true) => *path = format!(":pinrun:{id}"),
        _ => {}
    }
    Ok(())
}

/// Waits until the child has sent a message or exited.
pub(crate) fn wait(setup: &ContainerSetup) -> Result<(), Failure> {
    Ok(setup.wait()?)
}

fn hand_over(request: &Request, setup: &ContainerSetup, terminal: Option<OwnedFd>) -> Result<Option<OwnedFd>, Failure> {
    if let Some(socket) = &request.pidfd_socket {
        socket.send(setup.pidfd.as_fd())?;
    }
    match (terminal, &request.console_socket) {
        (Some(terminal), Some(socket)) => socket.send(terminal.as_fd()).map(|()| None),
        (terminal, _) => Ok(terminal),
    }
}

/// Writes the pid file atomically, by rename: a process that waits for the file must not read a part of it.
pub(crate) fn write_pid(file: &std::path::Path, pid: i32) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = file.with_file_name(format!(".{name}"));
    let written = std::fs::write(&temporary, pid.to_string()).and_then(|()| std::fs::rename(&temporary, file));
    written.map_err(|error| Failure::io(format!("write the pid file {file:?}"), error))
}

/// Kills a container whose creation or start failed, and removes its cgroup.
pub(crate) fn abandon(setup: ContainerSetup) {
    kill(&setup);
    // These fail if the cgroup does not exist anymore. The caller reports the first failure.
    let _ = setup.group.kill();
    let _ = setup.group.remove();
}

/// Kills and reaps a process that has not executed its program.
pub(crate) fn kill(setup: &ContainerSetup) {
    // These fail only if the process does not exist anymore.
    let _ = pidfd_send_signal(&setup.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(setup.pidfd.as_fd()), WaitIdOptions::EXITED);
}
