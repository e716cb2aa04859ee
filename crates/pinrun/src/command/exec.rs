//! `exec ID COMMAND…`: executes a process in a running container.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use container::{ContainerSetup, ExecFilter, Progress, SeccompAgent, Stdio};
use rustix::fd::AsFd;

use crate::{
    arguments::Global,
    bundle,
    console::ConsoleSocket,
    exit_code::ExitCode,
    failure::Failure,
    flags::{Flag, Flags, Order, switch, text, value},
    foreground::{self, Foreground},
    keyring,
    launch::{self, write_pid},
    log::debug,
    preserve::PreservedFds,
    state::{Directory, Record},
};

const FLAGS: [Flag; 18] = [
    value(&["console-socket"]),
    value(&["pidfd-socket"]),
    value(&["cwd"]),
    value(&["env", "e"]),
    switch(&["tty", "t"]),
    value(&["user", "u"]),
    value(&["additional-gids", "g"]),
    value(&["process", "p"]),
    switch(&["detach", "d"]),
    value(&["pid-file"]),
    value(&["process-label"]),
    value(&["apparmor"]),
    switch(&["no-new-privs"]),
    value(&["cap", "c"]),
    value(&["preserve-fds"]),
    value(&["cgroup"]),
    switch(&["ignore-paused"]),
    // Passed by older callers and ignored.
    switch(&["no-subreaper"]),
];

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    execute(global, arguments).map_err(Failure::in_exec)
}

/// The parsed options.
struct Request {
    process: oci::Process,
    console_socket: Option<ConsoleSocket>,
    pidfd_socket: Option<ConsoleSocket>,
    pid_file: Option<PathBuf>,
    preserved: PreservedFds,
    detach: bool,
    /// The values of `--cgroup`.
    groups: Vec<String>,
}

fn execute(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &FLAGS, Order::Strict)?;
    let preserved = PreservedFds::parse(&flags)?;
    let id = flags.words.first().ok_or_else(|| Failure::usage("a container id is required"))?;
    let directory = Directory::open(&global.root, text(id)?)?;
    let record = directory.load()?;
    let running = RunningContainer::open(&record, flags.is_on("ignore-paused")?)?;
    let mut request = Request { preserved, ..request(&flags, &record)? };
    preserved.set_activation(&mut request.process.env);
    if record.own_keyring {
        keyring::join(global, &record.id, request.process.selinux_label.as_deref());
    }
    let foreground = if request.detach { None } else { Some(Foreground::prepare()?) };
    let (setup, terminal) = launch(&request, &directory, &record, running)?;
    debug(global, || format!("container {}: process {} executed its program", record.id, setup.pid));
    match foreground {
        None => Ok(ExitCode::SUCCESS),
        Some(foreground) => Ok(ExitCode::from(foreground.wait(&setup.pidfd, terminal)?)),
    }
}

/// The init and the cgroup of a running container.
struct RunningContainer {
    init: OwnedFd,
    group: cgroup::Group,
}

impl RunningContainer {
    fn open(record: &Record, ignore_paused: bool) -> Result<Self, Failure> {
        let init = record.init()?.ok_or_else(|| Failure::new("cannot exec in a stopped container"))?;
        let group = record.group()?;
        // A cgroup whose state cannot be read counts as not frozen.
        if !ignore_paused && group.is_frozen().unwrap_or(false) {
            return Err(Failure::new("cannot exec in a paused container (use --ignore-paused to override)"));
        }
        Ok(Self { init, group })
    }
}

fn request(flags: &Flags, record: &Record) -> Result<Request, Failure> {
    let path = |name| flags.value(name).filter(|path| !path.is_empty());
    let socket = |path: Option<&OsStr>| path.map(ConsoleSocket::connect).transpose();
    let detach = flags.is_on("detach")?;
    let process = match path("process") {
        Some(file) => {
            let process: oci::Process = bundle::read_json(file.as_ref(), &format!("process {file:?}"))?;
            // execCPUAffinity of the container applies to every process that is executed in it.
            let affinity = process.exec_cpu_affinity.or_else(|| record.process.exec_cpu_affinity.clone());
            oci::Process { exec_cpu_affinity: affinity, ..process }
        }
        None => from_flags(&record.process, flags)?,
    };
    let console_socket = socket(path("console-socket"))?;
    match (process.terminal, &console_socket) {
        (true, None) if detach => {
            return Err(Failure::new("cannot allocate tty if runc will detach without setting console socket"));
        }
        (false, Some(_)) => {
            return Err(Failure::new("cannot use console socket if runc will not detach or allocate tty"));
        }
        _ => {}
    }
    Ok(Request {
        process,
        console_socket,
        pidfd_socket: socket(path("pidfd-socket"))?,
        pid_file: path("pid-file").map(PathBuf::from),
        preserved: PreservedFds::default(),
        detach,
        groups: flags.values("cgroup").map(|word| text(word).map(str::to_owned)).collect::<Result<_, _>>()?,
    })
}

