use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{engine::Failure, note::note};

/// The signals that end a run.
const SIGNALS: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Requests of the user to end the run, by SIGINT, SIGTERM or SIGHUP.
#[derive(Debug)]
pub(crate) struct Interrupt(watch::Receiver<usize>);

impl Interrupt {
    /// Replaces the default actions of the signals.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (sender, receiver) = watch::channel(0);
        for kind in SIGNALS {
            let signals = signal(kind).map_err(|error| Failure(format!("handle a signal: {error}")))?;
            tokio::spawn(count(signals, sender.clone()));
        }
        Ok(Self(receiver))
    }

    /// Returns whether the run should end after the current turn.
    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits for a further request, if there was one when this was called, else for a second one.
    pub(crate) async fn repeated(&self) {
        let mut requests = self.0.clone();
        let seen = (*requests.borrow()).max(1);
        if requests.wait_for(|requests| *requests > seen).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn count(mut signals: Signal, requests: watch::Sender<usize>) {
    while signals.recv().await.is_some() {
        requests.send_modify(|requests| *requests += 1);
        if *requests.borrow() == 1 {
            note("pinion-bench: ending after this turn; a second interrupt ends the turn, too");
        }
    }
}
