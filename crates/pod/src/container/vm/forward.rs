//! A connection to a TCP port of a guest: no process of the node reaches the loopback device there, so the agent connects,
//! and a port carries the bytes.

use std::{io, pin::pin, sync::Arc, time::Duration};

use agent_api::{
    FORWARD_PREFIX,
    chunk::{CHUNK_MAX, HEADER, Unchunker, header},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    Error,
    error::failed,
    parts::Parts,
    store::{Sandbox, identifier},
};

/// Interval of the checks whether a client that sends nothing more still reads.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Connects to a TCP port of the guest of a pod.
///
/// # Errors
/// `Unavailable` if nothing listens on the port, and those of the connection to the virtual machine.
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
    match open(&parts, &sandbox, port).await {
        Ok((name, guest)) => {
            if connected.send(Ok(())).is_ok() {
                relay(client, guest).await;
            }
            remove(&parts, &sandbox, &name).await;
        }
        Err(error) => drop(connected.send(Err(error))),
    }
}

/// Adds a port that the agent connects. Returns its name and its end on the node.
async fn open(parts: &Parts, sandbox: &Sandbox, port: u16) -> Result<(String, UnixStream), Error> {
    let connection = connection(parts, sandbox).await?;
    let (near, far) = UnixStream::pair().map_err(failed("create a socket pair"))?;
    let far = far.into_std().map_err(failed("use a socket"))?;
    let name = format!("{FORWARD_PREFIX}{}", &identifier::generate()?[..NAME_LENGTH]);
    connection.qemu.add_connection(&name, far.into()).await.map_err(from_vmm)?;
    if let Err(error) = connection.guest.forward(port, &name).await {
        remove(parts, sandbox, &name).await;
        return Err(from_guest(error));
    }
    Ok((name, near))
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

/// Moves bytes until both directions have ended, or one of the sides is gone.
async fn relay(client: UnixStream, guest: UnixStream) {
    let (client_reader, client_writer) = client.into_split();
    let (guest_reader, guest_writer) = guest.into_split();
    let mut up = pin!(to_guest(client_reader, guest_writer));
    let mut down = pin!(to_client(guest_reader, client_writer));
    tokio::select! {
        sent = &mut up => if sent.is_ok() {
            let _ = down.await;
        },
        received = &mut down => if received.is_ok() {
            let _ = up.await;
        },
    }
}

async fn to_guest(mut client: OwnedReadHalf, mut guest: OwnedWriteHalf) -> io::Result<()> {
    let mut chunk = vec![0; HEADER + CHUNK_MAX];
    loop {
        let length = client.read(&mut chunk[HEADER..]).await?;
        chunk[..HEADER].copy_from_slice(&header(length));
        guest.write_all(&chunk[..HEADER + length]).await?;
        if length == 0 {
            // The other half must stay open.
            guest.forget();
            return Ok(());
        }
    }
}

async fn to_client(mut guest: OwnedReadHalf, mut client: OwnedWriteHalf) -> io::Result<()> {
    let (mut unchunker, mut buffer, mut bytes) = (Unchunker::default(), vec![0; CHUNK_MAX], Vec::new());
    while !unchunker.has_ended() {
        let length = tokio::select! {
            length = guest.read(&mut buffer) => length?,
            () = closed(&client) => 0,
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        unchunker.push(&buffer[..length], &mut bytes);
        client.write_all(&bytes).await?;
        bytes.clear();
    }
    client.shutdown().await
}

/// Waits until the client has closed its end completely. Not its own direction: that may end before.
async fn closed(client: &OwnedWriteHalf) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let mut fds = [PollFd::new(client.as_ref(), PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        if polled.is_ok() && fds[0].revents().contains(PollFlags::HUP) {
            return;
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

        let (client, near) = UnixStream::pair().expect("sockets");
        let (far, guest) = UnixStream::pair().expect("sockets");
        let ended = tokio::spawn(relay(near, far));
        drop(client);
        ended.await.expect("the client is gone, and the guest sends nothing");
        drop(guest);
    }
}
