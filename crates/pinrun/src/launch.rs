//! From a bundle to a container that is set up and waits: what `create` and `run` have in common.

mod record;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use cgroup::Hierarchies;
use container::{Inputs, Invocation, Nascent, Plan, Progress, Rootfs, Stdio, hooks::Hooks};
use rustix::{
    fd::AsFd,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use crate::{
    arguments::Global,
    bundle::{self, Bundle},
    console::ConsoleSocket,
    failure::{Failure, debug, warn, warn_each},
    flags::{Flag, Flags, Order, switch, value},
    foreground, hook_output, keyring,
    open_files::OpenFiles,
    preserve::Preserved,
    staging,
    state::{Directory, Record},
};

use record::hosts_mounts;
pub(crate) use record::{Made, record};

/// Options of both commands.
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

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: String,
    /// Whether this call ends before the container does.
    pub(crate) detach: bool,
    bundle: Option<OsString>,
    pub(crate) console_socket: Option<ConsoleSocket>,
    pidfd_socket: Option<ConsoleSocket>,
    pid_file: Option<PathBuf>,
    preserved: Preserved,
    new_keyring: bool,
    no_pivot: bool,
}

impl Request {
    pub(crate) fn parse(arguments: Vec<OsString>, more: Vec<Flag>) -> Result<(Self, Flags), Failure> {
        let known: Vec<Flag> = FLAGS.into_iter().chain(more).collect();
        let flags = Flags::parse(arguments, &known, Order::Mixed)?;
        let path = |name| flags.value(name).filter(|path| !path.is_empty());
        let socket = |path: Option<&OsStr>| path.map(ConsoleSocket::connect).transpose();
        let preserved = Preserved::parse(&flags)?;
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

/// The bundle's directory is entered before the file is written.
pub(crate) fn absolute(path: &OsStr) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(format!("find the directory of {path:?}"), error))
}

/// First of all: no container may overwrite this program on the host (CVE-2019-5736).
pub(crate) fn protect() -> Result<(), Failure> {
    let done = container::own_program::protect();
    done.map_err(|error| Failure::io("run from a program that no container can write to", error))
}

/// Who starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// This call.
    Here,
    /// Another one, over the socket.
    Another,
}

/// A container that is set up and waits, on record.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) directory: Directory,
    pub(crate) record: Record,
    pub(crate) hooks: Hooks,
    pub(crate) nascent: Nascent,
    /// Its terminal, where nobody asked for it over a socket.
    pub(crate) terminal: Option<OwnedFd>,
}

impl Launched {
    /// Takes it away again; what made that necessary is told by the caller.
    pub(crate) fn abandon(self, global: &Global) {
        abandon(self.nascent);
        self.directory.uncover_root();
        let _ = self.directory.remove();
        warn_each(global, self.hooks.poststop(&self.record.state(oci::Status::Stopped)));
    }
}

