//! Queries over TCP (RFC 7766): one after the other on each connection.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    answer::{Answer, answer},
    forward::{Transport, forward, framed},
    state::{CONNECTIONS, QUERY_MAX, State},
    wire::Code,
};

/// How long a connection may make no progress.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after an error of the listener, which may repeat.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until the task is aborted, which aborts them, too.
pub(crate) async fn serve(listener: TcpListener, state: Arc<State>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Others wait in the backlog, which the kernel bounds.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    let _permit = permit;
                    // The client has closed the connection, or has sent something that is not a query.
                    let _ = converse(stream, &state).await;
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn converse(mut stream: TcpStream, state: &State) -> io::Result<()> {
    loop {
        state.pace.wait().await;
        let message = timeout(IDLE, read(&mut stream)).await??;
        let response = match answer(&*state.names, &message) {
            Answer::Ignore => return Ok(()),
            Answer::Response(response) => response,
            Answer::Forward(query) => match state.permit() {
                Some(_permit) => forward(&query, &message, &state.servers().await, Transport::Tcp).await,
                None => query.empty(Code::ServerFailure),
            },
        };
        timeout(IDLE, stream.write_all(&framed(&response)?)).await??;
    }
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > QUERY_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
