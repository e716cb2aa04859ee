use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

type Execs = Arc<Mutex<BTreeMap<String, Arc<Notify>>>>;

/// Commands that this process started in the guest of a pod: their ports are in use.
#[derive(Default)]
pub(crate) struct GuestExecs(Execs);

/// A command in a guest. Its ports are leftovers once this is dropped.
pub(crate) struct GuestExec {
    id: String,
    killed: Arc<Notify>,
    all: Execs,
}

impl GuestExecs {
    /// Records a command. Called before its first port is added.
    pub(crate) fn begin(&self, id: &str) -> GuestExec {
        let killed = Arc::new(Notify::new());
        lock(&self.0).insert(id.to_owned(), Arc::clone(&killed));
        GuestExec { id: id.to_owned(), killed, all: Arc::clone(&self.0) }
    }

    /// Returns the ids of all commands.
    pub(crate) fn ids(&self) -> Vec<String> {
        lock(&self.0).keys().cloned().collect()
    }

    /// Records that a command is killed: the rest of its output is not needed.
    pub(crate) fn kill(&self, id: &str) {
        if let Some(killed) = lock(&self.0).get(id) {
            killed.notify_one();
        }
    }
}

impl GuestExec {
    /// Waits until it is killed. At most one caller may wait.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }
}

impl Drop for GuestExec {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

fn lock(execs: &Execs) -> MutexGuard<'_, BTreeMap<String, Arc<Notify>>> {
    execs.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_is_recorded_until_it_is_dropped() {
        let execs = GuestExecs::default();
        let (one, two) = (execs.begin("one"), execs.begin("two"));
        execs.kill("one");
        execs.kill("unknown");
        // Not lost, although it was not waited for.
        one.killed().await;
        let waited = tokio::time::timeout(std::time::Duration::from_millis(10), two.killed()).await;
        assert!(waited.is_err(), "another command was killed");
        drop(one);
        assert_eq!(execs.ids(), ["two"]);
    }
}