/// Makes the container; what fails leaves nothing behind.
pub(crate) fn launch(global: &Global, request: &Request, starter: Starter) -> Result<Launched, Failure> {
    let bundle = bundle::load(request.bundle.as_deref())?;
    debug(global, || format!("container {}: bundle {:?}, root {:?}", request.id, bundle.path, bundle.rootfs));
    check_terminal(&bundle, request, request.detach || starter == Starter::Another)?;
    let hooks = bundle.spec.hooks.as_ref().map(Hooks::parse).transpose()?.unwrap_or_default();
    let hooks = hooks.with_output(hook_output::open(&bundle.spec)?);
    if request.no_pivot {
        warn(global, "--no-pivot is not needed: roots on a ramdisk are entered like any other");
    }
    let directory = Directory::create(&global.root, &request.id)?;
    let made = Making { global, request, directory: &directory, hooks: &hooks }.make(bundle, starter);
    match made {
        Ok((record, nascent, terminal)) => Ok(Launched { directory, record, hooks, nascent, terminal }),
        Err(failure) => {
            directory.uncover_root();
            // What failed first is what to tell.
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

/// What making a container needs to know.
struct Making<'a> {
    global: &'a Global,
    request: &'a Request,
    directory: &'a Directory,
    hooks: &'a Hooks,
}

impl Making<'_> {
    fn make(&self, bundle: Bundle, starter: Starter) -> Result<(Record, Nascent, Option<OwnedFd>), Failure> {
        let Bundle { path, mut spec, rootfs } = bundle;
        let trees = Hierarchies::open()?;
        // For this process's short life: its end closes all at once.
        std::mem::forget(trees.clone());
        if !self.global.no_cgroup {
            place(&mut spec, &self.request.id, self.global.systemd_cgroup, &trees)?;
        }
        if let Some(process) = &mut spec.process {
            self.request.preserved.tell(&mut process.env);
        }
        let state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: self.request.id.clone(),
            status: oci::Status::Creating,
            pid: 0,
            bundle: path.to_string_lossy().into_owned(),
            annotations: spec.annotations.clone(),
        };
        let (open_files, given) = OpenFiles::raise_for(&spec)?;
        let plan = Plan::new(&given, self.inputs(&spec, rootfs.clone(), state.clone(), starter)?)?;
        plan.warnings().iter().for_each(|warning| warn(self.global, warning));
        if self.request.new_keyring {
            let label = spec.process.as_ref().and_then(|process| process.selinux_label.as_deref());
            keyring::join(self.global, &self.request.id, label);
        }
        let rdt = spec.linux.as_ref().and_then(|linux| linux.intel_rdt.clone());
        let mut nascent = container::create(&trees, plan)?;
        open_files.restore();
        let cloned = nascent.wait_until_cloned();
        debug(self.global, || {
            format!(
                "container {}: cloned process {} into cgroup {}",
                self.request.id,
                nascent.pid,
                nascent.group.path()
            )
        });
        let state = oci::State { pid: nascent.pid, ..state };
        let set_up = cloned.map_err(Failure::from).and_then(|()| self.set_up(&mut nascent, &state));
        let finished = set_up.and_then(|terminal| {
            debug(self.global, || format!("container {}: set up, waits for its start", self.request.id));
            let terminal = hand_over(self.request, &nascent, terminal)?;
            let (id, own_keyring) = (&self.request.id, self.request.new_keyring);
            let (pid, group) = (nascent.pid, &nascent.group);
            let mut record = record(spec, Made { id, pid, group, own_keyring, bundle: path, rootfs })?;
            if self.global.no_cgroup {
                record.cgroup.clear();
            }
            self.directory.save(&record)?;
            if let Some(file) = &self.request.pid_file {
                write_pid(file, nascent.pid)?;
            }
            Ok((record, terminal))
        });
        match finished {
            Ok((record, terminal)) => Ok((record, nascent, terminal)),
            Err(failure) => {
                abandon(nascent);
                let _ = rdt.map(|rdt| container::intel_rdt::remove(&rdt, &self.request.id));
                warn_each(self.global, self.hooks.poststop(&oci::State { pid: 0, ..state }));
                Err(failure)
            }
        }
    }

    /// Everything beside the spec; notes in the directory what has to be known should this process be killed.
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
        let own_place = !self.global.systemd_cgroup && !self.global.no_cgroup;
        if let Some(path) = linux.and_then(|linux| linux.cgroups_path.as_ref()).filter(|_| own_place) {
            self.directory.note_group(path)?;
        }
        if hosts_mounts(&spec.linux) {
            self.directory.note_root(&rootfs)?;
        }
        let invocation = Invocation {
            state,
            starter: if starter == Starter::Another { Some(self.directory.listen()?) } else { None },
            systemd_cgroup: self.global.systemd_cgroup,
            staging: staging::open(),
            no_cgroup: self.global.no_cgroup,
            keep_groups: keeps_groups(&spec.annotations),
            nesting: None,
            host_mounts: None,
            hook_output: hook_output::open(spec)?,
        };
        let relays = self.request.console_socket.is_none() && spec.process.as_ref().is_some_and(|p| p.terminal);
        Ok(Inputs {
            rootfs: Rootfs::Path(rootfs),
            mounts: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            stdio: Stdio {
                own: true,
                plain_line_ends: relays && foreground::is_piped(),
                preserve: self.request.preserved.count,
                ..Stdio::default()
            },
            seccomp,
            invocation,
        })
    }

    /// Until it waits for its start.
    fn set_up(&self, nascent: &mut Nascent, state: &oci::State) -> Result<Option<OwnedFd>, Failure> {
        loop {
            wait(nascent)?;
            match nascent.advance()? {
                Progress::Pending => {}
                Progress::NamespacesMade => {
                    debug(self.global, || format!("container {}: namespaces made, hooks run", self.request.id));
                    self.hooks.create_runtime(state)?;
                    nascent.go_on()?;
                }
                Progress::Ready { terminal } => return Ok(terminal),
                Progress::Executed => {
                    return Err(Failure::new("the container's process did not wait for its start"));
                }
            }
        }
    }
}

/// crun's annotation, which Podman gives for `--group-add keep-groups`.
pub(crate) fn keeps_groups(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get("run.oci.keep_original_groups").is_some_and(|value| value != "0")
}

/// Where the spec says nothing.
pub(crate) fn place(spec: &mut oci::Spec, id: &str, systemd: bool, trees: &Hierarchies) -> Result<(), Failure> {
    let linux = spec.linux.get_or_insert_default();
    let path = linux.cgroups_path.get_or_insert_default();
    if path.contains('\0') {
        return Err(Failure::new(format!("linux.cgroupsPath: {path:?} has a NUL byte")));
    }
    match (systemd, path.is_empty()) {
        (false, true) => *path = trees.place_for(id)?.as_str().to_owned(),
        (false, false) if !path.starts_with('/') => *path = trees.place_for(path)?.as_str().to_owned(),
        (true, true) => *path = format!(":pinrun:{id}"),
        _ => {}
    }
    Ok(())
}

/// Until the child has something to say.
pub(crate) fn wait(nascent: &Nascent) -> Result<(), Failure> {
    Ok(nascent.wait()?)
}

fn hand_over(request: &Request, nascent: &Nascent, terminal: Option<OwnedFd>) -> Result<Option<OwnedFd>, Failure> {
    if let Some(socket) = &request.pidfd_socket {
        socket.send(nascent.pidfd.as_fd())?;
    }
    match (terminal, &request.console_socket) {
        (Some(terminal), Some(socket)) => socket.send(terminal.as_fd()).map(|()| None),
        (terminal, _) => Ok(terminal),
    }
}

/// Beside and renamed: who waits for the file must not read half of it.
pub(crate) fn write_pid(file: &std::path::Path, pid: i32) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = file.with_file_name(format!(".{name}"));
    let written = std::fs::write(&beside, pid.to_string()).and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| Failure::io(format!("write the pid file {file:?}"), error))
}

/// Ends a container that did not come to be, and its group.
pub(crate) fn abandon(nascent: Nascent) {
    end(&nascent);
    // Each fails only where the thing is gone already; what failed first is what the caller tells.
    let _ = nascent.group.kill();
    let _ = nascent.group.remove();
}

/// Ends a process that did not come to its program, and reaps it.
pub(crate) fn end(nascent: &Nascent) {
    // Each fails only where the process is gone already.
    let _ = pidfd_send_signal(&nascent.pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(nascent.pidfd.as_fd()), WaitIdOptions::EXITED);
}