/// Returns the process of the container with the changes of the command line.
fn from_flags(base: &oci::Process, flags: &Flags) -> Result<oci::Process, Failure> {
    let mut process = oci::Process { terminal: flags.is_on("tty")?, ..base.clone() };
    process.args = flags.words[1..].iter().map(|word| text(word).map(str::to_owned)).collect::<Result<_, _>>()?;
    if process.args.is_empty() {
        return Err(Failure::usage("process args cannot be empty: name the command after the container's id"));
    }
    for variable in flags.values("env") {
        set_variable(&mut process.env, text(variable)?);
    }
    if let Some(cwd) = flags.text("cwd")?.filter(|cwd| !cwd.is_empty()) {
        process.cwd = cwd.to_owned();
    }
    if let Some(user) = flags.text("user")?.filter(|user| !user.is_empty()) {
        (process.user.uid, process.user.gid) = ids(user, process.user.gid)?;
    }
    for gid in flags.values("additional-gids") {
        let gid = text(gid)?;
        let wrong = || Failure::usage(format!("invalid additional gid {gid:?}"));
        process.user.additional_gids.push(gid.parse().map_err(|_| wrong())?);
    }
    if let Some(label) = flags.text("process-label")?.filter(|label| !label.is_empty()) {
        process.selinux_label = Some(label.to_owned());
    }
    if let Some(profile) = flags.text("apparmor")?.filter(|profile| !profile.is_empty()) {
        process.apparmor_profile = Some(profile.to_owned());
    }
    process.no_new_privileges |= flags.is_on("no-new-privs")?;
    for capability in flags.values("cap") {
        add_capability(&mut process, text(capability)?);
    }
    Ok(process)
}

/// Adds a capability. For a user other than root execve(2) keeps only ambient capabilities, which must be inheritable,
/// too. Root needs neither, and inheritable capabilities would be passed to programs with file capabilities
/// (CVE-2022-29162).
fn add_capability(process: &mut oci::Process, capability: &str) {
    let is_root = process.user.uid == 0;
    let sets = process.capabilities.get_or_insert_default();
    let common = [&mut sets.bounding, &mut sets.effective, &mut sets.permitted];
    let non_root = [&mut sets.inheritable, &mut sets.ambient].into_iter().filter(|_| !is_root);
    common.into_iter().chain(non_root).for_each(|set| set.push(capability.to_owned()));
}

/// Sets a variable, replacing an earlier value.
fn set_variable(env: &mut Vec<String>, variable: &str) {
    let name = variable.split('=').next().unwrap_or(variable);
    env.retain(|known| known.split('=').next() != Some(name));
    env.push(variable.to_owned());
}

/// Parses `uid[:gid]`.
fn ids(user: &str, gid: u32) -> Result<(u32, u32), Failure> {
    let wrong = || Failure::usage(format!("invalid user {user:?}: must be a numeric UID or UID:GID"));
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    match user.split_once(':') {
        Some((uid, gid)) => Ok((number(uid)?, number(gid)?)),
        None => Ok((number(user)?, gid)),
    }
}

/// Clones the process and waits until it has executed its program.
fn launch(
    request: &Request,
    directory: &Directory,
    record: &Record,
    running: RunningContainer,
) -> Result<(ContainerSetup, Option<OwnedFd>), Failure> {
    let failed = |failure: Failure| failure.within("exec failed: unable to start container process");
    let RunningContainer { init, group } = running;
    let group = if request.groups.is_empty() { group } else { record.group_below(&request.groups)? };
    let relays = request.process.terminal && request.console_socket.is_none();
    let stdio = Stdio {
        inherit: true,
        raw_newlines: relays && foreground::is_piped(),
        preserve_fds: request.preserved.count,
        ..Stdio::default()
    };
    let seccomp = directory.seccomp()?;
    let target = container::Target {
        init: init.as_fd(),
        user_namespace: record.own_users,
        callers_mount_namespace: record.hosts_mounts,
        personality: record.personality.as_ref(),
        memory_policy: record.memory_policy.as_ref(),
        keep_groups: launch::keeps_groups(&record.annotations),
    };
    let agent = record.seccomp_agent.clone().map(|[path, metadata]| SeccompAgent {
        path,
        metadata,
        state: record.state(oci::Status::Running),
    });
    let filter = seccomp.as_ref().map(|program| ExecFilter { program, agent: agent.as_ref() });
    let mut setup = container::exec(group, target, &request.process, stdio, filter)?;
    let cloned = setup.wait_until_cloned().map_err(Failure::from);
    let terminal = match cloned.and_then(|()| wait_until_executed(&mut setup, request)) {
        Ok(terminal) => terminal,
        Err(failure) => {
            launch::kill(&setup);
            return Err(failed(failure));
        }
    };
    if let Some(file) = &request.pid_file
        && let Err(failure) = write_pid(file, setup.pid.as_raw_pid())
    {
        launch::kill(&setup);
        return Err(failure);
    }
    Ok((setup, terminal))
}

fn wait_until_executed(setup: &mut ContainerSetup, request: &Request) -> Result<Option<OwnedFd>, Failure> {
    let mut relayed_terminal = None;
    loop {
        match setup.advance()? {
            Progress::Pending => launch::wait(setup)?,
            Progress::Executed => return Ok(relayed_terminal),
            Progress::NamespacesCreated => setup.continue_setup()?,
            Progress::Ready { terminal } => {
                if let Some(socket) = &request.pidfd_socket {
                    socket.send(setup.pidfd.as_fd())?;
                }
                relayed_terminal = match (terminal, &request.console_socket) {
                    (Some(terminal), Some(socket)) => socket.send(terminal.as_fd()).map(|()| None)?,
                    (terminal, _) => terminal,
                };
            }
        }
    }
}
