//! `exec ID COMMAND…`: a command in a running container.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
};

use container::{Agent, ExecFilter, Nascent, Progress, Stdio};
use rustix::fd::AsFd;

use crate::{
    arguments::Global,
    bundle,
    console::ConsoleSocket,
    exit_code::ExitCode,
    failure::{Failure, debug},
    flags::{Flag, Flags, Order, switch, text, value},
    foreground::{self, Foreground},
    keyring,
    launch::{self, write_pid},
    preserve::Preserved,
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
    // Accepted by older callers.
    switch(&["no-subreaper"]),
];

/// Exit code of exec's own failures, as runc has it.
const FAILED: u8 = 255;

pub(crate) fn run(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    launch::protect()?;
    execute(global, arguments).map_err(|failure| failure.with_code(FAILED))
}

/// What was asked for.
struct Request {
    process: oci::Process,
    console_socket: Option<ConsoleSocket>,
    pidfd_socket: Option<ConsoleSocket>,
    pid_file: Option<PathBuf>,
    preserved: Preserved,
    detach: bool,
    /// `--cgroup`, as given.
    groups: Vec<String>,
}

fn execute(global: &Global, arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    let flags = Flags::parse(arguments, &FLAGS, Order::Strict)?;
    let preserved = Preserved::parse(&flags)?;
    let id = flags.words.first().ok_or_else(|| Failure::usage("a container id is needed"))?;
    let directory = Directory::open(&global.root, text(id)?)?;
    let record = directory.load()?;
    let running = Running::find(&record, flags.is_on("ignore-paused")?)?;
    let mut request = Request { preserved, ..request(&flags, &record)? };
    preserved.tell(&mut request.process.env);
    if record.own_keyring {
        keyring::join(global, &record.id, request.process.selinux_label.as_deref());
    }
    let foreground = if request.detach { None } else { Some(Foreground::prepare()?) };
    let (nascent, terminal) = launch(&request, &directory, &record, running)?;
    debug(global, || format!("container {}: process {} executed its program", record.id, nascent.pid));
    match foreground {
        None => Ok(ExitCode::SUCCESS),
        Some(foreground) => Ok(ExitCode::from(foreground.stay(&nascent.pidfd, terminal)?)),
    }
}

/// The container as the kernel has it, asked once.
struct Running {
    init: OwnedFd,
    group: cgroup::Group,
}

impl Running {
    fn find(record: &Record, ignore_paused: bool) -> Result<Self, Failure> {
        let init = record.init()?.ok_or_else(|| Failure::new("cannot exec in a stopped container"))?;
        let group = record.group()?;
        // A group that cannot be asked is not frozen.
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
            // The container's is for all that is executed in it.
            let affinity = process.exec_cpu_affinity.or_else(|| record.process.exec_cpu_affinity.clone());
            oci::Process { exec_cpu_affinity: affinity, ..process }
        }
        None => adapted(&record.process, flags)?,
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
        preserved: Preserved::default(),
        detach,
        groups: flags.values("cgroup").map(|word| text(word).map(str::to_owned)).collect::<Result<_, _>>()?,
    })
}

/// The container's own process with what the command line changes.
fn adapted(base: &oci::Process, flags: &Flags) -> Result<oci::Process, Failure> {
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

/// Of a user other than root execve(2) leaves only the ambient capabilities, which have to be inheritable too. Root
/// needs neither, and what is inheritable is given to programs that nobody thought of (CVE-2022-29162).
fn add_capability(process: &mut oci::Process, capability: &str) {
    let is_root = process.user.uid == 0;
    let sets = process.capabilities.get_or_insert_default();
    let of_all = [&mut sets.bounding, &mut sets.effective, &mut sets.permitted];
    let of_others = [&mut sets.inheritable, &mut sets.ambient].into_iter().filter(|_| !is_root);
    of_all.into_iter().chain(of_others).for_each(|set| set.push(capability.to_owned()));
}

/// A later value of a variable replaces the earlier.
fn set_variable(env: &mut Vec<String>, variable: &str) {
    let name = variable.split('=').next().unwrap_or(variable);
    env.retain(|known| known.split('=').next() != Some(name));
    env.push(variable.to_owned());
}

/// `uid[:gid]`
fn ids(user: &str, gid: u32) -> Result<(u32, u32), Failure> {
    let wrong = || Failure::usage(format!("invalid user {user:?}: uid or uid:gid is needed, as numbers"));
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    match user.split_once(':') {
        Some((uid, gid)) => Ok((number(uid)?, number(gid)?)),
        None => Ok((number(user)?, gid)),
    }
}

/// Until the command runs.
fn launch(
    request: &Request,
    directory: &Directory,
    record: &Record,
    running: Running,
) -> Result<(Nascent, Option<OwnedFd>), Failure> {
    let failed = |failure: Failure| failure.within("exec failed: unable to start container process");
    let Running { init, group } = running;
    let group = if request.groups.is_empty() { group } else { record.group_below(&request.groups)? };
    let relays = request.process.terminal && request.console_socket.is_none();
    let stdio = Stdio {
        own: true,
        plain_line_ends: relays && foreground::is_piped(),
        preserve: request.preserved.count,
        ..Stdio::default()
    };
    let seccomp = directory.seccomp()?;
    let target = container::Target {
        init: init.as_fd(),
        user_namespace: record.own_users,
        callers_mounts: record.hosts_mounts,
        personality: record.personality.as_ref(),
        memory_policy: record.memory_policy.as_ref(),
        keep_groups: launch::keeps_groups(&record.annotations),
    };
    let agent = record.seccomp_agent.clone().map(|[path, metadata]| Agent {
        path,
        metadata,
        state: record.state(oci::Status::Running),
    });
    let filter = seccomp.as_ref().map(|program| ExecFilter { program, agent: agent.as_ref() });
    let mut nascent = container::exec(group, target, &request.process, stdio, filter)?;
    let cloned = nascent.wait_until_cloned().map_err(Failure::from);
    let terminal = match cloned.and_then(|()| until_executed(&mut nascent, request)) {
        Ok(terminal) => terminal,
        Err(failure) => {
            launch::end(&nascent);
            return Err(failed(failure));
        }
    };
    if let Some(file) = &request.pid_file
        && let Err(failure) = write_pid(file, nascent.pid)
    {
        launch::end(&nascent);
        return Err(failure);
    }
    Ok((nascent, terminal))
}

fn until_executed(nascent: &mut Nascent, request: &Request) -> Result<Option<OwnedFd>, Failure> {
    let mut kept = None;
    loop {
        match nascent.advance()? {
            Progress::Pending => launch::wait(nascent)?,
            Progress::Executed => return Ok(kept),
            Progress::NamespacesMade => nascent.go_on()?,
            Progress::Ready { terminal } => {
                if let Some(socket) = &request.pidfd_socket {
                    socket.send(nascent.pidfd.as_fd())?;
                }
                kept = match (terminal, &request.console_socket) {
                    (Some(terminal), Some(socket)) => socket.send(terminal.as_fd()).map(|()| None)?,
                    (terminal, _) => terminal,
                };
            }
        }
    }
}
