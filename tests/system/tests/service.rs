//! The interface to the service manager: sd_notify(3), sd_listen_fds(3) and the descriptor store. The test acts as the
//! service manager.

use std::{
    fs,
    io::{self, BufRead, BufReader, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use system_tests::{Node, Options, wait_until};

/// Returns a node whose daemon is not started yet, with a socket that the test can reach, and the notification socket.
fn node() -> (Node, PathBuf, UnixDatagram) {
    let node = Node::new(Options::default());
    let socket = node.dir.path().join("pinion.sock");
    let config = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), format!("socket = {socket:?}\n{config}")).expect("written");
    let notify = UnixDatagram::bind(node.dir.path().join("notify")).expect("bound");
    notify.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    (node, socket, notify)
}

/// Starts the daemon as systemd does: `listener` becomes descriptor 3.
fn start(node: &Node, listener: Option<OwnedFd>) -> Child {
    let log = fs::File::options().create(true).append(true).open(node.dir.path().join("daemon.log")).expect("a log");
    start_logging_to(node, listener, log)
}

fn start_logging_to(node: &Node, listener: Option<OwnedFd>, log: impl Into<Stdio>) -> Child {
    let program = PathBuf::from(std::env::var_os("PINION_BIN").expect("PINION_BIN")).join("pinion");
    let listen = if listener.is_some() { "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; " } else { "" };
    let script = format!("{listen}exec {} serve --config {}", program.display(), node.config().display());
    let mut command = node.command("sh");
    command.args(["-c", &script]).env("NOTIFY_SOCKET", node.dir.path().join("notify")).env("WATCHDOG_USEC", "3000000");
    command.stdin(listener.map_or_else(Stdio::null, Stdio::from)).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("nsenter starts")
}

