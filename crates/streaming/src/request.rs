//! The sessions that clients can request.

/// The streams of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streams {
    /// The client sends standard input.
    pub stdin: bool,
    /// The client receives standard output.
    pub stdout: bool,
    /// The client receives standard error; never together with `tty`.
    pub stderr: bool,
    /// The process has a terminal.
    pub tty: bool,
}

/// Executes a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Container id.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Streams of the client.
    pub streams: Streams,
}

/// Attaches to the streams of a container's init process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// Container id.
    pub container: String,
    /// Streams of the client.
    pub streams: Streams,
}

/// Connects to ports of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForward {
    /// Sandbox id.
    pub sandbox: String,
    /// Ports for protocols in which the client does not send them (WebSocket without tunnel), one connection per port.
    pub ports: Vec<u16>,
}

/// The request that a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Execute a command.
    Exec(Exec),
    /// Attach to a container's streams.
    Attach(Attach),
    /// Connect to a pod's ports.
    PortForward(PortForward),
}

impl Request {
    /// Returns the first segment of the URL's path.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Exec(_) => "exec",
            Self::Attach(_) => "attach",
            Self::PortForward(_) => "portforward",
        }
    }
}
