//! `process`: from a set-up child to the user's command. The same for a container's init and for an exec'ed command.

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
    Error,
    capabilities::{self, Capabilities},
    command,
    credentials::Credentials,
    descriptors, environment,
    error::During,
    filter::Filter,
    home,
    id_mappings::IdMappings,
    labels::Labels,
    memory_policy::MemoryPolicy,
    oom::OomScoreAdj,
    procfs::Procfs,
    rlimits::Rlimits,
    scheduling::{Affinity, Scheduling},
    text::{c_string, inner_path},
};

/// Most arguments or variables that are taken; the kernel's own bound is on their bytes.
const STRINGS_MAX: usize = 1 << 20;

/// A process that was checked.
#[derive(Debug)]
pub(crate) struct Process {
    /// `Some`: it has a terminal, of this size.
    pub(crate) terminal: Option<Option<oci::ConsoleSize>>,
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
    /// Of a command.
    pub(crate) affinity: Affinity,
    filter: Option<Filter>,
    own_capabilities: CapabilitySet,
    /// Of the caller, outside.
    pub(crate) callers_capabilities: CapabilitySet,
}

impl Process {
    /// Checks `process` and what of `linux` belongs to it.
    pub(crate) fn parse(
        spec: &oci::Process,
        linux: &oci::Linux,
        filter: Option<Filter>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let callers_capabilities = capabilities::own()?;
        let own = callers_capabilities;
        let may = own.contains(CapabilitySet::SYS_RESOURCE);
        // Who enters a user namespace has all of them in it.
        let other = linux.namespaces.iter().any(|namespace| namespace.kind == oci::NamespaceType::User);
        let own = if other { capabilities::all() } else { own };
        if spec.args.first().is_none_or(String::is_empty) {
            return Err(Error::invalid("process.args: is empty; the first names the command"));
        }
        Ok(Self {
            terminal: spec.terminal.then_some(spec.console_size),
            oom_score_adj: OomScoreAdj::parse(spec.oom_score_adj, may, warnings)?,
            cwd: parse_cwd(&spec.cwd)?,
            credentials: Credentials::parse(&spec.user)?,
            arguments: StringArray::new(parse_arguments(&spec.args)?),
            environment: environment::parse(bounded("process.env", &spec.env)?)?,
            capabilities: Capabilities::parse(spec.capabilities.as_ref(), own, warnings)?,
            rlimits: Rlimits::parse(&spec.rlimits, may, warnings)?,
            no_new_privileges: spec.no_new_privileges,
            labels: Labels::parse(spec)?,
            personality: linux.personality.as_ref().map(parse_personality).transpose()?,
            memory_policy: linux.memory_policy.as_ref().map(MemoryPolicy::parse).transpose()?,
            scheduling: Scheduling::parse(spec)?,
            affinity: Affinity::parse(spec)?,
            filter,
            own_capabilities: own,
            callers_capabilities,
        })
    }

    /// Of a spec without one: it can be created, but not started (config.md, `process`).
    pub(crate) fn absent(
        linux: &oci::Linux,
        filter: Option<Filter>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let none = oci::Process { args: vec!["none".into()], cwd: "/".into(), ..oci::Process::default() };
        let parsed = Self::parse(&none, linux, filter, warnings)?;
        Ok(Self { arguments: StringArray::new(Vec::new()), ..parsed })
    }

    /// Keeps the caller's supplementary groups, or takes its own.
    pub(crate) fn with_callers_groups(self, keep: bool) -> Self {
        Self { credentials: self.credentials.with_callers_groups(keep), ..self }
    }

    /// Whether all its ids have one outside of the user namespace.
    pub(crate) fn check_mapped(&self, mappings: &IdMappings) -> Result<(), Error> {
        self.credentials.check_mapped(mappings)
    }

    pub(crate) fn uid(&self) -> Uid {
        self.credentials.uid
    }

    /// In the forerunner: what inside of a user namespace is not permitted any more.
    pub(crate) fn raise_limits(&self) -> Result<(), Error> {
        self.rlimits.raise()
    }

    /// In the caller, last before the clone.
    pub(crate) fn connect_agent(&mut self) -> Result<(), Error> {
        self.filter.as_mut().map_or(Ok(()), Filter::connect)
    }

