//! A real QEMU under emulation. `PINION_TEST_KERNEL` and `PINION_TEST_INITRAMFS` are paths of a kernel and of a guest that
//! - prints `READY` on its console,
//! - sends back what it receives on a port whose name begins with `echo`,
//! - writes 100000 lines into a port whose name begins with `out`, and then prints `OUTDONE`,
//! - prints the lines of a port whose name begins with `in` as `GOT <line>`, and then `EOF on <name>`.

use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat, open},
    io::Errno,
};
use vm::{
    ErrorKind,
    qemu::{Accelerator, Configuration, DEFAULT_PORTS, Qemu, SOCKET, command_line},
    qmp::EventKind,
    vmm::{Cpus, Memory, Status, Tap, Vmm},
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the guest may take to boot, or to do what a test requests.
const GUEST_TIMEOUT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// What the guest writes into a port `out*`.
const OUTPUT: u64 = 4_588_890;

/// A QEMU, which is killed when it is dropped.
struct Machine {
    qemu: Qemu,
    process: Process,
    directory: tempfile::TempDir,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configuration(directory: PathBuf) -> Configuration {
    let variable = |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    Configuration {
        program: "/usr/bin/qemu-system-x86_64".into(),
        kernel: variable("PINION_TEST_KERNEL"),
        initramfs: variable("PINION_TEST_INITRAMFS"),
        kernel_parameters: Vec::new(),
        memory: 256 * MIB,
        memory_max: 512 * MIB,
        memory_file: None,
        machine: None,
        incoming: false,
        cpus: 1,
        cpus_max: 2,
        accelerator: Accelerator::Tcg,
        sockets: directory,
        ports: DEFAULT_PORTS,
        watchdog: true,
    }
}

impl Machine {
    /// Starts a QEMU, whose guest does not run yet.
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let arguments = command_line(&configuration(directory.path().to_owned())).expect("command line");
        let console = File::create(directory.path().join("console")).expect("console");
        let child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .stdin(Stdio::null())
            .stdout(console)
            .spawn()
            .expect("start QEMU");
        let process = Process(child);
        let qemu = Qemu::connect_to_started(&directory.path().join(SOCKET), TIMEOUT).await.expect("connect");
        Self { qemu, process, directory }
    }

    async fn boot() -> Self {
        let machine = Self::start().await;
        machine.qemu.resume().await.expect("resume");
        machine.wait_for_console("READY").await;
        machine
    }

    /// Connects again, as a restarted daemon does.
    async fn reconnect(self) -> Self {
        let Self { qemu, process, directory } = self;
        drop(qemu);
        let qemu = Qemu::connect(&directory.path().join(SOCKET), TIMEOUT).await.expect("reconnect");
        Self { qemu, process, directory }
    }

    fn console(&self) -> String {
        let bytes = std::fs::read(self.directory.path().join("console")).expect("console");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn wait_for_console(&self, text: &str) {
        let begin = Instant::now();
        while !self.console().contains(text) {
            assert!(begin.elapsed() < GUEST_TIMEOUT, "no {text:?} on the console: {}", self.console());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Creates a FIFO and opens both of its ends; the first one for reading.
    fn fifo(&self, name: &str) -> (OwnedFd, OwnedFd) {
        let path = self.directory.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("mkfifo");
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = open(&path, flags | OFlags::RDONLY, Mode::empty()).expect("open");
        let writer = open(&path, flags | OFlags::WRONLY, Mode::empty()).expect("open");
        (reader, writer)
    }

    /// Connects a port of which the guest sends back what it receives.
    async fn echo(&self, name: &str) -> UnixStream {
        let (host, guest) = UnixStream::pair().expect("socketpair");
        self.qemu.add_connection(name, guest.into()).await.expect("add connection");
        host.set_read_timeout(Some(GUEST_TIMEOUT)).expect("timeout");
        host
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.0.id())).expect("descriptors").count()
    }
}

fn exchange(socket: &mut UnixStream, text: &[u8]) {
    socket.write_all(text).expect("write");
    let mut received = vec![0; text.len()];
    socket.read_exact(&mut received).expect("read");
    assert_eq!(received, text);
}

/// Reads what a FIFO has at the moment. `None`: all writers have closed it.
fn read(fifo: impl AsFd) -> Option<u64> {
    let mut buffer = vec![0; 65536];
    match rustix::io::read(fifo, &mut *buffer) {
        Ok(0) => None,
        Ok(count) => Some(count as u64),
        Err(Errno::AGAIN) => Some(0),
        Err(error) => panic!("read: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_survive_reconnects_and_are_removed() {
    let mut machine = Machine::boot().await;
    let begin = Instant::now();
    let mut echo = machine.echo("echo-a").await;
    let plugged = begin.elapsed();
    exchange(&mut echo, b"ping");
    eprintln!("port added in {plugged:?}, first echo after {:?}", begin.elapsed());
    let begin = Instant::now();
    (0..100).for_each(|_| exchange(&mut echo, &[b'x'; 100]));
    eprintln!("round trip {:?}", begin.elapsed() / 100);
    exchange(&mut echo, &[b'y'; 100_000]);
    let (_peer, socket) = UnixStream::pair().expect("socketpair");
    let error = machine.qemu.add_connection("echo-a", socket.into()).await.expect_err("it exists");
    assert_eq!(error.kind, ErrorKind::Invalid);

    // The next client is served when the former one is gone.
    let socket = machine.directory.path().join(SOCKET);
    let busy = Qemu::connect(&socket, Duration::from_millis(300)).await.expect_err("busy");
    assert_eq!(busy.kind, ErrorKind::Timeout);
    let status = machine.qemu.status().await;
    assert_eq!(status, Ok(Status::Running));
    machine.qemu.close();
    let next = Qemu::connect(&socket, TIMEOUT).await.expect("the former one is closed, although it is still held");
    assert_eq!(machine.qemu.status().await.expect_err("closed").kind, ErrorKind::Gone);
    drop(next);
    machine = machine.reconnect().await;
    exchange(&mut echo, b"after the reconnect");
    assert_eq!(machine.qemu.ports(), ["echo-a"]);
    let _other = machine.echo("echo-b").await;
    assert_eq!(machine.qemu.ports(), ["echo-a", "echo-b"]);

    let before = machine.descriptors();
    let begin = Instant::now();
    machine.qemu.remove_port("echo-a").await.expect("remove");
    eprintln!("port removed in {:?}", begin.elapsed());
    assert_eq!(echo.read(&mut [0]).expect("read"), 0);
    machine.qemu.remove_port("echo-a").await.expect("remove again");
    assert_eq!(machine.descriptors(), before - 1);
    assert_eq!(machine.qemu.ports(), ["echo-b"]);
    exchange(&mut machine.echo("echo-a2").await, b"the number is used again");
    machine.qemu.quit().await.expect("quit");
    assert!(machine.qemu.is_gone() && machine.process.0.wait().expect("wait").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_is_drained_when_the_host_has_read_it() {
    let machine = Machine::boot().await;
    let (reader, writer) = machine.fifo("output");
    machine.qemu.add_output("out-a", writer).await.expect("add output");
    machine.wait_for_console("PORT out-a").await;
    // The guest fills the FIFO and its queue, and then waits.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    let error = machine.qemu.drain("out-a", Duration::from_millis(100)).await.expect_err("not read");
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert!(begin.elapsed() < Duration::from_secs(1) && !machine.console().contains("OUTDONE"));

    // Everything but the last lines, which fit into the FIFO and the queue.
    let mut received = 0;
    while received < OUTPUT - 70_000 {
        let count = read(&reader).expect("end of file");
        received += count;
        if count == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    machine.wait_for_console("OUTDONE").await;
    let drained = tokio::time::timeout(Duration::from_secs(1), machine.qemu.drain("out-a", Duration::from_millis(300)));
    let first = drained.await.expect("its time limit is shorter");
    eprintln!("{} bytes are not read, drain: {first:?}", OUTPUT - received);
    received += read(&reader).expect("end of file");
    machine.qemu.drain("out-a", TIMEOUT).await.expect("drained");
    // Without a pause, all of it is in the FIFO, and nothing else keeps the FIFO open.
    while received < OUTPUT {
        let count = read(&reader).expect("end of file");
        assert_ne!(count, 0, "drained with {} bytes not received", OUTPUT - received);
        received += count;
    }
    machine.qemu.remove_port("out-a").await.expect("remove");
    assert_eq!((received, read(&reader)), (OUTPUT, None));
    let error = machine.qemu.drain("out-a", TIMEOUT).await.expect_err("removed");
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_removed_while_the_guest_writes() {
    let machine = Machine::boot().await;
    let (reader, writer) = machine.fifo("output");
    machine.qemu.add_output("out-a", writer).await.expect("add output");
    let begin = Instant::now();
    while read(&reader).expect("end of file") == 0 {
        assert!(begin.elapsed() < GUEST_TIMEOUT, "the guest writes nothing");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    machine.qemu.remove_port("out-a").await.expect("remove");
    while read(&reader).is_some() {}
    exchange(&mut machine.echo("echo-a").await, b"the queue is used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_ends_when_its_writers_have_closed_it() {
    let machine = Machine::boot().await;
    let (reader, writer) = machine.fifo("input");
    machine.qemu.add_input("in-a", reader).await.expect("add input");
    let mut writer = File::from(writer);
    writer.write_all(b"one\ntwo\n").expect("write");
    machine.wait_for_console("GOT two").await;
    writer.write_all(b"three\n").expect("write");
    drop(writer);
    machine.wait_for_console("EOF on in-a").await;
    let console = machine.console();
    let lines: Vec<_> = console.lines().filter(|line| line.starts_with("GOT") || line.starts_with("EOF")).collect();
    assert_eq!(lines, ["GOT one", "GOT two", "GOT three", "EOF on in-a"]);
    machine.qemu.remove_port("in-a").await.expect("remove");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_machine_can_be_changed_and_continues() {
    let mut machine = Machine::start().await;
    assert_eq!(machine.qemu.status().await, Ok(Status::Created));
    // Ports can be added before the guest boots, and an output that nobody uses is drained.
    let (reader, writer) = machine.fifo("unused");
    let before = machine.descriptors();
    machine.qemu.add_output("unused", writer).await.expect("add output");
    machine.qemu.drain("unused", TIMEOUT).await.expect("drain");
    machine.qemu.remove_port("unused").await.expect("remove");
    let mut echo = machine.echo("echo-a").await;
    machine.qemu.resume().await.expect("resume");
    assert_eq!(read(&reader), None);
    assert_eq!(machine.descriptors(), before + 1);
    exchange(&mut echo, b"ping");
    assert_eq!(machine.qemu.status().await, Ok(Status::Running));
    machine.qemu.pause().await.expect("pause");
    assert_eq!(machine.qemu.status().await, Ok(Status::Paused));
    echo.write_all(b"pong").expect("write");
    echo.set_read_timeout(Some(Duration::from_millis(500))).expect("timeout");
    assert!(echo.read(&mut [0]).is_err());
    machine = machine.reconnect().await;
    assert_eq!(machine.qemu.status().await, Ok(Status::Paused));
    machine.qemu.resume().await.expect("resume");
    echo.set_read_timeout(Some(GUEST_TIMEOUT)).expect("timeout");
    let mut received = [0; 4];
    echo.read_exact(&mut received).expect("read");
    assert_eq!(&received, b"pong");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_processors_are_plugged() {
    let machine = Machine::boot().await;
    let memory = machine.qemu.memory().await.expect("memory");
    let expected = Memory { boot: 256 * MIB, requested: 0, plugged: 0, pluggable: 256 * MIB };
    assert_eq!(memory, expected);
    machine.qemu.plug_memory(127 * MIB).await.expect("plug memory");
    // The driver in the guest plugs it, if it has one.
    assert_eq!(machine.qemu.memory().await.expect("memory").requested, 128 * MIB);
    for size in [257 * MIB, u64::MAX] {
        let error = machine.qemu.plug_memory(size).await.expect_err("too much");
        assert!(matches!(error.kind, ErrorKind::Refused { .. }), "{error}");
    }
    assert_eq!(machine.qemu.cpus().await, Ok(Cpus { boot: 1, present: 1, max: 2 }));
    assert_eq!(machine.qemu.plug_cpus(2).await, Ok(2));
    assert_eq!(machine.qemu.cpus().await, Ok(Cpus { boot: 1, present: 2, max: 2 }));
    assert_eq!(machine.qemu.plug_cpus(1).await, Ok(2));
    assert_eq!(machine.qemu.plug_cpus(3).await.expect_err("too many").kind, ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_descriptors_are_refused_and_leave_nothing() {
    let machine = Machine::start().await;
    let before = machine.descriptors();
    let null = || OwnedFd::from(File::open("/dev/null").expect("open"));
    let error = machine.qemu.add_output("out-a", null()).await.expect_err("it is opened for reading");
    assert!(matches!(error.kind, ErrorKind::Refused { .. }), "{error}");
    assert!(machine.qemu.ports().is_empty());
    let tap = || Tap { id: "eth0".to_owned(), index: 0, queues: vec![null()], mac: [2, 0, 0, 0, 0, 1], mtu: 1500 };
    let error = machine.qemu.attach_tap(tap()).await.expect_err("not a tap");
    assert!(matches!(error.kind, ErrorKind::Refused { .. }), "{error}");
    for name in ["", "a,b", "-a", "a/b", &"a".repeat(65)] {
        let error = machine.qemu.add_output(name, null()).await.expect_err(name);
        assert_eq!(error.kind, ErrorKind::Invalid);
    }
    machine.qemu.resume().await.expect("resume");
    assert_eq!(machine.descriptors(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_qemu_is_noticed() {
    let mut machine = Machine::start().await;
    let mut events = machine.qemu.events();
    machine.qemu.resume().await.expect("resume");
    machine.qemu.powerdown().await.expect("power down");
    assert!(!machine.qemu.is_gone());
    machine.qemu.quit().await.expect("quit");
    let event = events.next().await.expect("event");
    assert_eq!(event.kind, EventKind::Shutdown);
    machine.qemu.closed().await;
    machine.process.0.wait().expect("wait");
    assert_eq!(machine.qemu.status().await.expect_err("gone").kind, ErrorKind::Gone);
    machine.qemu.quit().await.expect("quit again");
}
