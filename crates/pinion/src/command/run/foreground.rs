use std::time::Duration;

use cri_proto::pinion::KillRequest;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};

use crate::{
    Client, Failure,
    session::{End, Session},
};

/// After this, people are told that a container did not mind their signal.
const PATIENCE: Duration = Duration::from_secs(1);
/// Ends everything.
const SIGKILL: i32 = 9;

/// Signals that are the container's while this program waits for it.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
}

impl Signals {
    /// From now on these signals do not end this program.
    pub(super) fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).map_err(|error| Failure::new(format!("catch signals: {error}")));
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
            quit: catch(SignalKind::quit())?,
        })
    }

    /// The number of the next one.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
            _ = self.quit.recv() => SignalKind::quit().as_raw_value(),
        }
    }
}

/// Stays with a container until it ended or the user left. A first signal is passed on; a second one ends it by force,
/// for the first process of a PID namespace ignores whatever it does not handle.
pub(super) async fn stay(
    client: &mut Client,
    id: &str,
    session: Session,
    mut signals: Signals,
) -> Result<End, Failure> {
    let carry = session.carry();
    tokio::pin!(carry);
    let mut passed = false;
    let mut told = false;
    loop {
        tokio::select! {
            end = &mut carry => return end,
            number = signals.next() => {
                let number = if passed { SIGKILL } else { number };
                kill(client, id, number, passed).await;
                passed = true;
            }
            () = sleep(PATIENCE), if passed && !told => {
                eprintln!("pinion: the container goes on; the next signal ends it by force");
                told = true;
            }
        }
    }
}

/// A container that ended meanwhile needs no signal; any other failure shows by its going on.
async fn kill(client: &mut Client, id: &str, signal: i32, all: bool) {
    let _ = client.native.kill(KillRequest { container: id.to_owned(), signal, all }).await;
}
