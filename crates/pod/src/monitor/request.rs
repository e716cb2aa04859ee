//! Typed requests to the monitor, which also take the returned descriptors into custody.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use monitor_api::{
    Attach, Attachments, Create, Created, Exec, ExitStatus, Failure, FailureKind, Holding, HoldingState, Kill,
    KillScope, MINOR_INTERPRETERS, MINOR_OCI_RUNTIMES, MINOR_SHIMS, OciRuntime, PendingHooks, PodInit, Reply, Request,
    Role, RuntimeCommand, Target, UserMappings,
};
use oci::NamespaceType;
use rustix::fd::OwnedFd;
use tokio::sync::oneshot;

use super::{
    custody::HeldObject,
    link::{Link, unexpected},
    supervisor::{Monitor, wait_or_kill},
};
use crate::{
    Error, ErrorKind,
    error::failed,
    process,
    stdio::{Terminal, log_file::LogFile},
};

/// How often an idempotent request is sent if the monitor dies in the meantime.
pub(super) const REPEATS: usize = 3;

/// Outcome of a request to create a container.
#[derive(Debug)]
pub(crate) enum CreateOutcome {
    /// The container waits to be started.
    Created(CreatedProcess),
    /// Its command cannot be executed, for this reason. The monitor has removed it.
    Refused(Failure),
}

/// A process that the monitor created.
#[derive(Debug)]
pub(crate) struct CreatedProcess {
    /// Pid in the initial PID namespace.
    pub(crate) pid: u32,
    /// Start time, in clock ticks since boot.
    pub(crate) start_time: u64,
    /// Settings that were clamped or ignored.
    pub(crate) warnings: Vec<String>,
}

/// Exit of an exec'd process.
pub(crate) struct ExecWait {
    pidfd: OwnedFd,
    exited: oneshot::Receiver<ExitStatus>,
}

impl ExecWait {
    /// Waits for the exit status that the monitor reports; `None` if the connection to that monitor was lost.
    pub(crate) async fn reported_exit(&mut self) -> Option<ExitStatus> {
        (&mut self.exited).await.ok()
    }

    /// Waits until the process has ended, and returns its exit code as known to the kernel; `None` if it cannot be
    /// determined.
    pub(crate) async fn exit_code(&self) -> Result<Option<i32>, Error> {
        /// The new parent of the process reaps it soon; the code is available from then on.
        const TRIES: u32 = 11;
        const FIRST: Duration = Duration::from_millis(2);
        process::ended(&self.pidfd).await?;
        for tries in 0..TRIES {
            if let Some(code) = process::exit_code(&self.pidfd) {
                return Ok(Some(code));
            }
            tokio::time::sleep(FIRST * (1 << tries)).await;
        }
        Ok(process::exit_code(&self.pidfd))
    }
}

