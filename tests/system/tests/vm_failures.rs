//! Pods in virtual machines when something of them fails: the daemon is killed, the guest hangs, is paused, or is stopped
//! while it boots. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use system_tests::{Node, Process, node_with_guests, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
const SECOND: Duration = Duration::from_secs(1);
/// Upper limit of what a test waits for: checks of a guest that hangs take a while.
const LIMIT: Duration = Duration::from_secs(90);

fn run(node: &Node, name: &str, more: &[&str], command: &str) {
    let mut arguments = vec!["run", "-d", "--runtime", "vm", "--pod", "pod", "--name", name];
    arguments.extend(more);
    arguments.extend([IMAGE, "sh", "-c", command]);
    node.pinion(&arguments).ok();
}

fn find(node: &Node, program: &str) -> Option<Process> {
    node.processes().into_iter().find(|process| process.command_line().contains(program) && process.state != 'Z')
}

fn hypervisor(node: &Node) -> Process {
    find(node, "qemu-system-x86").expect("a virtual machine monitor")
}

fn signal(node: &Node, process: &Process, signal: &str) {
    node.run("kill", &[signal, &process.pid.to_string()]).ok();
}

/// Starts a program of the node in the background.
fn spawn(node: &Node, arguments: &[&str]) -> Child {
    let program = env::var("PINION_BIN").expect("PINION_BIN is the directory of the programs") + "/pinion";
    let mut command = node.command(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("start pinion")
}

#[track_caller]
fn wait_long(description: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "{description}");
        sleep(Duration::from_millis(200));
    }
}

/// Returns the names of the ports that a guest has, but those of connections, sorted.
fn ports(node: &Node) -> Vec<String> {
    let script = "cat /sys/class/virtio-ports/*/name";
    let outcome = node.pinion(&["exec", "app", "sh", "-c", script]);
    let mut names: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
    names.retain(|name| !name.starts_with("agent-"));
    names.sort();
    names
}

fn is_exited(node: &Node) -> bool {
    node.pinion(&["ps", "-a"]).ok().lines().any(|line| line.contains("app") && line.contains("Exited"))
}

/// Waits until the pod is stopped because of its virtual machine, and removes it.
fn expect_end(node: &Node, reason: &str) {
    wait_long("the container has exited", || is_exited(node));
    wait_until("nothing of the virtual machine is left", || {
        find(node, "qemu-system-x86").is_none() && find(node, "virtiofsd").is_none()
    });
    let log = node.daemon_log();
    assert!(log.contains("the virtual machine of a pod has failed") && log.contains(reason), "{log}");
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
}

#[test]
fn commands_end_with_the_daemon_that_started_them() {
    let mut node = node_with_guests("");
    let volume = node.dir.path().join("volume");
    fs::create_dir(&volume).expect("a volume");
    run(&node, "app", &["-v", &format!("{}:/volume", volume.display())], "sleep 10000");
    let own = ports(&node).len();
    let script = "while :; do echo x >> /volume/ticks; sleep 0.1; done";
    let mut clients = [
        spawn(&node, &["exec", "app", "sh", "-c", script]),
        spawn(&node, &["exec", "app", "sleep", "4711"]),
        spawn(&node, &["exec", "-i", "app", "cat"]),
    ];
    let ticks = || fs::metadata(volume.join("ticks")).map_or(0, |file| file.len());
    wait_until("the commands run", || ticks() > 0);
    wait_until("all of them have ports", || ports(&node).len() == own + 7);
    // Not `kill_daemon`: the clients have its name, too.
    let daemon = find(&node, " serve").expect("the daemon");
    node.kill(&daemon);
    node.reap_daemon();
    for client in &mut clients {
        client.wait().expect("its client ends");
    }
    sleep(2 * SECOND);
    let before = ticks();
    sleep(2 * SECOND);
    assert_eq!(ticks(), before, "the command ended with the daemon, not with the next one");
    node.start_daemon();
    wait_until("the commands are gone", || !node.pinion(&["exec", "app", "ps"]).ok().contains("4711"));
    wait_until("their ports are gone, those of the container are not", || ports(&node).len() == own);
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}

fn is_app(node: &Node, id: &str) -> bool {
    node.pinion(&["inspect", "app"]).stdout.contains(id)
}

