//! `hooks`: programs at points of a container's life.
//!
//! | hook | who runs it | when | where |
//! |---|---|---|---|
//! | prestart, createRuntime | the runtime, at [`Progress::NamespacesMade`](crate::Progress) | mounts are made, the host's root is still there | the runtime's namespaces |
//! | createContainer | the container's child | right after those | the container's namespaces, the host's files |
//! | startContainer | the container's child | after start, before execve | inside the container |
//! | poststart, poststop | the runtime | after start; after delete | the runtime's namespaces |
//!
//! Source: runtime-spec config.md, "POSIX-platform Hooks"; runtime.md, "Lifecycle".

use std::{
    ffi::CString,
    io::{Read, Seek, Write},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid},
};

use crate::{Error, error::During, text::c_string};

/// Most of a failed hook's output that its error shows.
const OUTPUT_MAX: u64 = 4096;

/// All hooks of a container, checked.
#[derive(Debug, Default)]
pub struct Hooks {
    prestart: Vec<Hook>,
    create_runtime: Vec<Hook>,
    create_container: Vec<Hook>,
    start_container: Vec<Hook>,
    poststart: Vec<Hook>,
    poststop: Vec<Hook>,
}

#[derive(Debug)]
struct Hook {
    /// `hooks.createRuntime[0]`
    field: String,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    timeout: Option<Duration>,
}

/// When hooks are run by the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// prestart and createRuntime: the first that fails ends it.
    Create,
    /// poststart: each is run.
    Started,
    /// poststop: each is run.
    Stopped,
}

