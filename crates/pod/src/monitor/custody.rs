//! Duplicates of the monitor's descriptors, kept to be handed to the next monitor.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use monitor_api::{Adopt, Attachments, ContainerDescription, ExitStatus, Holding, HoldingState, Request, Role};

use crate::{
    Error,
    error::failed,
    stdio::{
        shared_pipe::{close_all as close_pipes, is_shared},
        terminal::close as close_terminal,
    },
};

/// What a monitor held when this process connected, as far as recovery has not claimed it yet.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Containers and pod inits, by id.
    pub(crate) objects: HashMap<String, Holding>,
    pub(crate) keys: HashSet<String>,
}

/// Descriptors that a monitor needs to move output.
const OUTPUT: [Role; 5] = [Role::StdoutRead, Role::StderrRead, Role::Terminal, Role::Log, Role::LOG_DIRECTORY];

/// A container or pod init with its descriptors.
#[derive(Debug)]
pub(crate) struct HeldObject {
    holding: Holding,
    files: Vec<(Role, OwnedFd)>,
    /// Whether a task waits on its pidfd for its exit.
    awaited: bool,
    /// Whether it exited with output that is not in its log yet.
    pending: bool,
}

/// Descriptors in custody.
#[derive(Debug, Default)]
pub(crate) struct Custody(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    objects: HashMap<String, HeldObject>,
    keys: HashMap<String, Vec<OwnedFd>>,
}

impl Contents {
    fn file(&self, id: &str, role: Role) -> Option<&OwnedFd> {
        let (_, file) = self.objects.get(id)?.files.iter().find(|(held_role, _)| *held_role == role)?;
        Some(file)
    }
}

impl HeldObject {
    /// Returns an object as a running monitor reported it.
    pub(crate) fn new(holding: Holding, files: Attachments) -> Self {
        let pending = has_unlogged_output(&holding, &files);
        Self { holding, files: files.into_iter().collect(), awaited: false, pending }
    }

    /// Closes the descriptors whose role is not needed any longer.
    fn retain(&mut self, needed: impl Fn(Role) -> bool) {
        let mut pipes = Vec::new();
        for (role, file) in self.files.extract_if(.., |(role, _)| !needed(*role)) {
            match role {
                Role::Terminal => close_terminal(file),
                role if is_shared(role) => pipes.push(file),
                _ => drop(file),
            }
        }
        close_pipes(pipes);
    }

    /// Returns the request that hands the object to a monitor that does not know it.
    pub(super) fn adoption(&self) -> Result<(Request, Attachments), Error> {
        let id = &self.holding.container.id;
        let files = self.files.iter().map(|(role, file)| (*role, file));
        let attachments = duplicates(files).map_err(failed(format_args!("duplicate descriptors of {id}")))?;
        Ok((Request::Adopt(Adopt { holding: self.holding.clone() }), attachments))
    }

    /// Returns the holding of an object that is being created. Its process is set later.
    pub(crate) fn initial_holding(id: &str, sandbox: &str, cgroup: &str, state: HoldingState) -> Holding {
        let container = ContainerDescription {
            id: id.to_owned(),
            sandbox: sandbox.to_owned(),
            cgroup: cgroup.to_owned(),
            ..ContainerDescription::default()
        };
        Holding { container, state }
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        self.retain(|_| false);
    }
}

impl Custody {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over all that a running monitor holds. Returns its objects and keys; their descriptors stay here.
    pub(super) fn take(&self, inventory: Vec<(Holding, Attachments)>) -> Inventory {
        let mut taken = Inventory::default();
        for (holding, files) in inventory {
            if holding.state == HoldingState::Kept {
                let mut files: Vec<_> = files.into_iter().collect();
                files.sort_by_key(|(role, _)| *role);
                taken.keys.insert(holding.container.id.clone());
                self.keep(holding.container.id, files.into_iter().map(|(_, file)| file).collect());
            } else {
                taken.objects.insert(holding.container.id.clone(), holding.clone());
                self.hold(HeldObject::new(holding, files));
            }
        }
        taken
    }

    pub(crate) fn hold(&self, held: HeldObject) {
        self.lock().objects.insert(held.holding.container.id.clone(), held);
    }

    /// Returns how long a command of the OCI runtime of a container may take; zero for one without.
    pub(super) fn runtime_timeout(&self, id: &str) -> Duration {
        let contents = self.lock();
        let runtime = contents.objects.get(id).and_then(|held| held.holding.container.runtime.as_ref());
        Duration::from_secs(runtime.map_or(0, |runtime| runtime.timeout).into())
    }

    pub(crate) fn forget(&self, id: &str) {
        self.lock().objects.remove(id);
    }

    pub(crate) fn keep(&self, key: String, files: Vec<OwnedFd>) {
        self.lock().keys.insert(key, files);
    }

    pub(crate) fn release(&self, key: &str) {
        self.lock().keys.remove(key);
    }

