//! Duplicates of what the monitor holds, to be handed to the next one.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use monitor_api::{Adopt, Attachments, ExitStatus, Holding, HoldingState, LogOptions, Request, Role};

use crate::{
    Error,
    error::failed,
    session::{close_pipes, close_terminal, is_shared},
};

/// What a monitor held when this process came, and nobody asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Containers and pod inits, by id.
    pub(crate) objects: HashMap<String, Holding>,
    pub(crate) keys: HashSet<String>,
}

/// What a monitor needs to move output.
const OUTPUT: [Role; 4] = [Role::StdoutRead, Role::StderrRead, Role::Terminal, Role::Log];

/// One container or pod init.
#[derive(Debug)]
pub(crate) struct Held {
    holding: Holding,
    files: Vec<(Role, OwnedFd)>,
    /// Its end is waited for by its pidfd.
    awaited: bool,
    /// It ended, and its output is not in its log yet.
    pending: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Custody(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    objects: HashMap<String, Held>,
    keys: HashMap<String, Vec<OwnedFd>>,
}

impl Contents {
    fn file(&self, id: &str, role: Role) -> Option<&OwnedFd> {
        let (_, file) = self.objects.get(id)?.files.iter().find(|(of, _)| *of == role)?;
        Some(file)
    }
}

impl Held {
    /// Of a running monitor's own words.
    pub(crate) fn new(holding: Holding, files: Attachments) -> Self {
        let pending = has_unlogged_output(&holding, &files);
        Self { holding, files: files.into_iter().collect(), awaited: false, pending }
    }

    /// Closes what is not needed any longer.
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

    /// What to say to a monitor that does not know it.
    pub(super) fn adoption(&self) -> Result<(Request, Attachments), Error> {
        let id = &self.holding.id;
        let files = self.files.iter().map(|(role, file)| (*role, file));
        let attachments = duplicates(files).map_err(failed(format_args!("duplicate descriptors of {id}")))?;
        Ok((Request::Adopt(Adopt { holding: self.holding.clone() }), attachments))
    }

    /// Of an object that is only just being made: the process is filled in when it is there.
    pub(crate) fn nascent(id: &str, sandbox: &str, cgroup: &str, state: HoldingState) -> Holding {
        Holding {
            id: id.to_owned(),
            sandbox: sandbox.to_owned(),
            cgroup: cgroup.to_owned(),
            pid: 0,
            start_time: 0,
            log: LogOptions::default(),
            state,
            hooks: None,
            user_namespace: None,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.retain(|_| false);
    }
}

impl Custody {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that a running monitor holds. What it tells of objects comes back; their descriptors stay here from now on.
    pub(super) fn take(&self, inventory: Vec<(Holding, Attachments)>) -> Inventory {
        let mut told = Inventory::default();
        for (holding, files) in inventory {
            if holding.state == HoldingState::Kept {
                let mut files: Vec<_> = files.into_iter().collect();
                files.sort_by_key(|(role, _)| *role);
                told.keys.insert(holding.id.clone());
                self.keep(holding.id, files.into_iter().map(|(_, file)| file).collect());
            } else {
                told.objects.insert(holding.id.clone(), holding.clone());
                self.hold(Held::new(holding, files));
            }
        }
        told
    }

    pub(crate) fn hold(&self, held: Held) {
        self.lock().objects.insert(held.holding.id.clone(), held);
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

    /// A started container needs its gate no more.
    pub(crate) fn started(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.holding.state = HoldingState::Running;
            held.retain(|role| role != Role::Sync);
        }
    }

    /// All of its output is in its log, or [`Custody::output_pending`] was called before.
    pub(crate) fn exited(&self, id: &str, status: &ExitStatus) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.holding.state = HoldingState::Exited(status.clone());
            let pending = held.pending;
            held.retain(|role| role == Role::Pidfd || (pending && OUTPUT.contains(&role)));
        }
    }

    /// Keeps the output of a container that is about to be [`Custody::exited`]: its log hangs.
    pub(crate) fn output_pending(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.pending = true;
        }
    }

    /// All of its output is in its log now: only the record is left.
    pub(crate) fn drained(&self, id: &str) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.pending = false;
            held.retain(|role| role == Role::Pidfd);
        }
    }

    /// Another file in place of the one of this role, or none.
    pub(crate) fn replace(&self, id: &str, role: Role, file: Option<OwnedFd>) {
        if let Some(held) = self.lock().objects.get_mut(id) {
            held.retain(|of| of != role);
            held.files.extend(file.map(|file| (role, file)));
        }
    }

    /// A duplicate of one descriptor, where it is held.
    pub(crate) fn file(&self, id: &str, role: Role) -> io::Result<Option<OwnedFd>> {
        self.lock().file(id, role).map(OwnedFd::try_clone).transpose()
    }

    /// What `ask` says of a process's pidfd, where that is held. It is lent: this must not fail for want of
    /// descriptors.
    pub(crate) fn of_pidfd<T>(&self, id: &str, ask: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.lock().file(id, Role::Pidfd).map(ask)
    }

    /// A duplicate of the pidfd, once, for who waits for the end: one is enough, however often a monitor dies.
    pub(crate) fn pidfd_to_await(&self, id: &str) -> Option<OwnedFd> {
        let mut contents = self.lock();
        let held = contents.objects.get_mut(id).filter(|held| !held.awaited)?;
        let (_, pidfd) = held.files.iter().find(|(of, _)| *of == Role::Pidfd)?;
        let pidfd = pidfd.try_clone().ok()?;
        held.awaited = true;
        Some(pidfd)
    }

    /// How many descriptors are kept under a key; 0 for one that is unknown.
    pub(crate) fn kept_count(&self, key: &str) -> usize {
        self.lock().keys.get(key).map_or(0, Vec::len)
    }

    /// A duplicate of one descriptor that is kept under a key.
    pub(crate) fn kept(&self, key: &str, n: usize) -> io::Result<Option<OwnedFd>> {
        self.lock().keys.get(key).and_then(|files| files.get(n)).map(OwnedFd::try_clone).transpose()
    }

    pub(crate) fn holds(&self, id: &str) -> bool {
        self.lock().objects.contains_key(id)
    }

    /// Pid and start time of an object in this state.
    pub(crate) fn process(&self, id: &str, state: &HoldingState) -> Option<(u32, u64)> {
        let contents = self.lock();
        let holding = &contents.objects.get(id)?.holding;
        (holding.state == *state).then_some((holding.pid, holding.start_time))
    }

    /// Whether it ended, and its output is not known to be in its log.
    pub(super) fn is_pending(&self, id: &str) -> bool {
        self.lock().objects.get(id).is_some_and(|held| held.pending)
    }

    /// Whether its end is known; also for an object that is not held.
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

    /// What to say to a new monitor, but for those it knows already.
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

/// Whether a monitor holds the output of a container that ended: its log hangs. Else it closes that before the end is
/// reported.
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
