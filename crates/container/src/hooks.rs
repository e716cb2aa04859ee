//! `hooks`: programs that run at points of a container's lifecycle.
//!
//! | hook | run by | when | where |
//! |---|---|---|---|
//! | prestart, createRuntime | the runtime, at [`Progress::NamespacesCreated`](crate::Progress) | mounts are made, the host's root is still visible | the runtime's namespaces |
//! | createContainer | the container's child | directly after createRuntime | the container's namespaces, the host's files |
//! | startContainer | the container's child | after start, before execve | inside the container, confined as its process |
//! | poststart, poststop | the runtime | after start; after delete | the runtime's namespaces |
//!
//! Where the specification leaves something open, hooks run as in runc:
//!
//! | | environment, where `env` is absent or empty | working directory |
//! |---|---|---|
//! | startContainer | the container's process's | the process's |
//! | createContainer | the runtime's | the container's root |
//! | the others | the runtime's | the runtime's |
//!
//! Source: runtime-spec config.md, "POSIX-platform Hooks"; runtime.md, "Lifecycle".

mod program;

use std::{ffi::CString, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::Pid,
};

use crate::{Error, error::During, spec_string::c_string};

use program::HookContext;

/// The checked hooks of a container.
#[derive(Debug, Default)]
pub struct Hooks {
    prestart: Vec<Hook>,
    create_runtime: Vec<Hook>,
    create_container: Vec<Hook>,
    start_container: Vec<Hook>,
    poststart: Vec<Hook>,
    poststop: Vec<Hook>,
    output: Output,
}

/// Files for the output of hooks. Without a file, the error of a failed hook shows the output.
#[derive(Debug, Default)]
pub struct Output {
    /// The file for descriptor 1.
    pub stdout: Option<OwnedFd>,
    /// The file for descriptor 2.
    pub stderr: Option<OwnedFd>,
}

#[derive(Debug)]
struct Hook {
    /// Its place in the spec for errors, for example `hooks.createRuntime[0]`.
    field: String,
    path: CString,
    arguments: Vec<CString>,
    /// `None`: the environment of [`HookContext`].
    environment: Option<Vec<CString>>,
    timeout: Option<Duration>,
}

/// Points at which the runtime runs hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// prestart and createRuntime; the first failure stops the others.
    CreateRuntime,
    /// poststart; the first failure stops the others.
    Poststart,
    /// poststop; all run even if one fails.
    Poststop,
}

impl Hooks {
    /// Runs all hooks of a point, cancellable by the caller: when the other end of `caller` is closed, the running hook
    /// is killed and the remaining ones are skipped. `state` has the container's pid.
    ///
    /// # Errors
    /// The hooks that failed; for [`HookPoint::CreateRuntime`] and [`HookPoint::Poststart`] the first failure.
    pub fn run(&self, point: HookPoint, state: &oci::State, caller: BorrowedFd<'_>) -> Result<(), Vec<Error>> {
        let steps: &[(&[Hook], oci::Status)] = match point {
            HookPoint::CreateRuntime => {
                &[(&self.prestart, oci::Status::Created), (&self.create_runtime, oci::Status::Creating)]
            }
            HookPoint::Poststart => &[(&self.poststart, oci::Status::Running)],
            HookPoint::Poststop => &[(&self.poststop, oci::Status::Stopped)],
        };
        let mut failed = Vec::new();
        let context = HookContext { caller: Some(caller), ..self.context() };
        for (hook, status) in steps.iter().flat_map(|(hooks, status)| hooks.iter().map(|hook| (hook, *status))) {
            failed.extend(hook.run(state, status, &context).err());
            if point != HookPoint::Poststop && !failed.is_empty() {
                break;
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// Whether there are hooks for this point.
    pub fn has(&self, point: HookPoint) -> bool {
        match point {
            HookPoint::CreateRuntime => self.in_runtime(),
            HookPoint::Poststart => !self.poststart.is_empty(),
            HookPoint::Poststop => !self.poststop.is_empty(),
        }
    }

    /// Checks the hooks: paths must be absolute and timeouts positive.
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
            output: Output::default(),
        })
    }

    /// Sets the files for the output of the hooks.
    pub fn with_output(self, output: Output) -> Self {
        Self { output, ..self }
    }

    /// Returns the descriptors that the container's child needs until execve.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.output.stdout, &self.output.stderr].into_iter().flatten().map(AsFd::as_fd)
    }

    fn context(&self) -> HookContext<'_> {
        HookContext { output: &self.output, environment: None, caller: None }
    }

    /// Runs the prestart and createRuntime hooks, at [`Progress::NamespacesCreated`](crate::Progress). `state` has the
    /// container's pid.
    ///
    /// # Errors
    /// The first hook that failed; the caller must remove the container.
    pub fn create_runtime(&self, state: &oci::State) -> Result<(), Error> {
        // prestart was a part of start in older specifications; its hooks (and the validation of runtime-tools) still
        // expect the status `created`.
        self.run_all(&self.prestart, state, oci::Status::Created)?;
        self.run_all(&self.create_runtime, state, oci::Status::Creating)
    }

    /// Runs the poststart hooks.
    ///
    /// # Errors
    /// The first hook that failed; the caller must stop and delete the container.
    pub fn poststart(&self, state: &oci::State) -> Result<(), Error> {
        self.run_all(&self.poststart, state, oci::Status::Running)
    }

    /// Runs all poststop hooks and returns the failures, which should be logged as warnings.
    pub fn poststop(&self, state: &oci::State) -> Vec<Error> {
        let context = self.context();
        self.poststop.iter().filter_map(|hook| hook.run(state, oci::Status::Stopped, &context).err()).collect()
    }

    pub(crate) fn create_container(&self, state: &oci::State) -> Result<(), Error> {
        self.run_all(&self.create_container, state, oci::Status::Creating)
    }

    /// Runs the startContainer hooks. `environment` is that of the container's process.
    pub(crate) fn start_container(&self, state: &oci::State, environment: &[CString]) -> Result<(), Error> {
        let context = HookContext { environment: Some(environment), ..self.context() };
        self.start_container.iter().try_for_each(|hook| hook.run(state, oci::Status::Created, &context))
    }

    fn run_all(&self, hooks: &[Hook], state: &oci::State, status: oci::Status) -> Result<(), Error> {
        hooks.iter().try_for_each(|hook| hook.run(state, status, &self.context()))
    }

    /// Whether the runtime runs hooks while the child waits.
    pub(crate) fn in_runtime(&self) -> bool {
        !self.prestart.is_empty() || !self.create_runtime.is_empty()
    }

    /// Whether hooks must see the host's files in the container's mount namespace.
    pub(crate) fn before_pivot(&self) -> bool {
        self.in_runtime() || !self.create_container.is_empty()
    }

    /// Whether there are createContainer hooks.
    pub(crate) fn in_container(&self) -> bool {
        !self.create_container.is_empty()
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
    // Engines written in Go omit an empty list, so an empty one counts as absent.
    let environment = if hook.env.is_empty() { None } else { Some(strings("env", &hook.env)?) };
    Ok(Hook { path, arguments, environment, timeout, field })
}

/// Returns this process's pid in the runtime's PID namespace, read from the runtime's procfs.
pub(crate) fn own_pid(proc: &crate::procfs::Procfs) -> Result<Pid, Error> {
    let link = rustix::fs::readlinkat(proc, c"self", Vec::new()).during(|| "read /proc/self")?;
    let pid = link.to_str().ok().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    pid.ok_or_else(|| Error::system("read /proc/self", Errno::SRCH))
}
