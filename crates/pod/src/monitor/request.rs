//! The requests, typed: what goes out, what comes back, and what is taken into custody on the way.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use monitor_api::{
    Attach, Attachments, Create, Created, Exec, ExitStatus, FailureKind, HeldHooks, Holding, HoldingState, Kill,
    KillScope, MakeNamespaces, PodInit, Reply, Request, Role, Target, UserMappings,
};
use oci::NamespaceType;
use rustix::fd::OwnedFd;
use tokio::sync::oneshot;

use super::{Held, Monitor, link::unexpected, supervisor::see_off};
use crate::{Error, ErrorKind, container::log_file, error::failed, process, sandbox::Owned, session::Terminal};

/// How often a request that may be repeated is, when the monitor dies under it.
const REPEATS: usize = 3;

/// The minor version of the contract that has `MakeNamespaces`.
const USER_NAMESPACES: u32 = 2;

/// What became of a container to be made.
#[derive(Debug)]
pub(crate) enum Made {
    /// It waits for its start.
    Waiting(Started),
    /// Its command cannot be executed, in these words. Nothing of it is left.
    Refused(String),
}

/// A process that the monitor made.
#[derive(Debug)]
pub(crate) struct Started {
    /// In the initial PID namespace.
    pub(crate) pid: u32,
    /// Clock ticks since boot.
    pub(crate) start_time: u64,
    /// What was clamped or left out.
    pub(crate) warnings: Vec<String>,
}

/// A command that runs.
pub(crate) struct ExecWait {
    pidfd: OwnedFd,
    exited: oneshot::Receiver<ExitStatus>,
}

impl ExecWait {
    /// How it ended, as its monitor tells; `None`: that monitor is gone.
    pub(crate) async fn told(&mut self) -> Option<ExitStatus> {
        (&mut self.exited).await.ok()
    }

    /// Its exit code as the kernel tells, once it ended; `None` where that cannot be known.
    pub(crate) async fn ended(&self) -> Result<Option<i32>, Error> {
        /// Whose child it became reaps it soon; the code is known from then on.
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
    /// Makes a container. `keep` are duplicates for custody, by role as in `Adopt`.
    pub(crate) async fn create(
        &self,
        mut create: Create,
        attachments: Attachments,
        mut keep: Attachments,
    ) -> Result<Made, Error> {
        create.mounts = Some(attachments.iter().filter(|(role, _)| matches!(role, Role::Mount(_))).count());
        let cgroup = create.spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone()).unwrap_or_default();
        let mut holding = Held::nascent(&create.container, &create.sandbox, &cgroup, HoldingState::Created);
        holding.log = create.log;
        holding.hooks = HeldHooks::of(&create.spec, &create.container, &create.bundle);
        holding.user_namespace = Some(create.spec.has_namespace(oci::NamespaceType::User));
        let link = self.link().await?;
        let attachments = self.send_mounts(&link, &create.container, attachments).await?;
        let (reply, mut files) = link.try_ask(Request::Create(Box::new(create)), attachments).await?;
        let reply = match reply {
            Err(failure) if failure.kind == FailureKind::Command => return Ok(Made::Refused(failure.message)),
            reply => reply?,
        };
        let Reply::Created(created) = reply else { return Err(unexpected("Create", &reply)) };
        let pidfd = files.take(Role::Pidfd).ok_or_else(|| missing("Create", "pidfd"))?;
        (holding.pid, holding.start_time) = (created.pid, created.start_time);
        keep.push(Role::Pidfd, pidfd);
        for role in [Role::Sync, Role::Terminal] {
            if let Some(file) = files.take(role) {
                keep.push(role, file);
            }
        }
        self.custody().hold(Held::new(holding, keep));
        let Created { pid, start_time, warnings } = created;
        Ok(Made::Waiting(Started { pid, start_time, warnings }))
    }

    /// Lets a container run: answers when `execve` succeeded or failed.
    pub(crate) async fn start(&self, container: &str) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let request = Request::Start { container: container.to_owned() };
            match self.link().await?.ask(request, Attachments::new()).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tries < REPEATS => {}
                // The monitor that died had started it.
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

    /// Sends a signal; a target that is gone succeeds.
    pub(crate) async fn kill(&self, target: &Target, signal: i32, scope: KillScope) -> Result<(), Error> {
        let request = || Request::Kill(Kill { target: target.clone(), signal, scope });
        gone_is_fine(self.repeat(request, || Ok(Attachments::new())).await)
    }

    /// Runs a command. The container's own streams are not touched.
    pub(crate) async fn exec(
        &self,
        exec: Exec,
        attachments: Attachments,
    ) -> Result<(ExecWait, Option<Terminal>, Vec<String>), Error> {
        let id = exec.exec.clone();
        let (sender, exited) = oneshot::channel();
        let link = self.link().await?;
        if let Some(begun) = self.0.begun.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            begun.insert(id.clone());
        }
        let waiting = &self.0.execs;
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
        let outcome = link.ask(Request::Exec(Box::new(exec)), attachments).await;
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

    /// Whether a command was begun by this process. To be asked until [`Monitor::all_are_begun`].
    pub(crate) fn has_begun(&self, exec: &str) -> bool {
        let begun = self.0.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.as_ref().is_none_or(|begun| begun.contains(exec))
    }