    /// What the child needs until execve.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.filter.as_ref()?.descriptor()
    }

    /// Everything up to the wait: becomes the user.
    pub(crate) fn become_user(&self, root: BorrowedFd<'_>, proc: &Procfs, last: &Last<'_>) -> Result<Ready<'_>, Error> {
        let mut environment = self.environment.clone();
        if !environment.iter().any(|variable| variable.to_bytes().starts_with(b"HOME=")) {
            environment.push(home::variable(root, self.uid()));
        }
        self.labels.apply(proc)?;
        // No descriptor of a directory, least of all the host's /proc, may be there when the working directory is
        // entered.
        let told = self.filter.as_ref().map_or(Ok(None), |filter| filter.message(proc))?;
        descriptors::keep_only(last.keep.iter().copied().chain(self.descriptor()), last.preserve)?;
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
        let late_admin = last.admin || self.filter.is_some() && !self.no_new_privileges;
        self.capabilities.raise(self.own_capabilities, late_admin)?;
        if !entered {
            chdir(self.cwd.as_c_str()).during(|| format!("enter the working directory {:?}", self.cwd))?;
        }
        check_cwd(&self.cwd)?;
        if self.no_new_privileges {
            set_no_new_privs(true).during(|| "set no_new_privs")?;
        }
        let file = match self.arguments.strings().first() {
            Some(name) => command::find(name, &environment)?,
            None => CString::default(),
        };
        let environment = StringArray::new(environment);
        Ok(Ready { process: self, file, environment, preserve: last.preserve, told })
    }
}

/// What is still to come when the process has become its user.
pub(crate) struct Last<'a> {
    /// Descriptors that are still needed; their owners and all others must not be used any more.
    pub(crate) keep: Vec<BorrowedFd<'a>>,
    /// How many descriptors from 3 on are the process's own.
    pub(crate) preserve: u32,
    /// Whether a step after the wait needs `CAP_SYS_ADMIN`.
    pub(crate) admin: bool,
}

/// A process that only has to execve.
pub(crate) struct Ready<'a> {
    process: &'a Process,
    file: CString,
    environment: StringArray,
    preserve: u32,
    /// To the agent of its filter.
    told: Option<Vec<u8>>,
}

impl Ready<'_> {
    /// The last steps. Without no_new_privs a filter needs `CAP_SYS_ADMIN`, so it goes before the capabilities; with
    /// it, it goes last, and has to allow nothing but execve. `before`, which is given the environment, is confined
    /// already.
    pub(crate) fn execute(&self, before: impl FnOnce(&[CString]) -> Result<(), Error>) -> Error {
        if self.file.is_empty() {
            return Error::invalid("process: is missing, so there is nothing to start");
        }
        if let Err(error) = self.confine().and_then(|()| before(self.environment.strings())) {
            return error;
        }
        let cause = syscall::exec::execve(&self.file, &self.process.arguments, &self.environment);
        command::explain(&self.file, &cause)
    }

    fn confine(&self) -> Result<(), Error> {
        descriptors::close_on_exec(self.preserve)?;
        if self.process.no_new_privileges {
            self.process.capabilities.apply()?;
            self.filter()
        } else {
            self.filter()?;
            self.process.capabilities.apply()
        }
    }

    fn filter(&self) -> Result<(), Error> {
        match &self.process.filter {
            Some(filter) => filter.load(self.told.as_deref()),
            None => Ok(()),
        }
    }
}

/// As root first: it may be closed to the user. `false`: closed to root (a network file system), the user may try.
fn enter_cwd(cwd: &CStr) -> Result<bool, Error> {
    match chdir(cwd) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(errno) => Err(Error::command(Error::system(format!("enter the working directory {cwd:?}"), errno))),
    }
}

/// The kernel names a directory outside of the root `(unreachable)/…`, and one that is gone not at all.
fn check_cwd(cwd: &CStr) -> Result<(), Error> {
    match getcwd(Vec::new()) {
        Ok(path) if path.to_bytes().starts_with(b"/") => Ok(()),
        _ => Err(Error::invalid(format!("process.cwd: {cwd:?} is outside of the container's root"))),
    }
}

/// A symlink in the image may lead on, so `..` is for the kernel to resolve; only the form is checked.
fn parse_cwd(cwd: &str) -> Result<CString, Error> {
    if cwd.is_empty() {
        return Err(Error::invalid("process.cwd: is empty; it must be an absolute path"));
    }
    inner_path("process.cwd", cwd)
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
