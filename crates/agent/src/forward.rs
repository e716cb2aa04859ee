//! A TCP connection to the loopback device of the guest, over a port: both directions, each until it ends.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use agent_api::{
    Failure, FailureKind,
    chunk::{CHUNK_MAX, HEADER, Unchunker, header},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, Shutdown, SocketFlags, SocketType, connect, shutdown, socket_with, sockopt::socket_error},
};

use crate::{clock, connection::Caller, failure::system, process::Outcome};

/// Addresses in the order in which they are tried.
const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// How long the connection to an address may take: it is made or refused at once, unless the backlog of the listener is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most reads of a port for one event.
const ROUNDS_MAX: usize = 16;

/// A forwarded connection.
pub(crate) struct Forward {
    /// The port, which its other end removes when both directions have ended.
    port: OwnedFd,
    socket: OwnedFd,
    connecting: Option<Connecting>,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// A connection that is being made.
struct Connecting {
    caller: Caller,
    target: SocketAddr,
    until: Duration,
    /// Addresses that were not tried.
    others: Vec<IpAddr>,
    /// Why the earlier ones failed.
    causes: Vec<String>,
}

/// From the port to the socket.
#[derive(Default)]
struct Incoming {
    unchunker: Unchunker,
    /// What was read and not written yet.
    buffer: Vec<u8>,
    /// Whether nothing more is written to the socket.
    closed: bool,
    /// Whether its end has arrived, and nothing of it is left.
    finished: bool,
}

/// From the socket to the port.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    /// Whether the end was read, and is in the buffer or written.
    ended: bool,
    /// Whether the end of the other direction is confirmed.
    confirmed: bool,
}

impl Forward {
    /// Begins a connection to a TCP port.
    pub(crate) fn connect(caller: Caller, tcp_port: u16, port: OwnedFd) -> Outcome<Self> {
        let [first, others @ ..] = ADDRESSES;
        let target = SocketAddr::new(first, tcp_port);
        let until = clock::monotonic() + CONNECT_TIMEOUT;
        let mut connecting = Connecting { caller, target, until, others: others.to_vec(), causes: Vec::new() };
        let socket = connecting.socket()?;
        let connecting = Some(connecting);
        Ok(Self { port, socket, connecting, incoming: Incoming::default(), outgoing: Outgoing::default() })
    }

    /// Returns who waits until it is connected.
    pub(crate) fn caller(&self) -> Option<Caller> {
        self.connecting.as_ref().map(|connecting| connecting.caller)
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting.is_some()
    }

    /// Returns what is waited for at the port: its end in any case.
    pub(crate) fn poll_port(&self) -> PollFd<'_> {
        let reads = !self.is_connecting() && self.incoming.buffer.is_empty() && !self.incoming.unchunker.has_ended();
        let mut flags = if reads { PollFlags::IN } else { PollFlags::empty() };
        flags.set(PollFlags::OUT, !self.outgoing.buffer.is_empty());
        PollFd::new(&self.port, flags)
    }

    /// Returns what is waited for at the socket, if anything.
    pub(crate) fn poll_socket(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::OUT, self.is_connecting() || self.incoming.wants());
        flags.set(PollFlags::IN, !self.is_connecting() && self.outgoing.wants());
        (!flags.is_empty()).then(|| PollFd::new(&self.socket, flags))
    }

    /// Moves what can be moved.
    ///
    /// # Errors
    /// Nothing accepts the connection, or its port is gone.
    pub(crate) fn run(&mut self) -> Outcome<()> {
        if !self.is_connected()? {
            return Ok(());
        }
        self.incoming.run(&self.port, &self.socket);
        let written = self.outgoing.run(&self.socket, &self.port, self.incoming.finished);
        written.map_err(|errno| system("forward a connection", errno))
    }

    fn is_connected(&mut self) -> Outcome<bool> {
        let Some(connecting) = &mut self.connecting else { return Ok(true) };
        let cause = match connection_state(&self.socket) {
            Ok(true) => {
                self.connecting = None;
                return Ok(true);
            }
            Ok(false) if clock::monotonic() < connecting.until => return Ok(false),
            Ok(false) => format!("no answer in {} s", CONNECT_TIMEOUT.as_secs()),
            Err(errno) => io::Error::from(errno).to_string(),
        };
        connecting.next(cause)?;
        self.socket = connecting.socket()?;
        self.is_connected()
    }
}

impl Connecting {
    /// Returns a socket that is being connected to the address, or to the next one for which there can be one.
    fn socket(&mut self) -> Outcome<OwnedFd> {
        loop {
            match socket_to(self.target) {
                Ok(socket) => return Ok(socket),
                Err(errno) => self.next(io::Error::from(errno).to_string())?,
            }
        }
    }

    /// Continues with the next address, if there is one.
    fn next(&mut self, cause: String) -> Outcome<()> {
        self.causes.push(format!("{}: {cause}", self.target));
        if self.others.is_empty() {
            return Err(Failure::new(FailureKind::Unreachable, self.causes.join("; ")));
        }
        self.target = SocketAddr::new(self.others.remove(0), self.target.port());
        self.until = clock::monotonic() + CONNECT_TIMEOUT;
        Ok(())
    }
}

