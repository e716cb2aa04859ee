//! `process`: from a child that is set up to the user's program, for a container's init and for an exec'd process.

use std::ffi::{CStr, CString};

use rustix::{
    fd::BorrowedFd,
    fs::Uid,
    io::Errno,
    process::{chdir, getcwd},
    thread::{CapabilitySet, set_no_new_privs},
};
use syscall::{exec::StringArray, personality::Personality};

use crate::{
    Error, ErrorKind,
    capabilities::{self, Capabilities},
    credentials::Credentials,
    descriptors, environment,
    error::During,
    filter::Filter,
    home,
    id_mappings::IdMappings,
    interpreter,
    labels::Labels,
    memory_policy::MemoryPolicy,
    oom::OomScoreAdj,
    path_lookup,
    procfs::Procfs,
    rlimits::Rlimits,
    scheduling::{Affinity, Scheduling},
    spec_string::{c_string, container_path},
};

/// Maximum number of arguments or variables; the kernel limits their bytes.
const STRINGS_MAX: usize = 1 << 20;

/// A checked process.
#[derive(Debug)]
pub(crate) struct Process {
    /// `Some`: it has a terminal, of this size if one is given.
    pub(crate) terminal: Option<Option<oci::TerminalSize>>,
    pub(crate) oom_score_adj: OomScoreAdj,
    pub(crate) cwd: CString,
    credentials: Credentials,
    arguments: StringArray,
    environment: Vec<CString>,
    capabilities: Capabilities,
    rlimits: Rlimits,
    no_new_privileges: bool,
    labels: Labels,
    personality: Option<Personality>,
    memory_policy: Option<MemoryPolicy>,
    scheduling: Scheduling,
    /// Of an exec'd process.
    pub(crate) affinity: Affinity,
    filter: Option<Filter>,
    /// Executes the arguments, which are then not a program of the container.
    interpreter: Option<interpreter::Invocation>,
    /// Those that the child has in its user namespace.
    child_capabilities: CapabilitySet,
    /// Those of the caller, outside the container's user namespace.
    pub(crate) callers_capabilities: CapabilitySet,
}

impl Process {
    /// Checks `process` and the properties of `linux` that belong to it.
    pub(crate) fn parse(
        spec: &oci::Process,
        linux: &oci::Linux,
        filter: Option<Filter>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let callers_capabilities = capabilities::callers()?;
        let may_raise_limits = callers_capabilities.contains(CapabilitySet::SYS_RESOURCE);
        let user_namespace = linux.namespaces.iter().any(|namespace| namespace.kind == oci::NamespaceType::User);
        // A process that enters a user namespace has all capabilities in it.
        let child_capabilities = if user_namespace { capabilities::all() } else { callers_capabilities };
        if spec.args.first().is_none_or(String::is_empty) {
            return Err(Error::invalid("process.args: is empty; the first names the program"));
        }
        Ok(Self {
            terminal: spec.terminal.then_some(spec.console_size),
            oom_score_adj: OomScoreAdj::parse(spec.oom_score_adj, may_raise_limits, warnings)?,
            cwd: parse_cwd(&spec.cwd)?,
            credentials: Credentials::parse(&spec.user)?,
            arguments: StringArray::new(parse_arguments(&spec.args)?),
            environment: environment::parse(bounded("process.env", &spec.env)?)?,
            capabilities: Capabilities::parse(spec.capabilities.as_ref(), child_capabilities, warnings)?,
            rlimits: Rlimits::parse(&spec.rlimits, may_raise_limits, warnings)?,
            no_new_privileges: spec.no_new_privileges,
            labels: Labels::parse(spec)?,
            personality: linux.personality.as_ref().map(parse_personality).transpose()?,
            memory_policy: linux.memory_policy.as_ref().map(MemoryPolicy::parse).transpose()?,
            scheduling: Scheduling::parse(spec)?,
            affinity: Affinity::parse(spec)?,
            filter,
            interpreter: None,
            child_capabilities,
            callers_capabilities,
        })
    }

