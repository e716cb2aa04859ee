//! Containers without a process of their own, and commands of runtimes: what shims need.

mod node;

use std::{
    fs::File,
    io::Write,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    time::Instant,
};

use monitor_api::{
    Adopt, Attachments, ContainerDescription, Create, ExitStatus, FailureKind, Holding, HoldingState, LogOptions,
    Reply, Request, Role, RuntimeCommand,
};
use node::Node;
use rustix::fs::{MemfdFlags, memfd_create};

fn status(code: i32) -> ExitStatus {
    ExitStatus { code: Some(code), signal: None, oom_killed: false, at: 5 }
}

impl Node {
    /// Creates a container without a process. Its output is what is written to its FIFOs.
    fn create_external(&mut self, id: &str) {
        let create = Create {
            container: id.into(),
            sandbox: "pod".into(),
            spec: self.spec(id, &["true"]),
            log: LogOptions::default(),
            bundle: String::new(),
            mounts: Some(0),
            runtime: None,
            external: true,
            interpreter: None,
        };
        let output = self.endless(id);
        let (reply, files) = self.request(Request::Create(Box::new(create)), output).expect("create");
        assert!(matches!(reply, Reply::Created(created) if created.pid == 0), "it has no process");
        assert!(files.is_empty());
    }

    /// Opens the log, and the FIFOs in both directions: a shim may open and close them at any time.
    fn endless(&self, id: &str) -> Attachments {
        let log = self.reading(id).take(Role::Log).expect("a log");
        let open = |stream: &str| {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            options.open(self.fifo(id, stream)).expect("a FIFO").into()
        };
        let (stdout, stderr) = (open("stdout"), open("stderr"));
        Attachments::new().with(Role::Log, log).with(Role::StdoutRead, stdout).with(Role::StderrRead, stderr)
    }

    fn write(&self, id: &str, text: &str) {
        let fifo = File::options().read(true).write(true).open(self.fifo(id, "stdout"));
        fifo.expect("a FIFO").write_all(text.as_bytes()).expect("write");
    }

    fn end_container(&mut self, id: &str, status: ExitStatus) {
        self.request(Request::End { container: id.into(), status }, Attachments::new()).expect("end");
    }

    fn command(&mut self, script: &str, timeout: u32) -> Result<Vec<u8>, monitor_api::Failure> {
        let command = RuntimeCommand {
            operation: "test a command".into(),
            arguments: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            environment: vec!["WORD=hello".into()],
            directory: "/".into(),
            timeout,
        };
        let mut stdin = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC).expect("memfd"));
        stdin.write_all(b"input").expect("write");
        std::io::Seek::rewind(&mut stdin).expect("rewind");
        let attachments = Attachments::new().with(Role::Stdin, stdin.into());
        self.request(Request::RuntimeCommand(Box::new(command)), attachments).map(|(reply, _)| match reply {
            Reply::CommandOutput { output } => output,
            other => panic!("unexpected: {other:?}"),
        })
    }
}

#[test]
fn its_exit_is_reported_once_its_output_is_in_the_log() {
    let mut node = Node::start();
    node.create_external("c");
    node.start_container("c").expect("start");
    node.write("c", "first\n");
    node.wait_for_entry("c", "stdout F first");
    node.write("c", "last\n");
    node.end_container("c", status(7));
    assert_eq!(node.wait("c"), status(7));
    assert_eq!(node.text("c"), b"first\nlast\n");
    node.end_container("c", status(9));
    node.delete("c");
    node.run("process", &["sleep", "1000"]);
    let refused = node.request(Request::End { container: "process".into(), status: status(0) }, Attachments::new());
    assert_eq!(refused.map(|_| ()).expect_err("it has a process").kind, FailureKind::State);
    node.delete("process");
    node.end();
}

#[test]
fn one_that_is_deleted_without_an_exit_is_gone() {
    let mut node = Node::start();
    node.create_external("c");
    node.delete("c");
    assert!(node.inventory().is_empty());
    node.end();
}

#[test]
fn the_next_monitor_continues_with_it() {
    let mut node = Node::start();
    node.create_external("c");
    node.start_container("c").expect("start");
    node.write("c", "first\n");
    node.wait_for_entry("c", "stdout F first");
    let reading = node.endless("c");
    node.replace_monitor();
    node.write("c", "second\n");
    let container = ContainerDescription {
        id: "c".into(),
        sandbox: "pod".into(),
        cgroup: format!("{}/c", node.cgroup),
        external: true,
        ..ContainerDescription::default()
    };
    let holding = Holding { container, state: HoldingState::Running };
    node.request(Request::Adopt(Adopt { holding }), reading).expect("adopt");
    node.wait_for_entry("c", "stdout F second");
    node.end_container("c", status(3));
    assert_eq!(node.wait("c").code, Some(3));
    node.delete("c");
    node.end_after_kills();
}

#[test]
fn the_output_of_a_command_is_returned_and_an_error_names_its_cause() {
    let mut node = Node::start();
    assert_eq!(node.command("echo $WORD; cat", 20).expect("it succeeds"), b"hello\ninput");
    let failed = node.command("echo the cause >&2; exit 3", 20).expect_err("it fails");
    assert!(failed.message.contains("test a command") && failed.message.contains("the cause"), "{}", failed.message);
    let huge = node.command("head -c 1000000 /dev/zero", 20);
    assert!(huge.is_err() || huge.is_ok_and(|output| output.len() <= RuntimeCommand::OUTPUT_MAX), "it is bounded");
    let begin = Instant::now();
    let hung = node.command("sleep 1000", 1).expect_err("it hangs");
    assert!(hung.message.contains("timed out") && begin.elapsed().as_secs() < 10, "{}", hung.message);
    node.end();
}

#[test]
fn a_command_runs_in_the_attached_mount_namespace() {
    let mut node = Node::start();
    let namespace = std::thread::spawn(|| {
        syscall::mount_namespace::unshare_mounts().expect("unshare");
        rustix::mount::mount_change(
            "/",
            rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
        )
        .expect("private");
        rustix::mount::mount("tmpfs", "/mnt", "tmpfs", rustix::mount::MountFlags::empty(), c"").expect("mount");
        std::fs::write("/mnt/inside", "yes").expect("write");
        File::open("/proc/thread-self/ns/mnt").expect("a namespace")
    });
    let namespace = namespace.join().expect("no panic");
    let command = RuntimeCommand {
        operation: "look".into(),
        arguments: ["/bin/cat", "inside"].map(str::to_owned).into(),
        environment: Vec::new(),
        directory: "/mnt".into(),
        timeout: 20,
    };
    let namespace = namespace.as_fd().try_clone_to_owned().expect("dup");
    let attachments = Attachments::new().with(Role::Namespace(oci::NamespaceType::Mount), namespace);
    let (reply, _) = node.request(Request::RuntimeCommand(Box::new(command)), attachments).expect("it succeeds");
    assert!(matches!(reply, Reply::CommandOutput { output } if output == b"yes"));
    node.end();
}
