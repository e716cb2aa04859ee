//! A connection to systemd: calls that wait for their answer, and the signals that come in between. One socket, no
//! thread.

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

/// How long systemd may take to answer, and to finish a job.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most signals kept while an answer is waited for.
const SIGNALS_MAX: usize = 4096;
/// Longest line of the authentication.
const LINE_MAX: usize = 512;

const SYSTEMD: &str = "org.freedesktop.systemd1";

/// Whose systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The machine's.
    System,
    /// The calling user's own (`systemd --user`).
    User,
}

/// What systemd answered, or why it did not.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It said no: name of the error, and its words.
    Said(String, String),
    /// It did not answer.
    Broken(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Said(name, text) => write!(f, "systemd refused: {text} ({name})"),
            Self::Broken(text) => f.write_str(text),
        }
    }
}

fn broken(doing: &str, error: &io::Error) -> Refusal {
    let cause = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    };
    Refusal::Broken(format!("{doing}: {cause}"))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Bus {
    stream: UnixStream,
    serial: u32,
    signals: VecDeque<Message>,
}

impl Bus {
    /// Connects: directly, which works without a message bus, else over the bus.
    pub(super) fn connect(owner: Owner) -> Result<Self, Refusal> {
        let mut tried = Vec::new();
        if let Some(path) = private_socket(owner) {
            match UnixStream::connect(&path) {
                Ok(stream) => return Self::open(stream, &path.display().to_string()),
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        for address in bus_addresses(owner) {
            match connect_to(&address) {
                Ok(stream) => {
                    let mut bus = Self::open(stream, &address)?;
                    bus.introduce()?;
                    return Ok(bus);
                }
                Err(error) => tried.push(format!("{address}: {error}")),
            }
        }
        let way_out = match owner {
            Owner::System => "is systemd running? else use the cgroupfs driver",
            Owner::User => "has the user a session (loginctl enable-linger)? is XDG_RUNTIME_DIR set?",
        };
        Err(Refusal::Broken(format!("cannot reach systemd ({}); {way_out}", tried.join(", "))))
    }

    /// Authenticates as whoever the kernel says we are: no user id is sent, so that it is right in a user namespace
    /// too.
    fn open(mut stream: UnixStream, name: &str) -> Result<Self, Refusal> {
        let doing = format!("authenticate at {name}");
        let result = (|| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")?;
            loop {
                let line = read_line(&mut stream)?;
                match line.split(' ').next() {
                    Some("OK") => return Ok(()),
                    Some("DATA") => {}
                    _ => return Err(io::Error::other(format!("it said {line:?}"))),
                }
            }
        })();
        result.map_err(|error| broken(&doing, &error))?;
        Ok(Self { stream, serial: 0, signals: VecDeque::new() })
    }

    /// On a message bus: says hello, and asks for the ends of jobs.
    fn introduce(&mut self) -> Result<(), Refusal> {
        let bus = |name| Method {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            name,
        };
        self.call(&bus("Hello"), &[])?;
        let rule = format!("type='signal',sender='{SYSTEMD}',interface='{SYSTEMD}.Manager',member='JobRemoved'");
        self.call(&bus("AddMatch"), &[Value::text(rule)])?;
        Ok(())
    }

    /// Calls a method of systemd's manager.
    pub(super) fn manager(&mut self, name: &str, arguments: &[Value]) -> Result<Message, Refusal> {
        let method = Method {
            destination: SYSTEMD,
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            name,
        };
        self.call(&method, arguments)
    }

    /// Calls a method that starts a job, and waits for the job's end; gives its result, `done` where it succeeded.
    pub(super) fn job(&mut self, name: &str, arguments: &[Value]) -> Result<String, Refusal> {
        let answer = self.manager(name, arguments)?;
        let job = Reader::new(&answer.body).string().filter(|_| answer.signature == "o");
        let job = job.ok_or_else(|| Refusal::Broken(format!("{name}: systemd answered without a job")))?;
        self.wait_for(job)
    }

    fn call(&mut self, method: &Method<'_>, arguments: &[Value]) -> Result<Message, Refusal> {
        self.serial += 1;
        let mut body = Writer::default();
        arguments.iter().for_each(|argument| body.value(argument));
        let signature: String = arguments.iter().map(Value::signature).collect();
        let doing = format!("call {} of {}", method.name, method.destination);
        let bytes = message::call(self.serial, method, &signature, &body.bytes);
        self.stream.write_all(&bytes).map_err(|error| broken(&doing, &error))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.read(deadline).map_err(|error| broken(&doing, &error))?;
            match message.kind {
                Kind::Return if message.answers == self.serial => return Ok(message),
                Kind::Error if message.answers == self.serial => {
                    let text = Reader::new(&message.body).string().unwrap_or("it gave no reason").to_owned();
                    return Err(Refusal::Said(message.error, text));
                }
                Kind::Signal if self.signals.len() < SIGNALS_MAX => self.signals.push_back(message),
                _ => {}
            }
        }
    }

    /// `JobRemoved(u id, o job, s unit, s result)`.
    fn wait_for(&mut self, job: &str) -> Result<String, Refusal> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = match self.signals.pop_front() {
                Some(message) => message,
                None => self.read(deadline).map_err(|error| broken("wait for systemd's job", &error))?,
            };
            if message.kind != Kind::Signal || message.member != "JobRemoved" || message.signature != "uoss" {
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
        let length = message::length(&bytes).ok_or_else(|| io::Error::other("what came is no D-Bus message"))?;
        bytes.resize(length, 0);
        self.fill(&mut bytes[message::FIXED..], deadline)?;
        message::parse(&bytes).ok_or_else(|| io::Error::other("a D-Bus message that came is malformed"))
    }

    fn fill(&mut self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Byte by byte: what follows the last line belongs to the messages.
fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        if line.len() > LINE_MAX {
            return Err(io::Error::other("its answer is too long"));
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

/// Where systemd itself listens, for its owner only.
fn private_socket(owner: Owner) -> Option<PathBuf> {
    match owner {
        Owner::System => Some(Path::new("/run/systemd/private").to_owned()),
        Owner::User => Some(runtime_dir()?.join("systemd/private")),
    }
}

/// Addresses of the message bus, as D-Bus writes them.
fn bus_addresses(owner: Owner) -> Vec<String> {
    let (variable, usual) = match owner {
        Owner::System => ("DBUS_SYSTEM_BUS_ADDRESS", Some(PathBuf::from("/run/dbus/system_bus_socket"))),
        Owner::User => ("DBUS_SESSION_BUS_ADDRESS", runtime_dir().map(|dir| dir.join("bus"))),
    };
    match std::env::var(variable) {
        Ok(list) if !list.is_empty() => list.split(';').map(str::to_owned).collect(),
        _ => usual.into_iter().map(|path| format!("unix:path={}", path.display())).collect(),
    }
}

fn connect_to(address: &str) -> io::Result<UnixStream> {
    let unknown = || io::Error::other("is not unix:path=… or unix:abstract=…");
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

/// `%20` is a space.
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