    /// Marks a container as started, and closes its start gate.
    pub(crate) fn started(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.holding.state = HoldingState::Running;
            held.retain(|role| role != Role::Sync);
        }
    }

    /// Marks a container as exited. All its output is in its log, unless [`Custody::output_pending`] was called before.
    pub(crate) fn exited(&self, id: &str, status: &ExitStatus) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.holding.state = HoldingState::Exited(status.clone());
            let pending = held.pending;
            held.retain(|role| role == Role::Pidfd || (pending && OUTPUT.contains(&role)));
        }
    }

    /// Keeps the output descriptors of a container when [`Custody::exited`] is called later: its log hangs.
    pub(crate) fn output_pending(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.pending = true;
        }
    }

    /// Closes the output descriptors of an exited container: all its output is in its log.
    pub(crate) fn drained(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.pending = false;
            held.retain(|role| role == Role::Pidfd);
        }
    }

    /// Replaces the descriptor of this role, or removes it if `file` is `None`.
    pub(crate) fn replace(&self, id: &str, role: Role, file: Option<OwnedFd>) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.retain(|held_role| held_role != role);
            held.files.extend(file.map(|file| (role, file)));
        }
    }

    /// Returns a duplicate of the descriptor of this role; `None` if it is not held.
    pub(crate) fn file(&self, id: &str, role: Role) -> io::Result<Option<OwnedFd>> {
        self.lock().file(id, role).map(OwnedFd::try_clone).transpose()
    }

    /// Calls `inspect` with the pidfd of a process, if it is held. The pidfd is borrowed, so that a lack of descriptors
    /// cannot make this fail.
    pub(crate) fn with_pidfd<T>(&self, id: &str, inspect: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.lock().file(id, Role::Pidfd).map(inspect)
    }

    /// Returns a duplicate of the pidfd for the task that waits for the exit. Later calls return `None`: one task is
    /// enough, no matter how often the monitor dies.
    pub(crate) fn pidfd_to_await(&self, id: &str) -> Option<OwnedFd> {
        let mut contents = self.lock();
        let held = contents.objects.get_mut(id).filter(|held| !held.awaited)?;
        let (_, pidfd) = held.files.iter().find(|(role, _)| *role == Role::Pidfd)?;
        let pidfd = pidfd.try_clone().ok()?;
        held.awaited = true;
        Some(pidfd)
    }

    /// Returns how many descriptors are kept under a key; 0 if the key is unknown.
    pub(crate) fn key_file_count(&self, key: &str) -> usize {
        self.lock().keys.get(key).map_or(0, Vec::len)
    }

    /// Returns a duplicate of the `n`th descriptor that is kept under a key.
    pub(crate) fn key_file(&self, key: &str, n: usize) -> io::Result<Option<OwnedFd>> {
        self.lock().keys.get(key).and_then(|files| files.get(n)).map(OwnedFd::try_clone).transpose()
    }

    pub(crate) fn holds(&self, id: &str) -> bool {
        self.lock().objects.contains_key(id)
    }

    /// Returns pid and start time of an object if it is in this state.
    pub(crate) fn process(&self, id: &str, state: &HoldingState) -> Option<(u32, u64)> {
        let contents = self.lock();
        let holding = &contents.objects.get(id)?.holding;
        (holding.state == *state).then_some((holding.container.pid, holding.container.start_time))
    }

    /// Reports whether an object exited with output that may not be in its log yet.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.lock().objects.get(id).is_some_and(|held| held.pending)
    }

    /// Reports whether the exit of an object is known; true for an object that is not held.
    pub(super) fn has_exited(&self, id: &str) -> bool {
        let contents = self.lock();
        contents.objects.get(id).is_none_or(|held| matches!(held.holding.state, HoldingState::Exited(_)))
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.lock().keys.keys().cloned().collect()
    }

    /// Returns the requests that hand everything to a new monitor, except for the ids and keys that it already knows.
    pub(super) fn adoptions(&self, known: &[String]) -> Result<Vec<(Request, Attachments)>, Error> {
        let contents = self.lock();
        let mut requests = Vec::new();
        for (_, held) in contents.objects.iter().filter(|(id, _)| !known.contains(id)) {
            requests.push(held.adoption()?);
        }
        for (key, files) in contents.keys.iter().filter(|(key, _)| !known.contains(key)) {
            requests.push((
                Request::Keep { key: key.clone() },
                duplicates((0..).map(Role::Kept).zip(files))
                    .map_err(failed(format_args!("duplicate descriptors of {key}")))?,
            ));
        }
        Ok(requests)
    }
}

/// Reports whether a monitor holds output of a container that exited. It does so only while the log hangs; otherwise it
/// closes the output before it reports the exit.
pub(super) fn has_unlogged_output(holding: &Holding, files: &Attachments) -> bool {
    let is_output = |role: &Role| matches!(role, Role::StdoutRead | Role::StderrRead | Role::Terminal);
    matches!(holding.state, HoldingState::Exited(_)) && files.iter().any(|(role, _)| is_output(role))
}

fn duplicates<'a>(files: impl Iterator<Item = (Role, &'a OwnedFd)>) -> std::io::Result<Attachments> {
    let mut attachments = Attachments::new();
    for (role, file) in files {
        attachments.push(role, file.try_clone()?);
    }
    Ok(attachments)
}
