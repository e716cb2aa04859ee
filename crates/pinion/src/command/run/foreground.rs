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

/// Time after a termination signal until a message reports that the container is still running.
const NOTICE_DELAY: Duration = Duration::from_secs(1);
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The highest signal number that the async runtime can catch.
const LAST: i32 = 63;
/// Signals that are not forwarded: those that cannot be caught, faults of this program, SIGCHLD, SIGPIPE, job control
/// of the shell that started it, and the two that the C library reserves. SIGWINCH is handled by the session.
const NOT_FORWARDED: [i32; 17] = [4, 5, 6, 7, 8, SIGKILL, 11, 13, 17, 19, 20, 21, 22, 28, 31, 32, 33];

/// The caught signals, which are forwarded to the container.
pub(super) struct Signals(mpsc::Receiver<i32>);

impl Signals {
    /// Catches every signal that is forwarded. From then on none of them ends this program.
    pub(super) fn catch() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel(1);
        for number in (SIGHUP..=LAST).filter(|number| !NOT_FORWARDED.contains(number)) {
            let stream = signal(SignalKind::from_raw(number));
            let mut stream = stream.map_err(|error| Failure::new(format!("catch signal {number}: {error}")))?;
            let sender = sender.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(number).await.is_ok() {} });
        }
        Ok(Self(receiver))
    }

    /// Waits for the next signal and returns its number.
    async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(number) => number,
            // The senders live as long as the runtime.
            None => std::future::pending().await,
        }
    }
}

/// Whether the signal asks a program to terminate, rather than to reload or to print its state.
fn is_termination(number: i32) -> bool {
    matches!(number, SIGINT | SIGQUIT | SIGTERM)
}

/// Relays stdio and signals until the container exits or the user detaches. The second termination signal kills the
/// container, because the init process of a PID namespace ignores signals without a handler (pid_namespaces(7)).
pub(super) async fn relay(
    client: &mut Client,
    id: &str,
    session: Session,
    mut signals: Signals,
) -> Result<End, Failure> {
    let relay = session.relay();
    tokio::pin!(relay);
    let (mut is_terminating, mut reported) = (false, false);
    loop {
        tokio::select! {
            end = &mut relay => return end,
            number = signals.next() => {
                let force = is_terminating && is_termination(number);
                kill(client, id, if force { SIGKILL } else { number }, force).await;
                is_terminating |= is_termination(number);
            }
            () = sleep(NOTICE_DELAY), if is_terminating && !reported => {
                eprintln!("pinion: the container is still running; the next signal kills it");
                reported = true;
            }
        }
    }
}

/// Sends a signal to the container. Errors are ignored: either the container exited in the meantime, or the user sees
/// that it is still running.
async fn kill(client: &mut Client, id: &str, signal: i32, all: bool) {
    let _ = client.native.kill(KillRequest { container: id.to_owned(), signal, all }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_faults_and_job_control_are_not_forwarded() {
        let signals = NOT_FORWARDED.iter().filter(|n| **n < 32).filter_map(|n| pod::Signal::from_number(*n));
        let names: Vec<String> = signals.map(|signal| signal.to_string()).collect();
        let expected = "SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGSEGV SIGPIPE SIGCHLD SIGSTOP SIGTSTP SIGTTIN \
                        SIGTTOU SIGWINCH SIGSYS";
        assert_eq!(names.join(" "), expected);
    }
}
