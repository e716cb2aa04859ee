//! Switching the calling thread, for code that cannot hand its work to a helper thread.
//!
//! ```text
//! FREE ──ThreadGuard::new──▶ HELD ──drop: returned to the original──▶ FREE
//!                              └────drop: the kernel refused────────▶ POISONED (for the rest of the thread's life)
//! ```

use std::{cell::Cell, marker::PhantomData, path::Path};

use rustix::{
    fd::AsFd,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{Error, Namespace, NsId, worker::OriginalNamespaces};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Free,
    Held,
    Poisoned,
}

thread_local! {
    static STATE: Cell<ThreadState> = const { Cell::new(ThreadState::Free) };
}

/// Switches the calling thread between network namespaces, and returns it to the one it was in when this value is
/// dropped.
///
/// The namespace that the thread is in is cached: [`ThreadGuard::switch`] to the same one takes less than 1 ns instead of
/// the 1.4 µs of setns(2). So other code must not call setns(2) or unshare(2) on this thread in the meantime.
///
/// While the thread is in a namespace it keeps it alive, with all of its links: call [`ThreadGuard::switch_back`] before
/// the thread waits for a long time.
///
/// Never use it across an `.await`, or on a thread that runs tasks of others: they would open their sockets in the
/// wrong namespace. [`Namespace::enter`] does not have this problem.
#[derive(Debug)]
pub struct ThreadGuard {
    original: Namespace,
    original_id: NsId,
    current: Cell<NsId>,
    /// The namespace is one of this thread, so the guard must not be sent to another.
    not_send: PhantomData<*const ()>,
}

impl ThreadGuard {
    /// Notes the namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if an earlier guard could not return the thread to its namespace, or if it has a guard already.
    pub fn new() -> Result<Self, Error> {
        match STATE.get() {
            ThreadState::Free => {}
            ThreadState::Held => return Err(Error::Poisoned("it has a guard already")),
            ThreadState::Poisoned => return Err(Error::Poisoned("it could not return to its original namespace")),
        }
        // Helper threads that are started while this one is elsewhere must return to where it was before.
        OriginalNamespaces::of_this_process()?;
        let original = Namespace::open(Path::new("/proc/thread-self/ns/net"))?;
        let original_id = original.id()?;
        STATE.set(ThreadState::Held);
        Ok(Self { original, original_id, current: Cell::new(original_id), not_send: PhantomData })
    }

    /// Moves the thread into a namespace; does nothing if it is there already. Returns whether it was moved.
    ///
    /// # Errors
    /// The kernel's error; the thread is then where it was.
    pub fn switch(&self, namespace: &Namespace) -> Result<bool, Error> {
        let id = namespace.id()?;
        if id == self.current.get() {
            return Ok(false);
        }
        enter(namespace)?;
        self.current.set(id);
        Ok(true)
    }

    /// Moves the thread back into its original namespace. Returns whether it was moved.
    ///
    /// # Errors
    /// The kernel's error; the thread is then where it was.
    pub fn switch_back(&self) -> Result<bool, Error> {
        self.switch(&self.original)
    }

    /// Returns the namespace that the thread is in.
    #[must_use]
    pub fn current(&self) -> NsId {
        self.current.get()
    }

    /// Returns the namespace that the thread returns to.
    #[must_use]
    pub fn original(&self) -> NsId {
        self.original_id
    }

    /// Reports whether the calling thread could not return to its original namespace. Such a thread must end: whatever
    /// runs on it opens its sockets in the wrong namespace.
    #[must_use]
    pub fn is_thread_poisoned() -> bool {
        STATE.get() == ThreadState::Poisoned
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        STATE.set(if self.switch_back().is_ok() { ThreadState::Free } else { ThreadState::Poisoned });
    }
}

fn enter(namespace: &Namespace) -> Result<(), Error> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|e| Error::kernel("enter", "network namespace", e))
}
