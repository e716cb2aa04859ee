//! A guest that attacks its node: what stands in for the agent in the tests of the daemon (`tests/system/tests/hostile_guest.rs`).
//! Only with the feature `hostile`, and only in an image with the file [`MODE`], which names the attack.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::Duration,
};

use agent_api::{Answer, Call, Decoder, Exit, Failure, FailureKind, Hello, Reply, Request, Statistics, encode};

use crate::{during, ports::Ports};

/// The file that names the attack.
pub(crate) const MODE: &str = "/hostile";
/// Pause until a port is looked for again.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of control characters in a failure: as JSON, nearly as much as the daemon accepts.
const CONTROL_CHARACTERS: usize = 10_000;

/// An attack on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Sends nothing.
    Silent,
    /// Crashes the kernel of the guest at the first connection.
    Panic,
    /// Sends garbage without end.
    Garbage,
    /// Sends a frame without end.
    HugeFrame,
    /// Sends a frame that is not JSON.
    Malformed,
    /// Implements another version of the contract.
    OtherVersion,
    /// Introduces itself and answers nothing.
    Mute,
    /// Introduces itself and sends answers without end to what was not requested: exits of processes that were never created.
    Unsolicited,
    /// Answers the first request with a reply to another one.
    WrongReply,
    /// Answers the creation of a container with a reply to another request.
    WrongCreation,
    /// Refuses a container with a long message of control characters.
    LongFailure,
    /// Reports an impossible exit of each process at once, and again and again.
    EarlyExits,
    /// Writes without end to the console, which is the log of the virtual machine monitor.
    Console,
    /// Writes without end into the streams of a container, which never exits.
    Flood,
}

const MODES: [(&str, Mode); 14] = [
    ("silent", Mode::Silent),
    ("panic", Mode::Panic),
    ("garbage", Mode::Garbage),
    ("huge-frame", Mode::HugeFrame),
    ("malformed", Mode::Malformed),
    ("other-version", Mode::OtherVersion),
    ("mute", Mode::Mute),
    ("unsolicited", Mode::Unsolicited),
    ("wrong-reply", Mode::WrongReply),
    ("wrong-creation", Mode::WrongCreation),
    ("long-failure", Mode::LongFailure),
    ("early-exits", Mode::EarlyExits),
    ("console", Mode::Console),
    ("flood", Mode::Flood),
];

/// Attacks on every connection of the daemon, forever.
///
/// # Errors
/// The image does not name an attack.
pub(crate) fn run() -> io::Result<()> {
    let name = fs::read_to_string(MODE).map_err(during(format_args!("read {MODE}")))?;
    let mode = MODES.iter().find(|(mode, _)| *mode == name.trim()).map(|(_, mode)| *mode);
    let mode = mode.ok_or_else(|| io::Error::other(format!("{MODE} names no attack: {name:?}")))?;
    if mode == Mode::Console {
        thread::Builder::new().spawn(|| report(&flood(&mut io::stdout(), &b"attack\n".repeat(512))))?;
    }
    let mut ports = Ports::new()?;
    loop {
        for port in ports.new_connections() {
            if mode == Mode::Panic {
                fs::write("/proc/sysrq-trigger", "c")?;
            }
            thread::Builder::new().spawn(move || report(&attack(mode, port)))?;
        }
        thread::sleep(PAUSE);
    }
}

fn report(outcome: &io::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("pinion-agent: an attack ends: {error}");
    }
}

/// Attacks on one connection until it ends.
fn attack(mode: Mode, port: OwnedFd) -> io::Result<()> {
    let mut port = blocking(port)?;
    let version = if mode == Mode::OtherVersion { agent_api::VERSION + 1 } else { agent_api::VERSION };
    let hello = encode(&Hello { version, agent: "hostile".to_owned(), kernel: "6".to_owned() });
    let hello = hello.map_err(io::Error::other)?;
    match mode {
        Mode::Silent => {}
        Mode::Garbage => flood(&mut port, &[b"\x10\0\0\0garbage\0\xff", &[0xa5; 4096][..]].concat())?,
        Mode::HugeFrame => flood(&mut port, &[0xff; 4096])?,
        Mode::Malformed => port.write_all(b"\x04\0\0\0{\"a\"")?,
        _ => port.write_all(&hello)?,
    }
    if mode == Mode::Unsolicited {
        let exits = (0..64).map(|n| answer(u64::MAX - n, Ok(Reply::Exited(impossible_exit()))));
        flood(&mut port, &exits.collect::<io::Result<Vec<_>>>()?.concat())?;
    }
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 64 << 10]);
    loop {
        let n = port.read(&mut buffer)?;
        if n == 0 {
            // The other end is closed, or not open yet.
            thread::sleep(PAUSE);
        }
        decoder.push(&buffer[..n]);
        while let Some(call) = decoder.take_frame::<Call>().map_err(io::Error::other)? {
            for result in results(mode, &call.request) {
                port.write_all(&answer(call.id, result)?)?;
            }
        }
    }
}

/// Returns the answers to a request.
fn results(mode: Mode, request: &Request) -> Vec<Result<Reply, Failure>> {
    let exited = Ok(Reply::Exited(impossible_exit()));
    let wrong = Ok(Reply::Statistics(Statistics::default()));
    match (mode, request) {
        (Mode::Silent | Mode::Mute | Mode::Malformed, _) => Vec::new(),
        (Mode::WrongReply, Request::Configure(_)) => vec![exited],
        (Mode::WrongCreation, Request::Create(_)) => vec![wrong],
        (Mode::LongFailure, Request::Create(_)) => {
            vec![Err(Failure::new(FailureKind::System, "\u{1b}".repeat(CONTROL_CHARACTERS) + "refused\n"))]
        }
        (Mode::EarlyExits, Request::Wait { .. } | Request::State { .. }) => vec![exited; 3],
        (Mode::Flood, Request::Create(create)) => {
            flood_streams(&[&create.streams.stdout, &create.streams.stderr]);
            vec![Ok(Reply::Done)]
        }
        (Mode::Flood, Request::Exec(exec)) => {
            flood_streams(&[&exec.streams.stdout]);
            vec![Ok(Reply::Done)]
        }
        (_, Request::Wait { .. }) => Vec::new(),
        _ => vec![Ok(Reply::Done)],
    }
}

fn impossible_exit() -> Exit {
    Exit { code: i32::MIN, signal: Some(i32::MAX), oom_killed: true, at: u64::MAX }
}

fn answer(id: u64, result: Result<Reply, Failure>) -> io::Result<Vec<u8>> {
    encode(&Answer { id, result }).map_err(io::Error::other)
}

/// Writes the same bytes until the other end is closed.
fn flood(port: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    loop {
        port.write_all(bytes)?;
    }
}

/// Floods the ports with these names, each in a thread of its own.
fn flood_streams(names: &[&Option<String>]) {
    for name in names.iter().filter_map(|name| name.as_deref()) {
        let name = name.to_owned();
        let flood_port = move || -> io::Result<()> {
            let mut ports = Ports::new()?;
            loop {
                match ports.open(&name) {
                    Some(port) => return flood(&mut blocking(port)?, &[b'y'; 64 << 10]),
                    None => thread::sleep(PAUSE),
                }
            }
        };
        report(&thread::Builder::new().spawn(move || report(&flood_port())).map(drop));
    }
}

fn blocking(port: OwnedFd) -> io::Result<File> {
    rustix::io::ioctl_fionbio(&port, false)?;
    Ok(File::from(port))
}

/// Whether the image names an attack.
pub(crate) fn is_requested() -> bool {
    Path::new(MODE).exists()
}
