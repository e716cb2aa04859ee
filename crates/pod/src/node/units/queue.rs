//! The queue of changes: one entry for each unit.

use std::collections::{HashMap, VecDeque};

use cgroup::GroupPath;

use super::Registration;

/// The maximum number of entries. Units whose change is dropped are found by the next audit.
const ENTRIES_MAX: usize = 16_384;

/// A change that systemd has to apply to a unit.
#[derive(Debug)]
pub(super) enum Entry {
    Register(Registration),
    Update(GroupPath, oci::Resources),
    Stop(GroupPath),
    /// Stops a slice that pods share, if it has no groups anymore.
    StopEmpty(GroupPath),
}

/// A comparison of systemd's units with the objects on record.
#[derive(Debug)]
pub(super) struct Audit {
    /// The number that [`Queue::begin_listing`] returned before the objects were listed.
    pub(super) listing: u64,
    /// The groups that must be registered.
    pub(super) wanted: Vec<Registration>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    order: VecDeque<String>,
    entries: HashMap<String, Entry>,
    /// Units that this process was requested to register, with the number of the last listing of objects before that.
    registered: HashMap<String, u64>,
    /// The number of the last listing of objects for an audit.
    listing: u64,
    /// An audit that was requested.
    pub(super) audit: Option<Audit>,
    /// Whether the thread is processing an entry or an audit.
    pub(super) is_processing: bool,
    /// Whether the engine is closed.
    pub(super) closed: bool,
}

impl Entry {
    pub(super) fn path(&self) -> &GroupPath {
        match self {
            Self::Register(registration) => &registration.path,
            Self::Update(path, _) | Self::Stop(path) | Self::StopEmpty(path) => path,
        }
    }
}

impl Queue {
    /// Adds an entry. It replaces the pending one of its unit; limits replace those of a pending registration. Nothing
    /// follows the removal of a unit.
    pub(super) fn push(&mut self, entry: Entry) {
        let name = entry.path().name().to_owned();
        if matches!(entry, Entry::Register(_)) {
            self.registered.insert(name.clone(), self.listing);
        }
        let Some(pending) = self.entries.get_mut(&name) else {
            if self.entries.len() < ENTRIES_MAX {
                self.order.push_back(name.clone());
                self.entries.insert(name, entry);
            }
            return;
        };
        match (pending, entry) {
            (Entry::Stop(_), _) => {}
            (Entry::Register(pending), Entry::Update(_, resources)) => {
                pending.resources = Registration::updated(std::mem::take(&mut pending.resources), resources);
            }
            (pending, entry) => *pending = entry,
        }
    }

