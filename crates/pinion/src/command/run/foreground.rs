use std::time::Duration;

use cri_proto::pinion::KillRequest;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};

use crate::{
    Client, Failure,
    session::{End, Session},
};

/// After this, a message says that the container ignored the signal.
const PATIENCE: Duration = Duration::from_secs(1);
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Last signal that the async runtime can watch.
const LAST: i32 = 63;
/// Signals that stay this program's: what cannot be caught, its own faults, its children, its reader, job control of
/// the shell that started it, and the two that the C library keeps for itself. SIGWINCH is followed by the session.
const OWN: [i32; 17] = [4, 5, 6, 7, 8, SIGKILL, 11, 13, 17, 19, 20, 21, 22, 28, 31, 32, 33];

/// Signals that are the container's while this program waits for it.
pub(super) struct Signals(mpsc::UnboundedReceiver<i32>);

impl Signals {
    /// Catches every signal that can be forwarded: from now on none of them ends this program.
    pub(super) fn catch() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for number in (SIGHUP..=LAST).filter(|number| !OWN.contains(number)) {
            let caught = signal(SignalKind::from_raw(number));
            let mut caught = caught.map_err(|error| Failure::new(format!("catch signal {number}: {error}")))?;
            let sender = sender.clone();
            tokio::spawn(async move { while caught.recv().await.is_some() && sender.send(number).is_ok() {} });
        }
        Ok(Self(receiver))
    }

    /// Number of the next one.
    async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(number) => number,
            // The senders live as long as the runtime.
            None => std::future::pending().await,
        }
    }
}

/// Whether a user who sends it wants the container to end, not to reload or to report.
fn is_end(number: i32) -> bool {
    matches!(number, SIGINT | SIGQUIT | SIGTERM)
}

/// Stays with a container until it ended or the user left. Signals are forwarded; the second one that asks for the end
/// ends it by force, for the first process of a PID namespace ignores whatever it does not handle.
pub(super) async fn stay(
    client: &mut Client,
    id: &str,
    session: Session,
    mut signals: Signals,
) -> Result<End, Failure> {
    let carry = session.carry();
    tokio::pin!(carry);
    let (mut asked_to_end, mut reported) = (false, false);
    loop {
        tokio::select! {
            end = &mut carry => return end,
            number = signals.next() => {
                let force = asked_to_end && is_end(number);
                kill(client, id, if force { SIGKILL } else { number }, force).await;
                asked_to_end |= is_end(number);
            }
            () = sleep(PATIENCE), if asked_to_end && !reported => {
                eprintln!("pinion: the container is still running; the next signal ends it by force");
                reported = true;
            }
        }
    }
}

/// A container that ended in the meantime needs no signal; any other failure shows in that it keeps running.
async fn kill(client: &mut Client, id: &str, signal: i32, all: bool) {
    let _ = client.native.kill(KillRequest { container: id.to_owned(), signal, all }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_or_a_fault_sends_is_not_forwarded() {
        let names: Vec<&str> = OWN.iter().filter(|n| **n < 32).map(|n| crate::signal_name::name(*n)).collect();
        let own = "ILL TRAP ABRT BUS FPE KILL SEGV PIPE CHLD STOP TSTP TTIN TTOU WINCH SYS";
        assert_eq!(names.join(" "), own);
    }
}