#[test]
fn a_command_does_not_outlive_a_client_that_does_not_read() {
    let node = node_with_guests("");
    run(&node, "app", &[], "sleep 10000");
    let own = ports(&node).len();
    let mut client = spawn(&node, &["exec", "app", "yes"]);
    sleep(4 * SECOND);
    assert_eq!(ports(&node).len(), own + 2, "it runs, and nobody reads");
    node.kill(&find(&node, "exec app yes").expect("the client"));
    client.wait().expect("exit");
    wait_until("its ports are removed", || ports(&node).len() == own);
    let container = node.run("sh", &["-c", "ls /run/pinion/container"]).ok();
    let id = container.lines().find(|id| is_app(&node, id)).expect("the container");
    let begin = Instant::now();
    let outcome = node.crictl(&["exec", "-s", "--timeout", "60", id, "sh", "-c", "yes & sleep 1"]);
    let took = begin.elapsed();
    assert!(
        !outcome.stdout.is_empty() && took < 30 * SECOND,
        "a process that is left does not delay the answer: {took:?}"
    );
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_guest_that_hangs_is_ended_and_one_that_pauses_is_not() {
    let node = node_with_guests("silence_timeout = \"8s\"");
    run(&node, "app", &[], "sleep 10000");
    sleep(12 * SECOND);
    assert!(!is_exited(&node), "a guest that is idle answers");
    signal(&node, &hypervisor(&node), "-STOP");
    sleep(4 * SECOND);
    signal(&node, &hypervisor(&node), "-CONT");
    sleep(6 * SECOND);
    assert!(!is_exited(&node), "it was slow");
    assert_eq!(node.pinion(&["exec", "app", "echo", "alive"]).ok(), "alive");
    signal(&node, &hypervisor(&node), "-STOP");
    expect_end(&node, "has been silent");
    node.end();
}

#[test]
fn a_paused_guest_is_ended() {
    let mut node = node_with_guests("silence_timeout = \"8s\"");
    run(&node, "app", &[], "sleep 10000");
    node.kill_daemon();
    command_hypervisor(&node, "stop");
    node.start_daemon();
    expect_end(&node, "is paused");
    node.end();
}

/// Sends a command to QEMU, to which no daemon is connected.
fn command_hypervisor(node: &Node, command: &str) {
    let mut socket = UnixStream::connect(hypervisor(node).path("/run/vm/qmp")).expect("QMP");
    let mut answers = BufReader::new(socket.try_clone().expect("a socket")).lines();
    for command in ["qmp_capabilities", command] {
        answers.next().expect("a line").expect("read");
        writeln!(socket, "{{\"execute\": \"{command}\"}}").expect("write");
    }
    answers.next().expect("a line").expect("read");
}

#[test]
fn a_guest_that_was_paused_gets_the_right_time() {
    let mut node = node_with_guests("");
    run(&node, "app", &[], "while :; do date +%s; sleep 0.2; done");
    node.kill_daemon();
    command_hypervisor(&node, "stop");
    sleep(5 * SECOND);
    command_hypervisor(&node, "cont");
    sleep(SECOND);
    node.start_daemon();
    let seconds = |text: &str| text.trim().parse::<u64>().expect("seconds");
    wait_until("the time of the guest is right", || {
        let guest = node.pinion(&["exec", "app", "date", "+%s"]);
        guest.code == Some(0) && seconds(&guest.stdout).abs_diff(seconds(&node.run("date", &["+%s"]).ok())) <= 2
    });
    let times = || -> Vec<u64> { node.pinion(&["logs", "app"]).ok().lines().map(seconds).collect() };
    let now = || seconds(&node.run("date", &["+%s"]).ok());
    wait_until("the container prints the right time", || times().last().is_some_and(|time| now().abs_diff(*time) <= 2));
    let times = times();
    assert!(times.windows(2).any(|pair| pair[1] >= pair[0] + 4), "it was late before: {times:?}");
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_jail_has_a_small_file_system_and_no_logs() {
    // The limits of containers would break virtiofsd, which has a descriptor for each inode that the guest knows.
    let limits = "[containers]\ndefault_ulimits = [\"nofile=64:128\"]\npids_limit = 3";
    let mut node = node_with_guests(limits);
    run(&node, "app", &[], "sleep 10000");
    let sandbox = node.run("sh", &["-c", "ls -d /run/pinion/sandbox/*"]).ok();
    for program in ["qemu-system-x86", "virtiofsd"] {
        let process = find(&node, program).expect("a process");
        let inside = |script: &str| {
            node.run("nsenter", &["--target", &process.pid.to_string(), "--mount", "/bin/sh", "-c", script]).ok()
        };
        let files = fs::read_to_string(process.directory.join("limits")).expect("limits");
        let files = files.lines().find(|line| line.starts_with("Max open files")).expect("a limit").to_owned();
        let files: Vec<&str> = files.split_whitespace().collect();
        assert!(files[3] == files[4] && files[3].parse::<u64>().expect("a number") > 128, "{program}: {files:?}");
        let limits = inside("stat -f -c '%T %b %S %c' /run/vm");
        let words: Vec<&str> = limits.split_whitespace().collect();
        let numbers: Vec<u64> = words[1..].iter().map(|word| word.parse().expect("a number")).collect();
        assert!(words[0] == "tmpfs" && numbers[0] * numbers[1] <= 64 << 10 && numbers[2] <= 16, "{program}: {limits}");
        let size =
            inside("head -c 1000000 /dev/zero > /run/vm/large 2>/dev/null; wc -c < /run/vm/large; rm /run/vm/large");
        assert!(size.trim().parse::<u64>().expect("a size") <= 64 << 10, "{program} could fill more: {size}");
    }
    let mounts = fs::read_to_string(hypervisor(&node).directory.join("mountinfo")).expect("mounts");
    assert!(!mounts.contains("/pinion/sandbox"), "it sees the state of the node: {mounts}");
    let logs = node.run("ls", &["-ln", &format!("{sandbox}/vm")]).ok();
    assert!(
        logs.contains("hypervisor.log")
            && logs.lines().skip(1).all(|line| line.contains(" 0        0 ") || line.contains(" 0 0 ")),
        "{logs}"
    );
    assert!(!node.mountinfo().iter().any(|mount| mount.contains("/run/vm") || mount.contains(&sandbox)), "on the node");
    node.kill_daemon();
    node.start_daemon();
    assert_eq!(node.pinion(&["exec", "app", "echo", "alive"]).ok(), "alive");
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_pod_that_is_stopped_while_it_boots_does_not_wait_for_the_boot() {
    let node = node_with_guests("");
    let mut client =
        spawn(&node, &["run", "-d", "--runtime", "vm", "--pod", "pod", "--name", "app", IMAGE, "sleep", "9"]);
    wait_until("it boots", || find(&node, "qemu-system-x86").is_some());
    // It can never boot now.
    signal(&node, &hypervisor(&node), "-STOP");
    sleep(SECOND);
    let sandbox = node.run("sh", &["-c", "basename /run/pinion/sandbox/*"]).ok();
    let begin = Instant::now();
    let stopped = node.crictl(&["stopp", &sandbox]);
    let took = begin.elapsed();
    assert!(took < 15 * SECOND, "{took:?}: {stopped:?}");
    assert!(!client.wait().expect("exit").success());
    assert!(find(&node, "qemu-system-x86").is_none() && find(&node, "virtiofsd").is_none(), "everything is undone");
    node.remove_all_pods();
    node.end();
}

#[test]
fn that_kvm_does_not_run_guests_is_known_to_the_next_daemon() {
    let mut node = node_with_guests("");
    let accelerator =
        |node: &Node| node.pinion(&["handlers"]).ok().lines().find(|line| line.contains("vm")).map(str::to_owned);
    run(&node, "app", &[], "sleep 10000");
    let used = accelerator(&node).expect("the handler");
    let is_given_up = node.run("ls", &["/run/pinion"]).ok().contains("kvm-unusable");
    assert_eq!(used.contains("emulation"), is_given_up || !fs::exists("/dev/kvm").expect("stat"), "{used}");
    node.kill_daemon();
    node.start_daemon();
    assert_eq!(accelerator(&node).expect("the handler"), used);
    node.pinion(&["rm", "-f", "app"]).ok();
    node.remove_all_pods();
    node.end();
}
