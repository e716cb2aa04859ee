//! A connection to systemd: blocking calls, and the signals that arrive in between. One socket, no thread.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    message::{self, Kind, Message, Method},
    value::{Reader, Value, Writer},
};

/// How long systemd may take to reply, and to finish a job.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of signals that are queued while waiting for a reply.
const SIGNALS_MAX: usize = 4096;
/// The longest line of the authentication, in bytes.
const LINE_MAX: usize = 512;

const SYSTEMD: &str = "org.freedesktop.systemd1";
/// The signal that a job has finished. A direct connection receives all other signals of systemd, too.
const JOB_REMOVED: &str = "JobRemoved";

/// Which systemd instance is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The system instance.
    System,
    /// The instance of the calling user (`systemd --user`).
    User,
}

/// Errors with which the message bus replies itself if it cannot reach systemd, for example while that is executed again.
const UNREACHABLE: [&str; 4] = [
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.Disconnected",
];

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// systemd replied with an error: its name and message.
    Refused(String, String),
    /// The job of systemd did not succeed: its result.
    JobFailed(String),
    /// The connection failed, or the reply was invalid.
    Broken(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(name, text) => write!(f, "systemd refused: {text} ({name})"),
            Self::JobFailed(result) => write!(f, "the job failed with result {result:?}"),
            Self::Broken(text) => f.write_str(text),
        }
    }
}

fn broken(operation: &str, error: &io::Error) -> CallError {
    let cause = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no reply within {} s", TIMEOUT.as_secs()),
        _ => error.to_string(),
    };
    CallError::Broken(format!("{operation}: {cause}"))
}

/// A connection to systemd, direct or over a message bus.
#[derive(Debug)]
pub(crate) struct Bus {
    stream: UnixStream,
    serial: u32,
    signals: VecDeque<Message>,
}

impl Bus {
    /// Connects directly, which does not need a message bus, else over the bus.
    pub(super) fn connect(owner: Owner) -> Result<Self, CallError> {
        let mut errors = Vec::new();
        if let Some(path) = private_socket(owner) {
            match UnixStream::connect(&path) {
                Ok(stream) => return Self::open(stream, &path.display().to_string()),
                Err(error) => errors.push(format!("{}: {error}", path.display())),
            }
        }
        for address in bus_addresses(owner) {
            match connect_to(&address) {
                Ok(stream) => {
                    let mut bus = Self::open(stream, &address)?;
                    bus.register()?;
                    return Ok(bus);
                }
                Err(error) => errors.push(format!("{address}: {error}")),
            }
        }
        let advice = match owner {
            Owner::System => "if systemd is not running, use the cgroupfs driver",
            Owner::User => "check that the user has a session (loginctl enable-linger) and XDG_RUNTIME_DIR is set",
        };
        Err(CallError::Broken(format!("cannot reach systemd ({}); {advice}", errors.join(", "))))
    }

    /// Authenticates by the credentials that the kernel reports: no uid is sent, so that this also works in a user
    /// namespace.
    fn open(mut stream: UnixStream, name: &str) -> Result<Self, CallError> {
        let operation = format!("authenticate at {name}");
        let result = (|| {
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")?;
            loop {
                let line = read_line(&mut stream)?;
                match line.split(' ').next() {
                    Some("OK") => return Ok(()),
                    Some("DATA") => {}
                    _ => return Err(io::Error::other(format!("unexpected reply {line:?}"))),
                }
            }
        })();
        result.map_err(|error| broken(&operation, &error))?;
        Ok(Self { stream, serial: 0, signals: VecDeque::new() })
    }

    /// Registers with a message bus, and subscribes to the signal `JobRemoved`.
    fn register(&mut self) -> Result<(), CallError> {
        let bus = |name| Method {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            name,
        };
        self.call(&bus("Hello"), &[])?;
        let rule = format!("type='signal',sender='{SYSTEMD}',interface='{SYSTEMD}.Manager',member='{JOB_REMOVED}'");
        self.call(&bus("AddMatch"), &[Value::text(rule)])?;
        Ok(())
    }

    /// Calls a method of systemd's manager.
    pub(super) fn manager(&mut self, name: &str, arguments: &[Value]) -> Result<Message, CallError> {
        let method = Method {
            destination: SYSTEMD,
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            name,
        };
        self.call(&method, arguments)
    }

    /// Reads a property of a unit that has the type of a string.
    pub(super) fn text_property(&mut self, path: &str, interface: &str, name: &str) -> Result<String, CallError> {
        let method = Method { destination: SYSTEMD, path, interface: "org.freedesktop.DBus.Properties", name: "Get" };
        let reply = self.call(&method, &[Value::text(interface), Value::text(name)])?;
        let mut reader = Reader::new(&reply.body);
        let text = reader.signature().filter(|signature| *signature == "s").and_then(|_| reader.string());
        let missing = || CallError::Broken(format!("read the property {name} of {path}: it is not a string"));
        text.map(str::to_owned).ok_or_else(missing)
    }

