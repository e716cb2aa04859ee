//! `hooks`: programs at points of a container's life.
//!
//! | hook | who runs it | when | where |
//! |---|---|---|---|
//! | prestart, createRuntime | the runtime, at [`Progress::NamespacesMade`](crate::Progress) | mounts are made, the host's root is still there | the runtime's namespaces |
//! | createContainer | the container's child | right after those | the container's namespaces, the host's files |
//! | startContainer | the container's child | after start, before execve | inside the container, confined as its process |
//! | poststart, poststop | the runtime | after start; after delete | the runtime's namespaces |
//!
//! What the specification leaves open is done as runc does it:
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

use crate::{Error, error::During, text::c_string};

use program::Surroundings;

/// All hooks of a container, checked.
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

/// Files that hooks write to; where there is none, what they write is shown in the error of a hook that fails.
#[derive(Debug, Default)]
pub struct Output {
    /// In place of descriptor 1.
    pub stdout: Option<OwnedFd>,
    /// In place of descriptor 2.
    pub stderr: Option<OwnedFd>,
}

#[derive(Debug)]
struct Hook {
    /// `hooks.createRuntime[0]`
    field: String,
    path: CString,
    arguments: Vec<CString>,
    /// `None`: that of [`Surroundings`].
    environment: Option<Vec<CString>>,
    timeout: Option<Duration>,
}

/// When hooks are run by the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// prestart and createRuntime: the first that fails ends it.
    Create,
    /// poststart: the first that fails ends it.
    Started,
    /// poststop: each is run.
    Stopped,
}

impl Hooks {
    /// All of a moment, for who can be told to give up: when nobody holds the other end of `caller` any more, what runs
    /// is killed and the rest is left out. `state` has the container's pid.
    ///
    /// # Errors
    /// Those that failed; of [`Moment::Create`] and [`Moment::Started`] the first.
    pub fn run(&self, moment: Moment, state: &oci::State, caller: BorrowedFd<'_>) -> Result<(), Vec<Error>> {
        let steps: &[(&[Hook], oci::Status)] = match moment {
            Moment::Create => &[(&self.prestart, oci::Status::Created), (&self.create_runtime, oci::Status::Creating)],
            Moment::Started => &[(&self.poststart, oci::Status::Running)],
            Moment::Stopped => &[(&self.poststop, oci::Status::Stopped)],
        };
        let mut failed = Vec::new();
        let around = Surroundings { caller: Some(caller), ..self.surroundings() };
        for (hook, status) in steps.iter().flat_map(|(hooks, status)| hooks.iter().map(|hook| (hook, *status))) {
            failed.extend(hook.run(state, status, &around).err());
            if moment != Moment::Stopped && !failed.is_empty() {
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
            output: Output::default(),
        })
    }

    /// With files for what they write.
    pub fn with_output(self, output: Output) -> Self {
        Self { output, ..self }
    }

    /// What the container's child needs of them until execve.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.output.stdout, &self.output.stderr].into_iter().flatten().map(AsFd::as_fd)
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings { output: &self.output, environment: None, caller: None }
    }

    /// prestart and createRuntime, at [`Progress::NamespacesMade`](crate::Progress). `state` has the container's pid.
    ///
    /// # Errors
    /// The first hook that failed; the container is to be taken away.
    pub fn create_runtime(&self, state: &oci::State) -> Result<(), Error> {
        // Of old a part of start, and its hooks (and the validation of runtime-tools) still want to read so.
        self.run_all(&self.prestart, state, oci::Status::Created)?;
        self.run_all(&self.create_runtime, state, oci::Status::Creating)
    }

    /// poststart.
    ///
    /// # Errors
    /// The first hook that failed; the container is to be stopped and destroyed.
    pub fn poststart(&self, state: &oci::State) -> Result<(), Error> {
        self.run_all(&self.poststart, state, oci::Status::Running)
    }

    /// poststop. Every hook is run; what failed is worth a warning.
    pub fn poststop(&self, state: &oci::State) -> Vec<Error> {
        let around = self.surroundings();
        self.poststop.iter().filter_map(|hook| hook.run(state, oci::Status::Stopped, &around).err()).collect()
    }

    pub(crate) fn create_container(&self, state: &oci::State) -> Result<(), Error> {
        self.run_all(&self.create_container, state, oci::Status::Creating)
    }

    /// `environment` is that of the container's process.
    pub(crate) fn start_container(&self, state: &oci::State, environment: &[CString]) -> Result<(), Error> {
        let around = Surroundings { environment: Some(environment), ..self.surroundings() };
        self.start_container.iter().try_for_each(|hook| hook.run(state, oci::Status::Created, &around))
    }

    fn run_all(&self, hooks: &[Hook], state: &oci::State, status: oci::Status) -> Result<(), Error> {
        hooks.iter().try_for_each(|hook| hook.run(state, status, &self.surroundings()))
    }

    /// Whether the runtime has hooks to run while the child waits.
    pub(crate) fn in_runtime(&self) -> bool {
        !self.prestart.is_empty() || !self.create_runtime.is_empty()
    }

    /// Whether the host's files must be there in the container's mount namespace.
    pub(crate) fn before_pivot(&self) -> bool {
        self.in_runtime() || !self.create_container.is_empty()
    }

    /// Whether createContainer hooks run.
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
    // Engines in Go cannot write an empty list.
    let environment = if hook.env.is_empty() { None } else { Some(strings("env", &hook.env)?) };
    Ok(Hook { path, arguments, environment, timeout, field })
}

/// The pid that the runtime knows this process by, from the runtime's procfs.
pub(crate) fn own_pid(proc: &crate::procfs::Procfs) -> Result<i32, Error> {
    let link = rustix::fs::readlinkat(proc, c"self", Vec::new()).during(|| "read /proc/self")?;
    let pid = link.to_str().ok().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    pid.map(Pid::as_raw_nonzero).map(i32::from).ok_or_else(|| Error::system("read /proc/self", Errno::SRCH))
}