    /// Takes the oldest entry.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let name = self.order.pop_front()?;
        self.entries.remove(&name)
    }

    /// Puts an entry back that could not be processed, unless there is a newer one.
    pub(super) fn put_back(&mut self, entry: Entry) {
        let name = entry.path().name().to_owned();
        let Some(pending) = self.entries.get_mut(&name) else {
            self.order.push_front(name.clone());
            self.entries.insert(name, entry);
            return;
        };
        let newer = match pending {
            Entry::Update(_, resources) => resources.clone(),
            Entry::Register(_) | Entry::Stop(_) | Entry::StopEmpty(_) => return,
        };
        if let Entry::Register(registration) = entry {
            let resources = Registration::updated(registration.resources, newer);
            *pending = Entry::Register(Registration { resources, ..registration });
        }
    }

    /// Reports whether there is a pending entry of a unit.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Reports whether no entry and no audit is waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.audit.is_none()
    }

    /// Returns a number for an audit whose objects are listed from now on.
    pub(super) fn begin_listing(&mut self) -> u64 {
        self.listing += 1;
        self.listing
    }

    /// Reports whether the objects of an audit were listed before a unit was registered, so that its object may be
    /// missing among them.
    pub(super) fn is_newer_than(&self, name: &str, listing: u64) -> bool {
        self.is_pending(name) || self.registered.get(name).is_some_and(|registered| *registered >= listing)
    }

    /// Forgets a unit that was stopped.
    pub(super) fn forget(&mut self, name: &str) {
        self.registered.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> GroupPath {
        GroupPath::parse(&format!("/a.slice/{name}")).expect("a path")
    }

    fn register(name: &str) -> Entry {
        Entry::Register(Registration { path: path(name), process: None, resources: oci::Resources::default() })
    }

    fn update(name: &str, limit: i64) -> Entry {
        let pids = Some(oci::Pids { limit: Some(limit) });
        Entry::Update(path(name), oci::Resources { pids, ..oci::Resources::default() })
    }

    fn limit_of(entry: Option<Entry>) -> Option<i64> {
        match entry? {
            Entry::Register(registration) => registration.resources.pids?.limit,
            Entry::Update(_, resources) => resources.pids?.limit,
            Entry::Stop(_) | Entry::StopEmpty(_) => None,
        }
    }

    #[test]
    fn a_later_entry_of_a_unit_replaces_the_earlier_one() {
        let mut queue = Queue::default();
        queue.push(register("x"));
        queue.push(update("y", 1));
        queue.push(update("y", 2));
        queue.push(update("x", 3));
        assert_eq!(limit_of(queue.pop()), Some(3), "a registration has the newest limits");
        assert_eq!(limit_of(queue.pop()), Some(2));
        assert!(queue.pop().is_none() && queue.is_idle());
    }

    #[test]
    fn an_update_before_the_registration_keeps_the_default_limit_of_processes() {
        let created = || {
            let resources = oci::Resources { pids: Some(oci::Pids { limit: Some(7) }), ..oci::Resources::default() };
            Entry::Register(Registration { path: path("x"), process: None, resources })
        };
        let other = || Entry::Update(path("x"), oci::Resources::default());
        let mut queue = Queue::default();
        queue.push(created());
        queue.push(other());
        assert_eq!(limit_of(queue.pop()), Some(7));
        queue.push(other());
        queue.put_back(created());
        assert_eq!(limit_of(queue.pop()), Some(7));
    }

    #[test]
    fn nothing_follows_a_removal() {
        let mut queue = Queue::default();
        queue.push(register("x"));
        queue.push(Entry::Stop(path("x")));
        queue.push(update("x", 1));
        queue.put_back(register("x"));
        assert!(matches!(queue.pop(), Some(Entry::Stop(_))) && queue.pop().is_none());
    }

    #[test]
    fn an_entry_that_is_put_back_does_not_replace_a_newer_one() {
        let mut queue = Queue::default();
        queue.push(register("x"));
        let entry = queue.pop().expect("an entry");
        queue.push(update("x", 5));
        queue.put_back(entry);
        let entry = queue.pop();
        assert!(matches!(entry, Some(Entry::Register(_))));
        assert_eq!(limit_of(entry), Some(5));
    }

    #[test]
    fn an_audit_does_not_know_what_was_registered_after_its_objects_were_listed() {
        let mut queue = Queue::default();
        queue.push(register("before"));
        let first = queue.begin_listing();
        queue.push(register("between"));
        let second = queue.begin_listing();
        queue.push(register("after"));
        while queue.pop().is_some() {}
        let newer = |queue: &Queue, listing| ["before", "between", "after"].map(|n| queue.is_newer_than(n, listing));
        assert_eq!(newer(&queue, first), [false, true, true]);
        assert_eq!(newer(&queue, second), [false, false, true]);
        queue.forget("after");
        assert_eq!(newer(&queue, second), [false; 3]);
    }

    /// A removal that was dropped or refused does not protect the unit from the audit.
    #[test]
    fn a_dropped_removal_is_left_to_the_next_audit() {
        let mut queue = Queue::default();
        queue.push(register("x"));
        queue.pop();
        (0..ENTRIES_MAX).for_each(|number| queue.push(update(&number.to_string(), 1)));
        queue.push(Entry::Stop(path("x")));
        assert!(!queue.is_pending("x"), "the queue was full");
        let listing = queue.begin_listing();
        assert!(!queue.is_newer_than("x", listing));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = Queue::default();
        (0..ENTRIES_MAX + 5).for_each(|number| queue.push(register(&number.to_string())));
        assert_eq!((queue.entries.len(), queue.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
    }
}
