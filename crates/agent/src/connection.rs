//! A connection of the daemon.

use std::io;

use agent_api::{Answer, Call, Decoder, Failure, Hello, Reply, encode};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

/// Maximum number of bytes of answers that a connection may leave unread.
const OUTPUT_MAX: usize = 16 << 20;
const READ_SIZE: usize = 64 << 10;

/// Who made a call: the number of the connection and that of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) connection: u64,
    pub(crate) call: u64,
}

/// A port that carries calls and answers.
pub(crate) struct Connection {
    port: OwnedFd,
    input: Decoder,
    output: Vec<u8>,
}

impl Connection {
    /// Returns the connection, which begins with the agent's introduction.
    pub(crate) fn new(port: OwnedFd) -> io::Result<Self> {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let hello = Hello { version: agent_api::VERSION, agent: crate::VERSION.to_owned(), kernel };
        let output = encode(&hello).map_err(io::Error::other)?;
        let mut connection = Self { port, input: Decoder::default(), output };
        connection.write()?;
        Ok(connection)
    }

    pub(crate) fn port(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    /// Whether answers wait for room in the port.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Reads what has arrived, and returns the calls in it.
    ///
    /// # Errors
    /// The daemon has closed the connection, or does not keep to the contract.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Call>> {
        let mut buffer = vec![0; READ_SIZE];
        let n = match rustix::io::read(&self.port, &mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        };
        self.input.push(&buffer[..n]);
        let mut calls = Vec::new();
        while let Some(call) = self.input.take_frame().map_err(io::Error::other)? {
            calls.push(call);
        }
        Ok(calls)
    }

    /// Queues the answer to a call.
    ///
    /// # Errors
    /// The daemon does not read.
    pub(crate) fn answer(&mut self, call: u64, result: Result<Reply, Failure>) -> io::Result<()> {
        self.output.extend(encode(&Answer { id: call, result }).map_err(io::Error::other)?);
        match self.output.len() > OUTPUT_MAX {
            true => Err(io::Error::other("its answers are not read")),
            false => self.write(),
        }
    }

    /// Writes what the port has room for.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match rustix::io::write(&self.port, &self.output) {
                // A port without room in its queue forever takes nothing.
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.output.drain(..n)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
