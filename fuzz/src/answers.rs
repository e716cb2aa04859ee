use std::{fmt::Display, time::Duration};

use agent_api::{Answer, Configuration, ProcessId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::Builder,
};
use vm::guest::{Error, Guest};

use crate::calls::frames;

/// Time limit of a request. All bytes are there when it is made, so only an error in the program waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest text of an error: an operation with its object, and a cause.
const TEXT_MAX: usize = 2048;

/// Has the daemon read the bytes of an agent: the first frame as its introduction, and the rest when requests are
/// pending, whose numbers begin with 1. Each request must end, and errors must be bounded and printable.
pub fn answers(data: &[u8]) {
    let introduction = data.first_chunk().map_or(data.len(), |header| {
        let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        length.saturating_add(header.len()).min(data.len())
    });
    let (introduction, rest) = data.split_at(introduction);
    assert_eq!(frames::<Answer>(rest, rest.len()), frames::<Answer>(rest, 7));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(exchange(introduction, rest));
}

async fn exchange(introduction: &[u8], rest: &[u8]) {
    let (near, mut far) = UnixStream::pair().expect("sockets");
    far.write_all(introduction).await.expect("write");
    if rest.is_empty() {
        far.shutdown().await.expect("shut down");
    }
    let guest = match Guest::connect(near, TIMEOUT, TIMEOUT).await {
        Ok(guest) => guest,
        Err(error) => return check(&error),
    };
    let process = ProcessId::container("web");
    let answer = async {
        // The requests below are written before this is polled again.
        tokio::task::yield_now().await;
        // The daemon may have closed the connection.
        let _ = far.write_all(rest).await;
        let _ = far.shutdown().await;
        let _ = far.read_to_end(&mut Vec::new()).await;
    };
    let requests = async {
        let (ping, configure, state, wait, statistics) = tokio::join!(
            guest.ping(),
            guest.configure(Configuration::default()),
            guest.state(&process),
            guest.wait(&process),
            guest.statistics("web"),
        );
        let failures = [ping.err(), configure.err(), state.err(), wait.err(), statistics.err()];
        failures.iter().flatten().for_each(check);
        guest.closed().await;
        drop(guest);
    };
    tokio::join!(requests, answer);
}

fn check(error: &Error) {
    check_text(error);
    assert!(error.kind != vm::guest::ErrorKind::Timeout, "{error}");
}

/// Checks that a text is bounded and printable.
pub(crate) fn check_text(text: &impl Display) {
    let text = text.to_string();
    assert!(text.len() <= TEXT_MAX && !text.chars().any(char::is_control), "{} bytes: {text:?}", text.len());
}