    /// Returns the placeholder for a spec without `process`: such a container can be created but not started
    /// (config.md, `process`).
    pub(crate) fn absent(
        linux: &oci::Linux,
        filter: Option<Filter>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let none = oci::Process { args: vec!["none".into()], cwd: "/".into(), ..oci::Process::default() };
        let parsed = Self::parse(&none, linux, filter, warnings)?;
        Ok(Self { arguments: StringArray::new(Vec::new()), ..parsed })
    }

    /// `keep`: the process keeps the caller's supplementary groups.
    pub(crate) fn with_callers_groups(self, keep: bool) -> Self {
        Self { credentials: self.credentials.with_callers_groups(keep), ..self }
    }

    /// Has an interpreter execute the arguments.
    pub(crate) fn with_interpreter(self, interpreter: Option<crate::Interpreter>) -> Result<Self, Error> {
        let invoke = |interpreter: crate::Interpreter| interpreter.invoke(self.arguments.strings());
        Ok(Self { interpreter: interpreter.map(invoke).transpose()?, ..self })
    }

    /// Checks that all its ids are mapped in the user namespace.
    pub(crate) fn check_mapped(&self, mappings: &IdMappings) -> Result<(), Error> {
        self.credentials.check_mapped(mappings)
    }

    pub(crate) fn uid(&self) -> Uid {
        self.credentials.uid
    }

    /// Raises hard limits; inside a user namespace that is denied. Runs in the intermediate process.
    pub(crate) fn raise_limits(&self) -> Result<(), Error> {
        self.rlimits.raise()
    }

    /// Connects to the seccomp agent. Runs in the caller, last before the clone.
    pub(crate) fn connect_agent(&mut self) -> Result<(), Error> {
        self.filter.as_mut().map_or(Ok(()), Filter::connect)
    }

    /// Returns the descriptors that the child needs until execve.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let filter = self.filter.as_ref().and_then(Filter::descriptor);
        filter.into_iter().chain(self.interpreter.iter().flat_map(interpreter::Invocation::descriptors))
    }

    /// Becomes the user: the last part of the setup before the child waits for its start.
    pub(crate) fn become_user(
        &self,
        root: BorrowedFd<'_>,
        proc: &Procfs,
        steps: &FinalSteps<'_>,
    ) -> Result<ReadyProcess<'_>, Error> {
        let mut environment = self.environment.clone();
        if !environment.iter().any(|variable| variable.to_bytes().starts_with(b"HOME=")) {
            environment.push(home::variable(root, self.uid()));
        }
        self.labels.apply(proc)?;
        // No descriptor of a directory, least of all the host's /proc, may be open when the working directory is
        // entered.
        let agent_message = self.filter.as_ref().map_or(Ok(None), |filter| filter.message(proc))?;
        descriptors::keep_only(steps.keep.iter().copied().chain(self.descriptors()), steps.preserve_fds)?;
        if let Some(personality) = self.personality {
            syscall::personality::set_personality(personality)
                .during(|| format!("set the personality {personality:?}"))?;
        }
        if let Some(policy) = &self.memory_policy {
            policy.apply()?;
        }
        self.scheduling.apply()?;
        self.rlimits.apply()?;
        self.capabilities.limit()?;
        let entered = enter_cwd(&self.cwd)?;
        self.credentials.apply()?;
        let late_admin = steps.needs_admin || self.filter.is_some() && !self.no_new_privileges;
        self.capabilities.raise(self.child_capabilities, late_admin)?;
        if !entered {
            chdir(self.cwd.as_c_str()).during(|| format!("enter the working directory {:?}", self.cwd))?;
        }
        check_cwd(&self.cwd)?;
        if self.no_new_privileges {
            set_no_new_privs(true).during(|| "set no_new_privs")?;
        }
        let file = match self.arguments.strings().first() {
            Some(name) if self.interpreter.is_some() => name.clone(),
            Some(name) => path_lookup::find(name, &environment)?,
            None => CString::default(),
        };
        let environment = StringArray::new(environment);
        Ok(ReadyProcess { process: self, file, environment, preserve_fds: steps.preserve_fds, agent_message })
    }
}

/// Needs of the steps that follow after the process has become its user.
pub(crate) struct FinalSteps<'a> {
    /// Descriptors that are still needed. All others are closed, and must not be used any longer.
    pub(crate) keep: Vec<BorrowedFd<'a>>,
    /// Number of descriptors from 3 on that the process inherits.
    pub(crate) preserve_fds: u32,
    /// Whether a later step needs `CAP_SYS_ADMIN`.
    pub(crate) needs_admin: bool,
}