impl Hooks {
    /// All of a moment, for who can be told to give up: when nobody holds the other end of `caller` any more, what runs is
    /// killed and the rest is left out. `state` has the container's pid.
    ///
    /// # Errors
    /// Those that failed; of [`Moment::Create`] the first.
    pub fn run(&self, moment: Moment, state: &oci::State, caller: BorrowedFd<'_>) -> Result<(), Vec<Error>> {
        let steps: &[(&[Hook], oci::Status)] = match moment {
            Moment::Create => &[(&self.prestart, oci::Status::Created), (&self.create_runtime, oci::Status::Creating)],
            Moment::Started => &[(&self.poststart, oci::Status::Running)],
            Moment::Stopped => &[(&self.poststop, oci::Status::Stopped)],
        };
        let mut failed = Vec::new();
        for (hook, status) in steps.iter().flat_map(|(hooks, status)| hooks.iter().map(|hook| (hook, *status))) {
            failed.extend(hook.run_for(state, status, Some(caller)).err());
            if moment == Moment::Create && !failed.is_empty() {
                break;
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// Whether there are any for this moment.
    pub fn has(&self, moment: Moment) -> bool {
        match moment {
            Moment::Create => self.in_runtime(),
            Moment::Started => !self.poststart.is_empty(),
            Moment::Stopped => !self.poststop.is_empty(),
        }
    }

    /// Checks them: absolute paths, timeouts of more than nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the hook.
    pub fn parse(hooks: &oci::Hooks) -> Result<Self, Error> {
        Ok(Self {
            prestart: parse("prestart", &hooks.prestart)?,
            create_runtime: parse("createRuntime", &hooks.create_runtime)?,
            create_container: parse("createContainer", &hooks.create_container)?,
            start_container: parse("startContainer", &hooks.start_container)?,
            poststart: parse("poststart", &hooks.poststart)?,
            poststop: parse("poststop", &hooks.poststop)?,
        })
    }

    /// prestart and createRuntime, at [`Progress::NamespacesMade`](crate::Progress). `state` has the container's pid.
    ///
    /// # Errors
    /// The first hook that failed; the container is to be taken away.
    pub fn create_runtime(&self, state: &oci::State) -> Result<(), Error> {
        // Of old a part of start, and its hooks (and the validation of runtime-tools) still want to read so.
        run_all(&self.prestart, state, oci::Status::Created)?;
        run_all(&self.create_runtime, state, oci::Status::Creating)
    }

    /// poststart. Every hook is run; what failed is worth a warning.
    pub fn poststart(&self, state: &oci::State) -> Vec<Error> {
        run_each(&self.poststart, state, oci::Status::Running)
    }

    /// poststop. Every hook is run; what failed is worth a warning.
    pub fn poststop(&self, state: &oci::State) -> Vec<Error> {
        run_each(&self.poststop, state, oci::Status::Stopped)
    }

    pub(crate) fn create_container(&self, state: &oci::State) -> Result<(), Error> {
        run_all(&self.create_container, state, oci::Status::Creating)
    }

    pub(crate) fn start_container(&self, state: &oci::State) -> Result<(), Error> {
        run_all(&self.start_container, state, oci::Status::Created)
    }

    /// Whether the runtime has hooks to run while the child waits.
    pub(crate) fn in_runtime(&self) -> bool {
        !self.prestart.is_empty() || !self.create_runtime.is_empty()
    }

    /// Whether the host's files must be there in the container's mount namespace.
    pub(crate) fn before_pivot(&self) -> bool {
        self.in_runtime() || !self.create_container.is_empty()
    }

    pub(crate) fn at_start(&self) -> bool {
        !self.start_container.is_empty()
    }
}

fn parse(kind: &str, hooks: &[oci::Hook]) -> Result<Vec<Hook>, Error> {
    (0..).zip(hooks).map(|(index, hook)| parse_one(format!("hooks.{kind}[{index}]"), hook)).collect::<Result<_, _>>()
}

fn parse_one(field: String, hook: &oci::Hook) -> Result<Hook, Error> {
    if !hook.path.starts_with('/') {
        return Err(Error::invalid(format!("{field}.path: {:?} is not absolute", hook.path)));
    }
    let timeout = match hook.timeout {
        None => None,
        Some(seconds @ 1..) => Some(Duration::from_secs(seconds.unsigned_abs())),
        Some(seconds) => return Err(Error::invalid(format!("{field}.timeout: {seconds} is not more than 0"))),
    };
    let strings = |name: &str, strings: &[String]| {
        strings.iter().map(|string| c_string(&format!("{field}.{name}"), string)).collect::<Result<Vec<_>, _>>()
    };
    let path = c_string(&field, &hook.path)?;
    let mut arguments = strings("args", &hook.args)?;
    if arguments.is_empty() {
        arguments.push(path.clone());
    }
    Ok(Hook { path, arguments, environment: strings("env", &hook.env)?, timeout, field })
}

fn run_all(hooks: &[Hook], state: &oci::State, status: oci::Status) -> Result<(), Error> {
    hooks.iter().try_for_each(|hook| hook.run(state, status))
}

fn run_each(hooks: &[Hook], state: &oci::State, status: oci::Status) -> Vec<Error> {
    hooks.iter().filter_map(|hook| hook.run(state, status).err()).collect()
}

impl Hook {
    fn run(&self, state: &oci::State, status: oci::Status) -> Result<(), Error> {
        self.run_for(state, status, None)
    }

    fn run_for(&self, state: &oci::State, status: oci::Status, caller: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.try_run(&oci::State { status, ..state.clone() }, caller)
            .map_err(|error| error.within(format!("run {} ({:?})", self.field, self.path)))
    }

    fn try_run(&self, state: &oci::State, caller: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let input = self.input(state)?;
        let output = memory_file(c"hook-output")?;
        let files = [input.as_fd(), output.as_fd(), output.as_fd()];
        let pid = syscall::spawn::spawn(&self.path, &self.arguments, &self.environment, &files)
            .map_err(|error| Error::system("start it", error))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).during(|| "open its pidfd")?;
        let waited = self.wait(&pidfd, caller);
        if !matches!(waited, Ok(Waited::Ended)) {
            // It leads a group of its own: what it started goes with it.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).during(|| "wait for its end")?;
        match waited? {
            Waited::Ended => {}
            Waited::Late => {
                let seconds = self.timeout.unwrap_or_default().as_secs();
                return Err(Error::system(format!("it took more than {seconds} s and was killed"), Errno::TIMEDOUT));
            }
            Waited::Alone => return Err(Error::system("nobody waits for it any more; it was killed", Errno::CANCELED)),
        }
        let how = match ended.and_then(|status| status.exit_status().map(Ok).or(status.terminating_signal().map(Err))) {
            Some(Ok(0)) => return Ok(()),
            Some(Ok(code)) => format!("exit code {code}"),
            Some(Err(signal)) => format!("ended by signal {signal}"),
            None => "ended in an unknown way".to_owned(),
        };
        Err(Error { kind: crate::ErrorKind::System, message: format!("{how}{}", said(output)) })
    }

    /// The state as JSON, to be read from standard input: a file in memory, so that a hook that reads nothing holds nobody
    /// up.
    fn input(&self, state: &oci::State) -> Result<std::fs::File, Error> {
        let text =
            serde_json::to_vec(state).map_err(|error| Error::system("write the state", std::io::Error::from(error)))?;
        let mut file = std::fs::File::from(memory_file(c"hook-state")?);
        file.write_all(&text).and_then(|()| file.rewind()).map_err(|error| Error::system("write the state", error))?;
        Ok(file)
    }

    /// Until it ends, its time is over, or nobody wants it any more.
    fn wait(&self, pidfd: &OwnedFd, caller: Option<BorrowedFd<'_>>) -> Result<Waited, Error> {
        let timeout = self.timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 });
        let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
        // HUP comes unasked.
        fds.extend(caller.map(|caller| PollFd::from_borrowed_fd(caller, PollFlags::empty())));
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(Waited::Late),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Waited::Ended),
                Ok(_) => return Ok(Waited::Alone),
                // No signal is handled by who runs hooks; a stop and go on may interrupt.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("wait for its end", errno)),
            }
        }
    }
}

/// What ended the waiting for a hook.
enum Waited {
    Ended,
    Late,
    Alone,
}

fn memory_file(name: &std::ffi::CStr) -> Result<OwnedFd, Error> {
    memfd_create(name, MemfdFlags::CLOEXEC).during(|| "make a file in memory")
}

/// The beginning of what it wrote.
fn said(output: OwnedFd) -> String {
    let mut file = std::fs::File::from(output);
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(OUTPUT_MAX).read_to_end(&mut text));
    match (read, String::from_utf8_lossy(&text).trim()) {
        (Err(_), _) | (_, "") => String::new(),
        (_, text) => format!(": {text}"),
    }
}

/// The pid that the runtime knows this process by, from the runtime's procfs.
pub(crate) fn own_pid(proc: &crate::procfs::Procfs) -> Result<i32, Error> {
    let link = rustix::fs::readlinkat(proc, c"self", Vec::new()).during(|| "read /proc/self")?;
    let pid = link.to_str().ok().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    pid.map(Pid::as_raw_nonzero).map(i32::from).ok_or_else(|| Error::system("read /proc/self", Errno::SRCH))
}