    /// From now on every command was begun by this process.
    pub(crate) fn all_are_begun(&self) {
        self.0.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Kills a command with all it started: whether the monitor knows it (still).
    pub(crate) async fn kill_command(&self, exec: &str) -> Result<bool, Error> {
        let request = || {
            let target = Target::Exec(exec.to_owned());
            Request::Kill(Kill { target, signal: rustix::process::Signal::KILL.as_raw(), scope: KillScope::All })
        };
        match self.repeat(request, || Ok(Attachments::new())).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Copies output from now on to these pipes.
    pub(crate) async fn attach(&self, container: &str, attachments: Attachments) -> Result<(), Error> {
        let request = Request::Attach(Attach { container: container.to_owned() });
        self.link().await?.ask(request, attachments).await.map(drop)
    }

    /// Ends the container's standard input, when no client has it open.
    pub(crate) async fn close_stdin(&self, container: &str) -> Result<(), Error> {
        self.custody().replace(container, Role::StdinHold, None);
        let request = || Request::CloseStdin { container: container.to_owned() };
        gone_is_fine(self.repeat(request, || Ok(Attachments::new())).await)
    }

    /// Continues the log in this file.
    pub(crate) async fn reopen_log(&self, container: &str, log: OwnedFd) -> Result<(), Error> {
        let request = || Request::ReopenLog { container: container.to_owned() };
        self.repeat(request, || Ok(Attachments::new().with(Role::Log, duplicate(&log)?))).await?;
        self.custody().replace(container, Role::Log, Some(offload::here(|| log_file::place(&log))?));
        Ok(())
    }

    /// Kills what lives, removes the cgroup, forgets. Unknown ids succeed.
    pub(crate) async fn delete(&self, container: &str) -> Result<(), Error> {
        let request = || Request::Delete { container: container.to_owned() };
        self.repeat(request, || Ok(Attachments::new())).await?;
        self.custody().forget(container);
        Ok(())
    }

    /// Starts a pod's init: the process and its PID namespace.
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
        let mut holding: Holding = Held::nascent(sandbox, sandbox, &cgroup, HoldingState::PodInit);
        let request = Request::PodInit(PodInit { container: sandbox.to_owned(), cgroup, user });
        let (reply, mut files) = self.link().await?.ask(request, attachments).await?;
        let Reply::PodInitStarted(started) = reply else { return Err(unexpected("PodInit", &reply)) };
        let pidfd = files.take(Role::Pidfd).ok_or_else(|| missing("PodInit", "pidfd"))?;
        let namespace =
            files.take(Role::Namespace(NamespaceType::Pid)).ok_or_else(|| missing("PodInit", "PID namespace"))?;
        (holding.pid, holding.start_time) = (started.pid, started.start_time);
        self.custody().hold(Held::new(holding, Attachments::new().with(Role::Pidfd, pidfd)));
        Ok(namespace)
    }

    /// Makes namespaces that a user namespace owns: `user`, else a new one. Without a reader they are gone again.
    pub(crate) async fn make_namespaces(&self, wanted: MakeNamespaces, user: Option<OwnedFd>) -> Result<Owned, Error> {
        let told = self.welcome()?;
        if told.minor < USER_NAMESPACES {
            return Err(Error::state(format!(
                "the monitor that runs ({}) makes no user namespaces; upgrade it",
                told.version
            )));
        }
        let mut tries = 0;
        let mut files = loop {
            tries += 1;
            let mut attachments = Attachments::new();
            if let Some(user) = &user {
                attachments.push(Role::Namespace(NamespaceType::User), duplicate(user)?);
            }
            match self.link().await?.ask(Request::MakeNamespaces(wanted.clone()), attachments).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tries < REPEATS => {}
                answer => match answer? {
                    (Reply::NamespacesMade, files) => break files,
                    (reply, _) => return Err(unexpected("MakeNamespaces", &reply)),
                },
            }
        };
        let mut take = |kind| files.take(Role::Namespace(kind));
        Ok(Owned {
            user: take(NamespaceType::User),
            network: take(NamespaceType::Network),
            ipc: take(NamespaceType::Ipc),
            uts: take(NamespaceType::Uts),
        })
    }

    /// Has descriptors held under a key, by the monitor and here.
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

    /// Closes what is held under a key. Unknown keys succeed.
    pub(crate) async fn release(&self, key: &str) -> Result<(), Error> {
        self.custody().release(key);
        self.repeat(|| Request::Release { key: key.to_owned() }, || Ok(Attachments::new())).await
    }

    /// Ends the monitor, which must hold nothing any more, and starts no other.
    ///
    /// # Errors
    /// `FailedPrecondition` while it holds something.
    pub(crate) async fn shutdown(&self) -> Result<(), Error> {
        let link = self.link().await?;
        let pidfd = self.pidfd();
        self.0.over.store(true, Ordering::Release);
        if let Err(error) = link.ask(Request::Shutdown, Attachments::new()).await {
            self.0.over.store(false, Ordering::Release);
            return Err(error);
        }
        link.closed().await;
        match pidfd {
            Some(pidfd) => see_off(&pidfd).await,
            None => Ok(()),
        }
    }

    /// Takes over what no monitor holds any more.
    pub(crate) async fn adopt(&self, held: Held) -> Result<(), Error> {
        let (request, attachments) = held.adoption()?;
        self.custody().hold(held);
        self.link().await?.ask(request, attachments).await.map(drop)
    }

    /// A request that does no harm when it arrives twice.
    async fn repeat(
        &self,
        request: impl Fn() -> Request,
        attachments: impl Fn() -> Result<Attachments, Error>,
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.link().await?.ask(request(), attachments()?).await {
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

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, Error> {
    file.try_clone().map_err(failed("duplicate a descriptor"))
}

fn missing(request: &str, what: &str) -> Error {
    Error::internal(format!("the monitor answered {request} without its {what}"))
}