impl Monitor {
    /// Creates a container. `keep` are duplicates for custody, with the roles that `Adopt` uses.
    pub(crate) async fn create(
        &self,
        mut create: Create,
        attachments: Attachments,
        mut keep: Attachments,
    ) -> Result<CreateOutcome, Error> {
        create.mounts = Some(attachments.iter().filter(|(role, _)| matches!(role, Role::Mount(_))).count());
        let cgroup = create.spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone()).unwrap_or_default();
        let mut holding =
            HeldObject::initial_holding(&create.container, &create.sandbox, &cgroup, HoldingState::Created);
        holding.container.log = create.log.clone();
        holding.container.runtime.clone_from(&create.runtime);
        holding.container.external = create.external;
        if create.runtime.is_none() && !create.external {
            holding.container.hooks = PendingHooks::from_spec(&create.spec, &create.container, &create.bundle);
        }
        holding.container.user_namespace = Some(create.spec.has_namespace(oci::NamespaceType::User));
        let is_external = create.external;
        let link = match (&create.runtime, &create.interpreter, is_external) {
            (Some(_), ..) => self.link_since(MINOR_OCI_RUNTIMES, "run OCI runtimes").await?,
            (None, Some(_), _) => self.link_since(MINOR_INTERPRETERS, "run WebAssembly modules").await?,
            (None, None, true) => self.link_since(MINOR_SHIMS, "start shims").await?,
            (None, None, false) => self.link().await?,
        };
        let attachments = self.send_mounts(&link, &create.container, attachments).await?;
        let (reply, mut files) = link.try_request(Request::Create(Box::new(create)), attachments).await?;
        let reply = match reply {
            Err(failure) if failure.kind == FailureKind::Command => return Ok(CreateOutcome::Refused(failure)),
            reply => reply?,
        };
        let Reply::Created(created) = reply else { return Err(unexpected("Create", &reply)) };
        (holding.container.pid, holding.container.start_time) = (created.pid, created.start_time);
        if !is_external {
            keep.push(Role::Pidfd, files.take(Role::Pidfd).ok_or_else(|| missing("Create", "pidfd"))?);
        }
        for role in [Role::Sync, Role::Terminal] {
            if let Some(file) = files.take(role) {
                keep.push(role, file);
            }
        }
        self.custody().hold(HeldObject::new(holding, keep));
        let Created { pid, start_time, warnings } = created;
        Ok(CreateOutcome::Created(CreatedProcess { pid, start_time, warnings }))
    }

    /// Starts the program of a container: returns when `execve` succeeded or failed. `has_started` reports, after the
    /// monitor has died, whether an OCI runtime has started it in the meantime.
    pub(crate) async fn start<F: Future<Output = bool>>(
        &self,
        container: &str,
        has_started: impl Fn() -> F,
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let has_started = tries > 1 && has_started().await;
            let request = Request::Start { container: container.to_owned(), has_started };
            let programs = self.custody().runtime_timeout(container);
            match self.link().await?.request_of_programs(request, Attachments::new(), programs).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tries < REPEATS => {}
                // The monitor had started the container before it died.
                Err(error) if error.kind == ErrorKind::FailedPrecondition && tries > 1 => break,
                outcome => {
                    outcome?;
                    break;
                }
            }
        }
        self.custody().started(container);
        Ok(())
    }

    /// Sends a signal; succeeds if the target is gone.
    pub(crate) async fn kill(&self, target: &Target, signal: i32, scope: KillScope) -> Result<(), Error> {
        let request = || Request::Kill(Kill { target: target.clone(), signal, scope });
        gone_is_fine(self.repeat(request, || Ok(Attachments::new())).await)
    }

    /// Executes a command in a container. The container's own streams are not affected.
    pub(crate) async fn exec(
        &self,
        exec: Exec,
        attachments: Attachments,
    ) -> Result<(ExecWait, Option<Terminal>, Vec<String>), Error> {
        let id = exec.exec.clone();
        let (sender, exited) = oneshot::channel();
        let link = self.link().await?;
        if let Some(new_execs) = self.0.new_execs.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            new_execs.insert(id.clone());
        }
        let waiting = &self.0.execs;
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
        let outcome = link.request(Request::Exec(Box::new(exec)), attachments).await;
        let started = outcome.and_then(|(reply, mut files)| {
            let Reply::ExecStarted(started) = reply else { return Err(unexpected("Exec", &reply)) };
            let pidfd = files.take(Role::Pidfd).ok_or_else(|| missing("Exec", "pidfd"))?;
            Ok((ExecWait { pidfd, exited }, files.take(Role::Terminal).map(Terminal::new), started.warnings))
        });
        if started.is_err() {
            waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
        started
    }

    /// Reports whether this process requested this exec. Valid until [`Monitor::stop_tracking_execs`].
    pub(crate) fn has_requested(&self, exec: &str) -> bool {
        let new_execs = self.0.new_execs.lock().unwrap_or_else(PoisonError::into_inner);
        new_execs.as_ref().is_none_or(|new_execs| new_execs.contains(exec))
    }

    /// Stops recording requested execs: from now on [`Monitor::has_requested`] is true for every one.
    pub(crate) fn stop_tracking_execs(&self) {
        self.0.new_execs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Kills an exec'd process with all its descendants. Reports whether the monitor (still) knows it.
    pub(crate) async fn kill_exec(&self, exec: &str) -> Result<bool, Error> {
        let request = || {
            let target = Target::Exec(exec.to_owned());
            Request::Kill(Kill { target, signal: rustix::process::Signal::KILL.as_raw(), scope: KillScope::All })
        };
        match self.repeat(request, || Ok(Attachments::new())).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Copies the container's output from now on to these pipes.
    pub(crate) async fn attach(&self, container: &str, attachments: Attachments) -> Result<(), Error> {
        let request = Request::Attach(Attach { container: container.to_owned() });
        self.link().await?.request(request, attachments).await.map(drop)
    }

    /// Closes the container's standard input once no client has it open.
    pub(crate) async fn close_stdin(&self, container: &str) -> Result<(), Error> {
        self.custody().replace(container, Role::StdinHold, None);
        let request = || Request::CloseStdin { container: container.to_owned() };
        gone_is_fine(self.repeat(request, || Ok(Attachments::new())).await)
    }

    /// Continues the log of a container in this file.
    pub(crate) async fn reopen_log(&self, container: &str, log: LogFile) -> Result<(), Error> {
        let request = || Request::ReopenLog { container: container.to_owned() };
        let files = || {
            let mut files = Attachments::new().with(Role::Log, duplicate(&log.file)?);
            if let Some(directory) = &log.directory {
                files.push(Role::LOG_DIRECTORY, duplicate(directory)?);
            }
            Ok(files)
        };
        self.repeat(request, files).await?;
        for (role, file) in offload::in_place(|| log.duplicate_paths())? {
            self.custody().replace(container, role, Some(file));
        }
        Ok(())
    }

    /// Kills a container or pod init, removes its cgroup and forgets it. Unknown ids succeed.
    pub(crate) async fn delete(&self, container: &str) -> Result<(), Error> {
        let request = || Request::Delete { container: container.to_owned() };
        // `delete`, and `delete --force` if it fails.
        let programs = self.custody().runtime_timeout(container) * 2;
        self.repeat_programs(request, || Ok(Attachments::new()), programs).await?;
        self.custody().forget(container);
        Ok(())
    }

    /// Has an OCI runtime delete a container that the monitor does not know.
    ///
    /// # Errors
    /// `FailedPrecondition` if the monitor implements a contract before 1.7; `Internal` if the runtime fails.
    pub(crate) async fn runtime_delete(&self, container: &str, runtime: &OciRuntime) -> Result<(), Error> {
        let request = Request::RuntimeDelete { container: container.to_owned(), runtime: Box::new(runtime.clone()) };
        let link = self.link_since(MINOR_OCI_RUNTIMES, "run OCI runtimes").await?;
        link.request(request, Attachments::new()).await.map(drop)
    }

    /// Runs a command of a runtime, in this mount namespace and with this standard input, and returns its output.
    ///
    /// # Errors
    /// `FailedPrecondition` if the monitor implements a contract before 1.8; `Internal` if the command fails.
    pub(crate) async fn runtime_command(
        &self,
        command: RuntimeCommand,
        mounts: OwnedFd,
        stdin: Option<OwnedFd>,
    ) -> Result<Vec<u8>, Error> {
        let mut attachments = Attachments::new().with(Role::Namespace(NamespaceType::Mount), mounts);
        stdin.into_iter().for_each(|stdin| attachments.push(Role::Stdin, stdin));
        let link = self.link_since(MINOR_SHIMS, "start shims").await?;
        match link.request(Request::RuntimeCommand(Box::new(command)), attachments).await? {
            (Reply::CommandOutput { output }, _) => Ok(output),
            (reply, _) => Err(unexpected("RuntimeCommand", &reply)),
        }
    }

    /// Records the exit of a container without a process of its own. Succeeds for one that the monitor does not know.
    pub(crate) async fn end(&self, container: &str, status: &ExitStatus) -> Result<(), Error> {
        // An earlier monitor would close the connection.
        self.link_since(MINOR_SHIMS, "end containers of shims").await?;
        let request = || Request::End { container: container.to_owned(), status: status.clone() };
        gone_is_fine(self.repeat(request, || Ok(Attachments::new())).await)
    }

    /// Returns the connection to a monitor of this minor version or a later one.
    async fn link_since(&self, minor: u32, ability: &str) -> Result<Arc<Link>, Error> {
        let link = self.link().await?;
        let welcome = self.welcome()?;
        match welcome.minor < minor {
            true => {
                Err(Error::state(format!("the running monitor ({}) cannot {ability}; upgrade it", welcome.version)))
            }
            false => Ok(link),
        }
    }

    /// Starts the init of a pod, and with it the pod's PID namespace. Returns the namespace.
    pub(crate) async fn pod_init(
        &self,
        sandbox: &str,
        cgroup: String,
        user: Option<UserMappings>,
        namespaces: Vec<(NamespaceType, OwnedFd)>,
    ) -> Result<OwnedFd, Error> {
        let mut attachments = Attachments::new();
        for (kind, namespace) in namespaces {
            attachments.push(Role::Namespace(kind), namespace);
        }
        let mut holding: Holding = HeldObject::initial_holding(sandbox, sandbox, &cgroup, HoldingState::PodInit);
        let request = Request::PodInit(PodInit { container: sandbox.to_owned(), cgroup, user });
        let (reply, mut files) = self.link().await?.request(request, attachments).await?;
        let Reply::PodInitStarted(started) = reply else { return Err(unexpected("PodInit", &reply)) };
        let pidfd = files.take(Role::Pidfd).ok_or_else(|| missing("PodInit", "pidfd"))?;
        let namespace =
            files.take(Role::Namespace(NamespaceType::Pid)).ok_or_else(|| missing("PodInit", "PID namespace"))?;
        (holding.container.pid, holding.container.start_time) = (started.pid, started.start_time);
        self.custody().hold(HeldObject::new(holding, Attachments::new().with(Role::Pidfd, pidfd)));
        Ok(namespace)
    }

    /// Keeps descriptors under a key, in the monitor and here.
    pub(crate) async fn keep(&self, key: String, files: Vec<OwnedFd>) -> Result<(), Error> {
        let attachments = || {
            let mut attachments = Attachments::new();
            for (n, file) in (0..).zip(&files) {
                attachments.push(Role::Kept(n), duplicate(file)?);
            }
            Ok(attachments)
        };
        self.repeat(|| Request::Keep { key: key.clone() }, attachments).await?;
        self.custody().keep(key, files);
        Ok(())
    }

    /// Closes the descriptors that are kept under a key. Unknown keys succeed.
    pub(crate) async fn release(&self, key: &str) -> Result<(), Error> {
        self.custody().release(key);
        self.repeat(|| Request::Release { key: key.to_owned() }, || Ok(Attachments::new())).await
    }

    /// Shuts the monitor down, which must not hold anything anymore, and starts no other.
    ///
    /// # Errors
    /// `FailedPrecondition` if it still holds something.
    pub(crate) async fn shutdown(&self) -> Result<(), Error> {
        let link = self.link().await?;
        let pidfd = self.pidfd();
        self.0.shut_down.store(true, Ordering::Release);
        if let Err(error) = link.request(Request::Shutdown, Attachments::new()).await {
            self.0.shut_down.store(false, Ordering::Release);
            return Err(error);
        }
        link.closed().await;
        match pidfd {
            Some(pidfd) => wait_or_kill(&pidfd).await,
            None => Ok(()),
        }
    }

    /// Hands an object that no monitor holds to the current monitor.
    pub(crate) async fn adopt(&self, held: HeldObject) -> Result<(), Error> {
        let (request, attachments) = held.adoption()?;
        self.custody().hold(held);
        self.link().await?.request(request, attachments).await.map(drop)
    }

    /// Sends an idempotent request, and repeats it if the monitor dies.
    async fn repeat(
        &self,
        request: impl Fn() -> Request,
        attachments: impl Fn() -> Result<Attachments, Error>,
    ) -> Result<(), Error> {
        self.repeat_programs(request, attachments, Duration::ZERO).await
    }

    /// Like [`Self::repeat`], for a request whose programs of the node may take this long in total.
    async fn repeat_programs(
        &self,
        request: impl Fn() -> Request,
        attachments: impl Fn() -> Result<Attachments, Error>,
        programs: Duration,
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.link().await?.request_of_programs(request(), attachments()?, programs).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tries < REPEATS => {}
                outcome => return outcome.map(drop),
            }
        }
    }
}

fn gone_is_fine(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

pub(super) fn duplicate(file: &OwnedFd) -> Result<OwnedFd, Error> {
    file.try_clone().map_err(failed("duplicate a descriptor"))
}

fn missing(request: &str, descriptor: &str) -> Error {
    Error::internal(format!("the monitor answered {request} without its {descriptor}"))
}
