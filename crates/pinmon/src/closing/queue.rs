//! Queue of descriptors to be closed by other processes.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use monitor_api::{Attachments, Role};
use rustix::fd::OwnedFd;

/// Queue of masters and pipes to be closed, shared by all pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseQueue {
    queue: Rc<RefCell<VecDeque<QueuedClose>>>,
    pod: Rc<str>,
}

/// A descriptor to be closed, and its pod.
#[derive(Debug)]
pub(super) struct QueuedClose {
    pub(super) file: Rc<OwnedFd>,
    pub(super) pod: Rc<str>,
}

impl CloseQueue {
    /// Returns the queue for descriptors of this pod. A pod with many closers that hang does not delay others.
    pub(crate) fn for_pod(&self, pod: &str) -> Self {
        Self { queue: Rc::clone(&self.queue), pod: pod.into() }
    }

    /// Queues a descriptor to be closed.
    pub(crate) fn put(&self, file: Rc<OwnedFd>) {
        self.queue.borrow_mut().push_back(QueuedClose { file, pod: Rc::clone(&self.pod) });
    }

    /// Closes descriptors of a frame that was not taken, or was sent late: the container with the same terminal or pipe
    /// may be removed by now.
    pub(crate) fn release(&self, attachments: Attachments) {
        for (role, file) in attachments {
            match role {
                Role::Terminal | Role::StdoutRead | Role::StderrRead | Role::StdinHold => self.put(Rc::new(file)),
                _ => drop(file),
            }
        }
    }

    /// Returns the descriptors without a closer, for an upgrade.
    pub(crate) fn waiting(&self) -> Vec<Rc<OwnedFd>> {
        self.queue.borrow().iter().map(|waiting| Rc::clone(&waiting.file)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Takes the next descriptor whose pod may have another closer.
    pub(super) fn take(&self, may: impl Fn(&Rc<str>) -> bool) -> Option<QueuedClose> {
        let mut queue = self.queue.borrow_mut();
        let at = queue.iter().position(|waiting| may(&waiting.pod))?;
        queue.remove(at)
    }
}
