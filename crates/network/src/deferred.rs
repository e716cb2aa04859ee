//! Attachments that are undone in the background, because their network needs no program ([`Network::detach`](crate::Network::detach)).
//!
//! ```text
//! detach: records marked as leaving, names and ports of the built-in network released → reported as done
//! job:    DEL of the plugins in reverse → link, addresses, ports → record deleted
//! ```
//! Deleting a link takes the kernel 10 to 30 ms, and so does closing a socket for nftables. Until a job has ended, the
//! pod's addresses and ports are reserved, and the ledger has its records as leaving: the reconciler continues the job of a
//! daemon that was killed. The job has the namespace open, whose path is removed in the meantime.
//!
//! An `ADD` that finds an address, a port or a link taken while there are jobs is repeated when those have ended, or after
//! [`CONFLICT`]: the reason may be what they remove.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::attachment_key::AttachmentKey;

/// How many pods may wait for their job or be in one. Each has a descriptor open. Others are detached at once.
const PODS_MAX: usize = 64;
/// How many jobs run at the same time. The kernel deletes one link at a time; the other job prepares.
const AT_ONCE: usize = 2;
/// How long an attachment waits for jobs that may have what it needs.
pub(crate) const CONFLICT: Duration = Duration::from_secs(5);
/// How many further jobs run that take long.
const SLOW_MAX: usize = 8;
/// After this time a job does not count as running, so that what it waits for does not delay the others.
const SLOW: Duration = Duration::from_secs(1);

/// The attachments that are being undone in the background.
#[derive(Debug)]
pub(crate) struct Deferred {
    pods: Arc<Semaphore>,
    running: Semaphore,
    slow: Semaphore,
    jobs: Arc<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    pending: Mutex<Pending>,
    changed: Condvar,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// Number of the newest job.
    newest: u64,
    jobs: BTreeMap<u64, (Owner, Vec<AttachmentKey>)>,
}

/// Who undoes an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A job in the background: nobody else does it.
    Job,
    /// The reconciler, under the lock of the sandbox.
    Reconciler,
}

impl Pending {
    /// Reports whether a job up to this number is pending.
    fn has(&self, newest: u64) -> bool {
        self.jobs.first_key_value().is_some_and(|(number, _)| *number <= newest)
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Deferred {
    fn default() -> Self {
        let (running, slow) = (Semaphore::new(AT_ONCE), Semaphore::new(SLOW_MAX));
        Self { pods: Arc::new(Semaphore::new(PODS_MAX)), running, slow, jobs: Arc::default() }
    }
}

impl Deferred {
    /// Returns a place in the queue for a pod; `None` if too many pods are waiting.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.pods).try_acquire_owned().ok()
    }

    /// Notes that attachments are being undone until the returned value is dropped.
    pub(crate) fn begin(&self, owner: Owner, keys: &[AttachmentKey]) -> Job {
        let mut pending = self.jobs.lock();
        pending.newest += 1;
        let number = pending.newest;
        pending.jobs.insert(number, (owner, keys.to_vec()));
        Job { all: Arc::clone(&self.jobs), number }
    }

    /// Runs the work of a job when it is its turn. The queue is never closed.
    pub(crate) async fn in_turn<T>(&self, work: impl Future<Output = T>) -> T {
        let turn: Option<SemaphorePermit<'_>> = self.running.acquire().await.ok();
        let mut work = std::pin::pin!(work);
        if let Ok(done) = tokio::time::timeout(SLOW, &mut work).await {
            return done;
        }
        let slow = self.slow.try_acquire();
        if slow.is_ok() {
            drop(turn);
        }
        work.await
    }

    /// Reports whether an attachment is being undone by a job in the background.
    pub(crate) fn contains(&self, key: &AttachmentKey) -> bool {
        self.jobs.lock().jobs.values().any(|(owner, keys)| *owner == Owner::Job && keys.contains(key))
    }

    /// Reports whether any attachment is being undone.
    pub(crate) fn is_busy(&self) -> bool {
        !self.jobs.lock().jobs.is_empty()
    }

    /// Waits until what is being undone now has been undone, or the patience ends.
    pub(crate) async fn settle(&self, patience: Duration) {
        let newest = self.jobs.lock().newest;
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let mut changed = std::pin::pin!(self.jobs.notify.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if !self.jobs.lock().has(newest) || tokio::time::timeout_at(deadline, changed).await.is_err() {
                return;
            }
        }
    }

    /// Like [`Deferred::settle`], on a thread that may block.
    pub(crate) fn settle_blocking(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut pending = self.jobs.lock();
        let newest = pending.newest;
        while pending.has(newest) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            (pending, _) = self.jobs.changed.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Attachments that are being undone. They are not pending any longer when it is dropped, also if the task panics or the
/// runtime ends.
pub(crate) struct Job {
    all: Arc<Jobs>,
    number: u64,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.all.lock().jobs.remove(&self.number);
        self.all.changed.notify_all();
        self.all.notify.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn keys(sandbox: &str) -> Vec<AttachmentKey> {
        vec![AttachmentKey::primary(sandbox)]
    }

    #[tokio::test]
    async fn only_what_began_before_is_waited_for_and_not_without_end() {
        let deferred = Deferred::default();
        let old = deferred.begin(Owner::Job, &keys("old"));
        deferred.settle(Duration::from_millis(1)).await;
        let mut wait = std::pin::pin!(deferred.settle(LONG));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut wait).await.is_err(), "the job is waited for");
        let _new = deferred.begin(Owner::Job, &keys("new"));
        drop(old);
        let waited = tokio::time::timeout(LONG / 2, wait).await;
        assert!(waited.is_ok(), "the newer one is not waited for");
        assert!(deferred.is_busy() && !deferred.contains(&keys("old")[0]) && deferred.contains(&keys("new")[0]));
    }

    #[tokio::test]
    async fn jobs_that_hang_do_not_keep_others_from_running() {
        let deferred = Deferred::default();
        let hanging = || deferred.in_turn(std::future::pending::<()>());
        let other = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            deferred.in_turn(async {}).await;
        };
        let all = async { tokio::join!(hanging(), hanging(), hanging()) };
        tokio::select! {
            () = other => {}
            _ = all => panic!("they hang"),
        }
    }

    #[test]
    fn what_the_reconciler_undoes_is_waited_for_but_is_not_a_job() {
        let deferred = Deferred::default();
        let job = deferred.begin(Owner::Reconciler, &keys("a"));
        assert!(deferred.is_busy() && !deferred.contains(&keys("a")[0]));
        deferred.settle_blocking(Duration::from_millis(1));
        drop(job);
        assert!(!deferred.is_busy());
        deferred.settle_blocking(LONG);
    }
}