impl Incoming {
    /// Whether something is to be written to the socket, or its end.
    fn wants(&self) -> bool {
        !self.buffer.is_empty() || (self.unchunker.has_ended() && !self.finished)
    }

    /// Moves bytes until one side is not ready, or another connection comes first.
    fn run(&mut self, port: &OwnedFd, socket: &OwnedFd) {
        for _ in 0..ROUNDS_MAX {
            while !self.buffer.is_empty() {
                match rustix::io::write(socket, &self.buffer) {
                    Ok(n) => drop(self.buffer.drain(..n)),
                    Err(Errno::AGAIN) => return,
                    Err(Errno::INTR) => {}
                    // The peer has closed the connection: what still arrives is discarded.
                    Err(_) => {
                        self.buffer.clear();
                        self.closed = true;
                    }
                }
            }
            if self.unchunker.has_ended() {
                if !std::mem::replace(&mut self.closed, true) {
                    let _ = shutdown(socket, Shutdown::Write);
                }
                self.finished = true;
                return;
            }
            let mut bytes = vec![0; CHUNK_MAX];
            match rustix::io::read(port, &mut bytes) {
                Ok(n) if n > 0 => self.unchunker.push(&bytes[..n], &mut self.buffer),
                Err(Errno::INTR) => {}
                // The end of the port is reported as such when it is waited for.
                Ok(_) | Err(_) => return,
            }
            if self.closed {
                self.buffer.clear();
            }
        }
    }
}

impl Outgoing {
    /// Whether the socket is to be read.
    fn wants(&self) -> bool {
        self.buffer.is_empty() && !self.ended
    }

    /// Moves one chunk: another connection comes first then. `all_passed_on`: the other direction has ended.
    fn run(&mut self, socket: &OwnedFd, port: &OwnedFd, all_passed_on: bool) -> Result<(), Errno> {
        if self.wants() {
            let mut chunk = vec![0; HEADER + CHUNK_MAX];
            let length = match rustix::io::read(socket, &mut chunk[HEADER..]) {
                Ok(n) => n,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => 0,
            };
            chunk.truncate(HEADER + length);
            chunk[..HEADER].copy_from_slice(&header(length));
            self.buffer = chunk;
            self.ended = length == 0;
        }
        if self.ended && all_passed_on && !std::mem::replace(&mut self.confirmed, true) {
            self.buffer.extend(header(0));
        }
        while !self.buffer.is_empty() {
            match rustix::io::write(port, &self.buffer) {
                // A port without room in its queue forever takes nothing.
                Ok(0) => return Err(Errno::NOSPC),
                Ok(n) => drop(self.buffer.drain(..n)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Returns a socket that is being connected.
fn socket_to(target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Returns whether a socket is connected; false if it is being connected.
fn connection_state(socket: &OwnedFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default()))?;
    let revents = fds[0].revents();
    socket_error(socket)??;
    Ok(revents.contains(PollFlags::OUT))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        os::unix::net::UnixStream,
    };

    use super::*;

    fn forward_to(port: u16) -> (Forward, UnixStream) {
        let (near, far) = UnixStream::pair().expect("sockets");
        near.set_nonblocking(true).expect("nonblocking");
        let caller = Caller { connection: 1, call: 1 };
        let forward = Forward::connect(caller, port, near.into()).expect("a socket");
        (forward, far)
    }

    /// Runs it while something is ready.
    fn run_while_ready(forward: &mut Forward) {
        loop {
            let mut fds = vec![forward.poll_port()];
            fds.extend(forward.poll_socket());
            let timeout = Timespec::try_from(Duration::from_millis(200)).expect("a time");
            if poll(&mut fds, Some(&timeout)).expect("poll") == 0 {
                return;
            }
            forward.run().expect("a connection");
        }
    }

    #[test]
    fn each_direction_ends_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let (mut forward, mut far) = forward_to(listener.local_addr().expect("an address").port());
        let (mut peer, _) = listener.accept().expect("a connection");
        let request = [&header(5)[..], b"hello", &header(0)].concat();
        far.write_all(&request).expect("write");
        run_while_ready(&mut forward);
        assert!(!forward.is_connecting());
        let mut received = Vec::new();
        peer.read_to_end(&mut received).expect("the end of the direction");
        assert_eq!(received, b"hello");
        peer.write_all(b"world").expect("write");
        drop(peer);
        run_while_ready(&mut forward);
        drop(forward);
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).expect("read");
        let (mut unchunker, mut bytes) = (Unchunker::default(), Vec::new());
        unchunker.push(&answer, &mut bytes);
        assert!(unchunker.has_ended() && unchunker.is_confirmed());
        assert_eq!(bytes, b"world");
    }

    #[test]
    fn a_refusal_names_every_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let (mut forward, _far) = forward_to(port);
        let failure = loop {
            match forward.run() {
                Ok(()) => assert!(forward.is_connecting()),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.contains(&format!("127.0.0.1:{port}: Connection refused")), "{}", failure.message);
        assert!(failure.message.contains(&format!("[::1]:{port}: ")), "{}", failure.message);
    }
}
