//! A connection to a TCP port of a guest: no process of the node reaches the loopback device there, so the agent connects,
//! and a port carries the bytes.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use agent_api::{
    FORWARD_PREFIX,
    chunk::{CHUNK_MAX, HEADER, Unchunker, header},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
};
use vm::vmm::Vmm;

use super::{connection, connection::NAME_LENGTH, from_guest, from_vmm};
use crate::{
    Error, ErrorKind,
    error::failed,
    parts::Parts,
    store::{Sandbox, identifier},
};

/// Interval of the checks whether the client is there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the guest may take for what a client sent before it closed its end.
const GRACE: Duration = Duration::from_secs(10);
/// Most connections that are forwarded to a pod at a time. Each takes a port, which commands and containers need, too.
const FORWARDS_MAX: usize = 32;

/// Connects to a TCP port of the guest of a pod.
///
/// # Errors
/// `Unavailable` if nothing listens on the port, `ResourceExhausted` for one connection too many, and those of the connection to the virtual machine.
pub(crate) async fn forward(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>, port: u16) -> Result<UnixStream, Error> {
    let (near, far) = UnixStream::pair().map_err(failed("create a socket pair"))?;
    let (send, connected) = oneshot::channel();
    // A task of its own: a client that gives up leaves no port.
    offload::spawn(serve(Arc::clone(parts), Arc::clone(sandbox), port, far, send));
    connected.await.unwrap_or_else(|_| Err(Error::internal("a bug: a connection ended without a reason")))?;
    Ok(near)
}

async fn serve(
    parts: Arc<Parts>,
    sandbox: Arc<Sandbox>,
    port: u16,
    client: UnixStream,
    connected: oneshot::Sender<Result<(), Error>>,
) {
    let name = match reserve(&sandbox) {
        Ok(name) => name,
        Err(error) => return drop(connected.send(Err(error))),
    };
    match open(&parts, &sandbox, port, &name).await {
        Ok(guest) => {
            if connected.send(Ok(())).is_ok() {
                // This moves bytes, and blocks nobody.
                let _ = tokio::spawn(relay(client, guest)).await;
            }
        }
        Err(error) => drop(connected.send(Err(error))),
    }
    remove(&parts, &sandbox, &name).await;
    sandbox.forwards().remove(&name);
}

/// Chooses the name of a port. It is kept when connections to the virtual machine are replaced.
fn reserve(sandbox: &Sandbox) -> Result<String, Error> {
    let name = format!("{FORWARD_PREFIX}{}", &identifier::generate()?[..NAME_LENGTH]);
    let mut forwards = sandbox.forwards();
    if forwards.len() >= FORWARDS_MAX {
        let message = format!("the pod has {FORWARDS_MAX} forwarded connections already");
        return Err(Error::new(ErrorKind::ResourceExhausted, message));
    }
    forwards.insert(name.clone());
    Ok(name)
}

/// Adds a port that the agent connects. Returns its end on the node.
async fn open(parts: &Parts, sandbox: &Sandbox, port: u16, name: &str) -> Result<UnixStream, Error> {
    let _running = sandbox.pause.read().await;
    let connection = connection(parts, sandbox).await?;
    let (near, far) = UnixStream::pair().map_err(failed("create a socket pair"))?;
    let far = far.into_std().map_err(failed("use a socket"))?;
    connection.qemu.add_connection(name, far.into()).await.map_err(from_vmm)?;
    connection.guest.forward(port, name).await.map_err(from_guest)?;
    Ok(near)
}

/// Removes a port. One that cannot be removed ends with the virtual machine.
async fn remove(parts: &Parts, sandbox: &Sandbox, name: &str) {
    if sandbox.vm.lock().await.is_none() {
        return;
    }
    let removed = async { connection(parts, sandbox).await?.qemu.remove_port(name).await.map_err(from_vmm) };
    if let Err(error) = removed.await {
        tracing::debug!(sandbox = sandbox.id().as_str(), "{error}");
    }
}

/// Moves bytes until both directions have ended, the guest is gone, or the client is and the guest does not take the rest.
async fn relay(client: UnixStream, guest: UnixStream) {
    let Ok(watched) = client.as_fd().try_clone_to_owned() else { return };
    let (client_reader, client_writer) = client.into_split();
    let (guest_reader, guest_writer) = guest.into_split();
    let directions =
        async { tokio::try_join!(to_guest(client_reader, guest_writer), to_client(guest_reader, client_writer)) };
    tokio::select! {
        ended = directions => drop(ended),
        () = abandoned(&watched) => {}
    }
}