/// A process that only has to call execve.
pub(crate) struct ReadyProcess<'a> {
    process: &'a Process,
    file: CString,
    environment: StringArray,
    preserve_fds: u32,
    /// The message for its seccomp agent.
    agent_message: Option<Vec<u8>>,
}

impl ReadyProcess<'_> {
    /// Confines the process and calls execve; returns only with an error. Without no_new_privs, loading a filter needs
    /// `CAP_SYS_ADMIN`, so it is loaded before the capabilities are set; with no_new_privs it is loaded last, and has
    /// to allow nothing but execve. `before` runs confined, and is given the environment.
    pub(crate) fn execute(&self, before: impl FnOnce(&[CString]) -> Result<(), Error>) -> Error {
        if self.file.is_empty() {
            return Error::invalid("process: is missing, so there is nothing to start");
        }
        if let Err(error) = self.confine().and_then(|()| before(self.environment.strings())) {
            return error;
        }
        if let Some(interpreter) = &self.process.interpreter {
            return interpreter.execute(&self.environment);
        }
        let cause = syscall::exec::execve(&self.file, &self.process.arguments, &self.environment);
        path_lookup::exec_error(&self.file, &cause)
    }

    /// Loads the seccomp filter and sets the final capabilities.
    fn confine(&self) -> Result<(), Error> {
        descriptors::close_on_exec(self.preserve_fds)?;
        self.process.interpreter.as_ref().map_or(Ok(()), interpreter::Invocation::inherit)?;
        if self.process.no_new_privileges {
            self.process.capabilities.apply()?;
            self.load_filter()
        } else {
            self.load_filter()?;
            self.process.capabilities.apply()
        }
    }

    fn load_filter(&self) -> Result<(), Error> {
        match &self.process.filter {
            Some(filter) => filter.load(self.agent_message.as_deref()),
            None => Ok(()),
        }
    }
}

/// Enters the working directory as root, because it may be inaccessible to the user. `false`: it is inaccessible to
/// root (a network file system), and the user must try.
fn enter_cwd(cwd: &CStr) -> Result<bool, Error> {
    match chdir(cwd) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(errno) => {
            let error = Error::system(format!("enter the working directory {cwd:?}"), errno);
            Err(error.with_kind(ErrorKind::WorkingDirectory))
        }
    }
}

/// Checks that the working directory is inside the root: the kernel reports a directory outside as `(unreachable)/…`,
/// and fails for a deleted one.
fn check_cwd(cwd: &CStr) -> Result<(), Error> {
    match getcwd(Vec::new()) {
        Ok(path) if path.to_bytes().starts_with(b"/") => Ok(()),
        _ => Err(Error::invalid(format!("process.cwd: {cwd:?} is outside of the container's root"))),
    }
}

/// Checks only the form of the path; the kernel resolves it, because components may be symlinks in the image.
fn parse_cwd(cwd: &str) -> Result<CString, Error> {
    if cwd.is_empty() {
        return Err(Error::invalid("process.cwd: is empty; it must be an absolute path"));
    }
    container_path("process.cwd", cwd)
}

fn bounded<'a>(field: &str, strings: &'a [String]) -> Result<&'a [String], Error> {
    if strings.len() > STRINGS_MAX {
        return Err(Error::invalid(format!("{field}: more than {STRINGS_MAX} strings")));
    }
    Ok(strings)
}

fn parse_arguments(arguments: &[String]) -> Result<Vec<CString>, Error> {
    let arguments = bounded("process.args", arguments)?;
    arguments.iter().map(|argument| c_string("process.args", argument)).collect()
}

fn parse_personality(spec: &oci::Personality) -> Result<Personality, Error> {
    if let Some(flag) = spec.flags.first() {
        return Err(Error::invalid(format!("linux.personality.flags: unknown flag {flag:?}")));
    }
    match spec.domain.as_str() {
        "LINUX" => Ok(Personality::Linux),
        "LINUX32" => Ok(Personality::Linux32),
        other => Err(Error::invalid(format!("linux.personality.domain: {other:?} is neither LINUX nor LINUX32"))),
    }
}