    /// Calls a method that starts a job, and waits for the job to finish. Returns its result, which is `done` on
    /// success.
    pub(super) fn job(&mut self, name: &str, arguments: &[Value]) -> Result<String, CallError> {
        self.signals.clear();
        let reply = self.manager(name, arguments)?;
        let job = Reader::new(&reply.body).string().filter(|_| reply.signature == "o");
        let job = job.ok_or_else(|| CallError::Broken(format!("{name}: the reply of systemd contains no job")))?;
        self.wait_for(job)
    }

    fn call(&mut self, method: &Method<'_>, arguments: &[Value]) -> Result<Message, CallError> {
        self.serial += 1;
        let mut body = Writer::default();
        arguments.iter().for_each(|argument| body.value(argument));
        let signature: String = arguments.iter().map(Value::signature).collect();
        let operation = format!("call {} of {}", method.name, method.destination);
        let bytes = message::call(self.serial, method, &signature, &body.bytes);
        self.stream.write_all(&bytes).map_err(|error| broken(&operation, &error))?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let message = self.read(deadline).map_err(|error| broken(&operation, &error))?;
            match message.kind {
                Kind::Return if message.reply_serial == self.serial => return Ok(message),
                Kind::Error if message.reply_serial == self.serial => {
                    let text = Reader::new(&message.body).string().unwrap_or("no reason given").to_owned();
                    return Err(match UNREACHABLE.contains(&message.error.as_str()) {
                        true => CallError::Broken(text),
                        false => CallError::Refused(message.error, text),
                    });
                }
                Kind::Signal if message.member == JOB_REMOVED && self.signals.len() < SIGNALS_MAX => {
                    self.signals.push_back(message);
                }
                _ => {}
            }
        }
    }

    /// Waits for the signal `JobRemoved(u id, o job, s unit, s result)`.
    fn wait_for(&mut self, job: &str) -> Result<String, CallError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let message = match self.signals.pop_front() {
                Some(message) => message,
                None => self.read(deadline).map_err(|error| broken("wait for systemd's job", &error))?,
            };
            if message.kind != Kind::Signal || message.member != JOB_REMOVED || message.signature != "uoss" {
                continue;
            }
            let mut reader = Reader::new(&message.body);
            let _id = reader.u32();
            if reader.string() == Some(job) {
                let _unit = reader.string();
                return Ok(reader.string().unwrap_or("unknown").to_owned());
            }
        }
    }

    fn read(&mut self, deadline: Instant) -> io::Result<Message> {
        let mut bytes = vec![0; message::FIXED];
        self.fill(&mut bytes, deadline)?;
        let length = message::length(&bytes).ok_or_else(|| io::Error::other("the reply is not a D-Bus message"))?;
        bytes.resize(length, 0);
        self.fill(&mut bytes[message::FIXED..], deadline)?;
        message::parse(&bytes).ok_or_else(|| io::Error::other("received a malformed D-Bus message"))
    }

    fn fill(&mut self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            let timeout = deadline.saturating_duration_since(Instant::now());
            if timeout.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(timeout))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads a line byte by byte, because the bytes after the last line belong to messages.
fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        if line.len() > LINE_MAX {
            return Err(io::Error::other("the reply is too long"));
        }
        match stream.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn runtime_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Returns the socket on which systemd itself listens, for its owner only.
fn private_socket(owner: Owner) -> Option<PathBuf> {
    match owner {
        Owner::System => Some(Path::new("/run/systemd/private").to_owned()),
        Owner::User => Some(runtime_dir()?.join("systemd/private")),
    }
}

/// Returns the addresses of the message bus, in D-Bus format.
fn bus_addresses(owner: Owner) -> Vec<String> {
    let (variable, default) = match owner {
        Owner::System => ("DBUS_SYSTEM_BUS_ADDRESS", Some(PathBuf::from("/run/dbus/system_bus_socket"))),
        Owner::User => ("DBUS_SESSION_BUS_ADDRESS", runtime_dir().map(|dir| dir.join("bus"))),
    };
    match std::env::var(variable) {
        Ok(list) if !list.is_empty() => list.split(';').map(str::to_owned).collect(),
        _ => default.into_iter().map(|path| format!("unix:path={}", path.display())).collect(),
    }
}

fn connect_to(address: &str) -> io::Result<UnixStream> {
    let unknown = || io::Error::other("not of the form unix:path=… or unix:abstract=…");
    let keys = address.strip_prefix("unix:").ok_or_else(unknown)?;
    for pair in keys.split(',') {
        match pair.split_once('=') {
            Some(("path", path)) => return UnixStream::connect(unescape(path)),
            Some(("abstract", name)) => {
                return UnixStream::connect_addr(&SocketAddr::from_abstract_name(unescape(name))?);
            }
            _ => {}
        }
    }
    Err(unknown())
}

/// Decodes percent escapes.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(*byte));
        rest = &after[if escaped.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8_lossy(&out).into_owned()
}
