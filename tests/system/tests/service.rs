//! What a service manager does with the daemon: sd_notify(3), sd_listen_fds(3), its descriptor store. The test is the
//! manager.

use std::{
    fs,
    io::{self, BufRead, BufReader, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use system_tests::{Node, Options, wait_until};

/// A node whose daemon is this test's to start; its socket lies where the test can reach it.
fn node() -> (Node, PathBuf, UnixDatagram) {
    let node = Node::cold(Options::default());
    let socket = node.dir.path().join("pinion.sock");
    let config = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), format!("socket = {socket:?}\n{config}")).expect("written");
    let notify = UnixDatagram::bind(node.dir.path().join("notify")).expect("bound");
    notify.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    (node, socket, notify)
}

/// As systemd does: `listener` becomes descriptor 3.
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

/// The next word that begins so, and the descriptor that came with it.
fn heard(notify: &UnixDatagram, word: &str) -> Option<OwnedFd> {
    loop {
        let mut text = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(notify, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = got.unwrap_or_else(|error| panic!("{word} never came: {error}")).bytes;
        let mut files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let file = files.next().and_then(|mut files| files.next());
        if text[..length].starts_with(word.as_bytes()) {
            return file;
        }
    }
}

fn stop(node: &Node, daemon: &mut Child) {
    node.run("kill", &[&node.process("pinion").pid.to_string()]).ok();
    daemon.wait().expect("it ends");
}

/// Whether a daemon answers on a connection that was made before: HTTP/2 begins with a SETTINGS frame of its own.
fn answers(mut connection: UnixStream) {
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut frame = [0; 9];
    connection.read_exact(&mut frame).expect("an answer");
    assert_eq!(frame[3], 4, "a SETTINGS frame");
}

#[test]
fn the_socket_outlives_the_daemon_in_the_store() {
    let (node, socket, notify) = node();
    let mut daemon = start(&node, None);
    let stored = heard(&notify, "FDSTORE=1\nFDNAME=socket").expect("the socket comes with it");
    heard(&notify, "READY=1");
    heard(&notify, "WATCHDOG=1");
    heard(&notify, "STATUS=0 pods, 0 containers");
    heard(&notify, "WATCHDOG=1");
    node.run("kill", &["-HUP", &node.process("pinion").pid.to_string()]).ok();
    heard(&notify, "RELOADING=1\nMONOTONIC_USEC=");
    heard(&notify, "READY=1");
    stop(&node, &mut daemon);
    heard(&notify, "STOPPING=1");
    // Nobody runs: who connects waits.
    let waiting = UnixStream::connect(&socket).expect("not refused");
    let mut daemon = start(&node, Some(stored));
    heard(&notify, "READY=1");
    answers(waiting);
    answers(UnixStream::connect(&socket).expect("connects"));
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

#[test]
fn a_socket_that_the_manager_listens_on_is_taken() {
    let (node, socket, notify) = node();
    let listener = UnixListener::bind(&socket).expect("bound");
    let waiting = UnixStream::connect(&socket).expect("connects");
    let mut daemon = start(&node, Some(listener.into()));
    heard(&notify, "READY=1");
    answers(waiting);
    // It gives way to itself, and the connection made meanwhile is answered.
    let before = node.process("pinion").pid;
    node.run("kill", &["-USR2", &before.to_string()]).ok();
    heard(&notify, "RELOADING=1");
    let waiting = UnixStream::connect(&socket).expect("not refused");
    heard(&notify, "READY=1");
    answers(waiting);
    assert_eq!(node.process("pinion").pid, before);
    wait_until("both daemons said that they are ready", || node.daemon_log().matches(" ready ").count() == 2);
    stop(&node, &mut daemon);
    // One that is bound elsewhere is none of ours.
    let other = UnixListener::bind(node.dir.path().join("other.sock")).expect("bound");
    let mut daemon = start(&node, Some(other.into()));
    heard(&notify, "READY=1");
    answers(UnixStream::connect(&socket).expect("its own"));
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

/// Waits longer than for what takes no time.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !condition() {
        assert!(Instant::now() < end, "did not happen within 90 s: {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// A data directory on a file system of its own that can be frozen.
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

    fn change(&self, how: &str) {
        self.0.run("fsfreeze", &[how, &self.0.dir.path().join("data").display().to_string()]).ok();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // What hangs in a frozen file system cannot even be killed.
        self.0.run("fsfreeze", &["-u", &self.0.dir.path().join("data").display().to_string()]);
    }
}

#[test]
fn a_monitor_and_a_disk_that_hang_are_reported_and_the_watchdog_goes_on() {
    let (node, socket, notify) = node();
    let disk = Disk::mount(&node);
    let mut daemon = start(&node, None);
    heard(&notify, "READY=1");
    let info = || node.pinion(&["--socket", &socket.display().to_string(), "--json", "info"]).json();
    eventually("all is well", || info()["runtime"]["ready"] == true);
    let monitor = node.process("pinmon").pid.to_string();
    node.run("kill", &["-STOP", &monitor]).ok();
    disk.change("-f");
    eventually("both are reported", || {
        let info = info();
        info["runtime"]["reason"] == "MonitorNotAnswering"
            && info["runtime"]["ready"] == false
            && info["health"]["dataDisk"]["reason"] == "DataDiskNotAnswering"
    });
    // What waited since then, and one more.
    notify.set_nonblocking(true).expect("set");
    while notify.recv(&mut [0; 4096]).is_ok() {}
    notify.set_nonblocking(false).expect("set");
    heard(&notify, "WATCHDOG=1");
    node.run("kill", &["-CONT", &monitor]).ok();
    disk.change("-u");
    eventually("both answer again", || {
        let info = info();
        info["runtime"]["ready"] == true && info["health"]["dataDisk"]["ready"] == true
    });
    for line in ["the monitor does not answer", "the monitor answers again", "the data disk answers again"] {
        eventually(line, || node.daemon_log().contains(line));
    }
    stop(&node, &mut daemon);
    drop(disk);
    node.end_without_daemon();
}

#[test]
fn a_log_that_nobody_reads_delays_nobody_and_reports_what_is_missing() {
    const PINGS: usize = 200;
    const ROUNDS: usize = 60;
    let (node, socket, notify) = node();
    let config = fs::read_to_string(node.config()).expect("read");
    fs::write(node.config(), format!("log.level = \"info,h2=trace\"\n{config}")).expect("written");
    let (log, stderr) = io::pipe().expect("a pipe");
    let mut daemon = start_logging_to(&node, None, stderr);
    heard(&notify, "READY=1");
    // Each frame is some lines at this level; no answer waits for them.
    let mut connection = UnixStream::connect(&socket).expect("connects");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    let ping = b"\0\0\x08\x06\0\0\0\0\0pinion!!".repeat(PINGS);
    let mut answered = 0;
    for _ in 0..ROUNDS {
        connection.write_all(&ping).expect("written");
        for _ in 0..PINGS {
            while frame(&mut connection) != (6, 1) {}
            answered += 1;
        }
    }
    assert_eq!(answered, PINGS * ROUNDS);
    let info = node.pinion(&["--socket", &socket.display().to_string(), "info"]);
    assert_eq!(info.code, Some(0), "{info:?}");
    let missing = BufReader::new(&log).lines().map(|line| line.expect("text")).find_map(|line| {
        let number = line.split_once("log lines were dropped")?.1.split_once("lines=")?.1.parse::<u64>();
        Some(number.expect("a number"))
    });
    assert!(missing.is_some_and(|lines| lines > 0), "{missing:?}");
    // Nobody reads again: it ends all the same.
    drop(connection);
    stop(&node, &mut daemon);
    node.end_without_daemon();
}

/// Type and flags of the next HTTP/2 frame.
fn frame(connection: &mut UnixStream) -> (u8, u8) {
    let mut head = [0; 9];
    connection.read_exact(&mut head).expect("a frame");
    let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    connection.read_exact(&mut body).expect("its body");
    (head[3], head[4])
}
