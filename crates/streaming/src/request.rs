//! What a client was promised.

/// Which streams a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streams {
    /// It sends input.
    pub stdin: bool,
    /// It gets output.
    pub stdout: bool,
    /// It gets errors; never together with `tty`.
    pub stderr: bool,
    /// The command has a terminal.
    pub tty: bool,
}

/// A command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Its id.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the client has of it.
    pub streams: Streams,
}

/// The streams of a container's first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// Its id.
    pub container: String,
    /// What the client has of them.
    pub streams: Streams,
}

/// Connections to ports of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForward {
    /// Its id.
    pub sandbox: String,
    /// For clients whose protocol does not tell the port (WebSocket without a tunnel): these, one connection each.
    pub ports: Vec<u16>,
}

/// What a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Exec(Exec),
    /// Connect to a container's streams.
    Attach(Attach),
    /// Connect to a pod's ports.
    PortForward(PortForward),
}

impl Request {
    /// First part of its URL's path.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward(_) => "portforward",
        }
    }
}