/// Passes on what a client sends, and its end. The guest is gone if this fails.
async fn to_guest(mut client: OwnedReadHalf, mut guest: OwnedWriteHalf) -> io::Result<()> {
    let mut chunk = vec![0; HEADER + CHUNK_MAX];
    loop {
        // A connection that was reset has ended, too.
        let length = client.read(&mut chunk[HEADER..]).await.unwrap_or(0);
        chunk[..HEADER].copy_from_slice(&header(length));
        guest.write_all(&chunk[..HEADER + length]).await?;
        if length == 0 {
            // The other half must stay open.
            guest.forget();
            return Ok(());
        }
    }
}

/// Passes on what a guest sends, and its end, and waits until it has taken everything of the other direction. The guest is gone
/// if this fails.
async fn to_client(mut guest: OwnedReadHalf, mut client: OwnedWriteHalf) -> io::Result<()> {
    let (mut unchunker, mut buffer, mut bytes) = (Unchunker::default(), vec![0; CHUNK_MAX], Vec::new());
    let (mut is_reading, mut has_ended) = (true, false);
    while !unchunker.is_confirmed() {
        let length = guest.read(&mut buffer).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        unchunker.push(&buffer[..length], &mut bytes);
        // For a client that reads nothing more, the rest is discarded.
        is_reading = is_reading && client.write_all(&bytes).await.is_ok();
        bytes.clear();
        if unchunker.has_ended() && !std::mem::replace(&mut has_ended, true) {
            let _ = client.shutdown().await;
        }
    }
    Ok(())
}

/// Waits until the client has closed its end completely, and the guest has had time to take what it sent.
async fn abandoned(client: &OwnedFd) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let mut fds = [PollFd::new(client, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        if polled.is_ok() && fds[0].revents().contains(PollFlags::HUP) {
            return tokio::time::sleep(GRACE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: &[u8]) -> Vec<u8> {
        [&header(bytes.len())[..], bytes].concat()
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (client, near) = UnixStream::pair().expect("sockets");
        let (far, mut guest) = UnixStream::pair().expect("sockets");
        let relay = tokio::spawn(relay(near, far));
        let (mut reader, mut writer) = client.into_split();
        writer.write_all(b"hello").await.expect("write");
        writer.shutdown().await.expect("the end of a direction");
        let mut received = vec![0; 9];
        guest.read_exact(&mut received).await.expect("read");
        assert_eq!(received, [chunk(b"hello"), chunk(b"")].concat());
        guest.write_all(&[chunk(b"world"), chunk(b"")].concat()).await.expect("write");
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"world");
        assert!(!relay.is_finished(), "the guest may not have passed on everything");
        guest.write_all(&chunk(b"")).await.expect("write");
        relay.await.expect("both directions have ended");
    }

    #[tokio::test]
    async fn the_end_of_either_side_is_that_of_the_connection() {
        let (client, near) = UnixStream::pair().expect("sockets");
        let (far, guest) = UnixStream::pair().expect("sockets");
        let ended = tokio::spawn(relay(near, far));
        drop(guest);
        ended.await.expect("the guest is gone");
        drop(client);
    }

    #[tokio::test]
    async fn what_a_client_sent_before_it_left_is_passed_on() {
        let (mut client, near) = UnixStream::pair().expect("sockets");
        let (far, mut guest) = UnixStream::pair().expect("sockets");
        let ended = tokio::spawn(relay(near, far));
        client.write_all(&vec![7; 100_000]).await.expect("write");
        drop(client);
        tokio::time::sleep(CHECK_INTERVAL * 2).await;
        let (mut unchunker, mut bytes, mut buffer) = (Unchunker::default(), Vec::new(), vec![0; 4096]);
        while !unchunker.has_ended() {
            let length = guest.read(&mut buffer).await.expect("read");
            assert!(length > 0, "the end arrives as a chunk");
            unchunker.push(&buffer[..length], &mut bytes);
        }
        assert_eq!(bytes.len(), 100_000);
        assert!(!ended.is_finished(), "the guest has not confirmed it");
        drop(guest);
        ended.await.expect("the guest is gone");
    }
}