/// Waits for the next notification that starts with `prefix`, and returns the descriptor that it contains.
fn receive(notify: &UnixDatagram, prefix: &str) -> Option<OwnedFd> {
    loop {
        let mut text = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let result = recvmsg(notify, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = result.unwrap_or_else(|error| panic!("receive {prefix}: {error}")).bytes;
        let mut files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let file = files.next().and_then(|mut files| files.next());
        if text[..length].starts_with(prefix.as_bytes()) {
            return file;
        }
    }
}

fn stop(node: &Node, daemon: &mut Child) {
    node.run("kill", &[&node.process("pinion").pid.to_string()]).ok();
    daemon.wait().expect("it exits");
}

/// Checks that a daemon serves this connection: an HTTP/2 server starts with a SETTINGS frame.
fn assert_served(mut connection: UnixStream) {
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut frame = [0; 9];
    connection.read_exact(&mut frame).expect("a response");
    assert_eq!(frame[3], 4, "a SETTINGS frame");
}

#[test]
fn the_socket_is_stored_while_the_daemon_restarts() {
    let (node, socket, notify) = node();
    let mut daemon = start(&node, None);
    let stored = receive(&notify, "FDSTORE=1\nFDNAME=socket").expect("the notification contains the socket");
    receive(&notify, "READY=1");
    receive(&notify, "WATCHDOG=1");
    receive(&notify, "STATUS=0 pods, 0 containers");
    receive(&notify, "WATCHDOG=1");
    node.run("kill", &["-HUP", &node.process("pinion").pid.to_string()]).ok();
    receive(&notify, "RELOADING=1\nMONOTONIC_USEC=");
    receive(&notify, "READY=1");
    stop(&node, &mut daemon);
    receive(&notify, "STOPPING=1");
    // No daemon is running: connections are queued.
    let queued = UnixStream::connect(&socket).expect("not refused");
    let mut daemon = start(&node, Some(stored));
    receive(&notify, "READY=1");
    assert_served(queued);
    assert_served(UnixStream::connect(&socket).expect("connects"));
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

#[test]
fn a_socket_of_the_service_manager_is_used() {
    let (node, socket, notify) = node();
    let listener = UnixListener::bind(&socket).expect("bound");
    let queued = UnixStream::connect(&socket).expect("connects");
    let mut daemon = start(&node, Some(listener.into()));
    receive(&notify, "READY=1");
    assert_served(queued);
    // The daemon executes itself, and serves the connection that was queued in the meantime.
    let before = node.process("pinion").pid;
    node.run("kill", &["-USR2", &before.to_string()]).ok();
    receive(&notify, "RELOADING=1");
    let queued = UnixStream::connect(&socket).expect("not refused");
    receive(&notify, "READY=1");
    assert_served(queued);
    assert_eq!(node.process("pinion").pid, before);
    wait_until("both daemons are ready", || node.daemon_log().matches(" ready ").count() == 2);
    stop(&node, &mut daemon);
    // A socket that is bound to another path is not used.
    let other = UnixListener::bind(node.dir.path().join("other.sock")).expect("bound");
    let mut daemon = start(&node, Some(other.into()));
    receive(&notify, "READY=1");
    assert_served(UnixStream::connect(&socket).expect("connects"));
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

/// Like [`wait_until`], but with a longer timeout.
fn eventually(description: &str, condition: impl FnMut() -> bool) {
    testbed::wait_until(description, Duration::from_secs(90), condition);
}

/// A separate file system for the data directory, which can be frozen.
struct Disk<'a>(&'a Node);

impl<'a> Disk<'a> {
    fn mount(node: &'a Node) -> Self {
        let image = node.dir.path().join("disk");
        fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("a file");
        let (image, data) = (image.display().to_string(), node.dir.path().join("data").display().to_string());
        node.run("mkfs.ext4", &["-q", &image]).ok();
        node.run("mount", &["-o", "loop", &image, &data]).ok();
        Self(node)
    }

    fn fsfreeze(&self, option: &str) {
        self.0.run("fsfreeze", &[option, &self.0.dir.path().join("data").display().to_string()]).ok();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Processes that are blocked in a frozen file system cannot be killed.
        self.0.run("fsfreeze", &["-u", &self.0.dir.path().join("data").display().to_string()]);
    }
}

#[test]
fn a_hung_monitor_and_disk_are_reported_and_the_watchdog_keeps_running() {
    let (node, socket, notify) = node();
    let disk = Disk::mount(&node);
    let mut daemon = start(&node, None);
    receive(&notify, "READY=1");
    let info = || node.pinion(&["--socket", &socket.display().to_string(), "--json", "info"]).json();
    eventually("the runtime is ready", || info()["runtime"]["ready"] == true);
    let monitor = node.process("pinmon").pid.to_string();
    node.run("kill", &["-STOP", &monitor]).ok();
    disk.fsfreeze("-f");
    eventually("both are reported", || {
        let info = info();
        info["runtime"]["reason"] == "MonitorNotAnswering"
            && info["runtime"]["ready"] == false
            && info["health"]["dataDisk"]["reason"] == "DataDiskNotAnswering"
    });
    // Drain the queued notifications and wait for a new one.
    notify.set_nonblocking(true).expect("set");
    while notify.recv(&mut [0; 4096]).is_ok() {}
    notify.set_nonblocking(false).expect("set");
    receive(&notify, "WATCHDOG=1");
    node.run("kill", &["-CONT", &monitor]).ok();
    disk.fsfreeze("-u");
    eventually("both respond again", || {
        let info = info();
        info["runtime"]["ready"] == true && info["health"]["dataDisk"]["ready"] == true
    });
    for line in ["the monitor does not respond", "the monitor responds again", "the data disk responds again"] {
        eventually(line, || node.daemon_log().contains(line));
    }
    stop(&node, &mut daemon);
    drop(disk);
    node.end_without_daemon();
}

#[test]
fn an_unread_log_delays_no_request_and_reports_dropped_lines() {
    const PINGS: usize = 200;
    const ROUNDS: usize = 60;
    let (node, socket, notify) = node();
    let config = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), format!("log.level = \"info,h2=trace\"\n{config}")).expect("written");
    let (log, stderr) = io::pipe().expect("a pipe");
    let mut daemon = start_logging_to(&node, None, stderr);
    receive(&notify, "READY=1");
    // Each frame causes several log lines at this level; no response waits for them.
    let mut connection = UnixStream::connect(&socket).expect("connects");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    let ping = b"\0\0\x08\x06\0\0\0\0\0pinion!!".repeat(PINGS);
    let mut responses = 0;
    for _ in 0..ROUNDS {
        connection.write_all(&ping).expect("written");
        for _ in 0..PINGS {
            while frame(&mut connection) != (6, 1) {}
            responses += 1;
        }
    }
    assert_eq!(responses, PINGS * ROUNDS);
    let info = node.pinion(&["--socket", &socket.display().to_string(), "info"]);
    assert_eq!(info.code, Some(0), "{info:?}");
    let dropped = BufReader::new(&log).lines().map(|line| line.expect("text")).find_map(|line| {
        let number = line.split_once("log lines were dropped")?.1.split_once("lines=")?.1.parse::<u64>();
        Some(number.expect("a number"))
    });
    assert!(dropped.is_some_and(|lines| lines > 0), "{dropped:?}");
    // The log is not read any longer; the daemon exits nevertheless.
    drop(connection);
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

/// Reads the next HTTP/2 frame and returns its type and flags.
fn frame(connection: &mut UnixStream) -> (u8, u8) {
    let mut head = [0; 9];
    connection.read_exact(&mut head).expect("a frame");
    let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    connection.read_exact(&mut body).expect("its body");
    (head[3], head[4])
}
