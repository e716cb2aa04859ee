//! Exec, attach and port-forward with the real `crictl`, over SPDY and over WebSocket.

mod terminal;

use std::{
    env,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use system_tests::{ContainerSpec, Node, PodSpec, wait_until};
use terminal::Terminal;

const TRANSPORTS: [&str; 2] = ["spdy", "websocket"];
const IMAGE: &str = "demo:1";
const ENDPOINT: &str = "unix:///run/pinion/pinion.sock";

/// Returns a node with a pod of one container, and the ids of the pod and the container.
fn node(command: &[&str], change: impl FnOnce(&mut serde_json::Value)) -> (Node, String, String) {
    let node = Node::start();
    node.load_image();
    let pod = PodSpec::named(&node, "pod");
    let pod_id = node.run_pod(&pod);
    let mut spec = ContainerSpec::new("one", IMAGE, command);
    change(&mut spec.0);
    let id = node.run_container(&pod_id, &pod, &spec);
    (node, pod_id, id)
}

fn crictl() -> PathBuf {
    PathBuf::from(env::var_os("CRICTL").expect("CRICTL names the crictl program: run `make test`"))
}

/// Returns a `crictl` command without a timeout.
fn command(node: &Node, args: &[&str]) -> Command {
    let mut command = node.command(crictl());
    command.args(["--config", "/dev/null", "--runtime-endpoint", ENDPOINT, "--image-endpoint", ENDPOINT]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `crictl` with this input. Returns standard output, standard error, and whether it succeeded.
fn run(node: &Node, args: &[&str], input: &[u8]) -> (String, String, bool) {
    let mut child = command(node, args).spawn().expect("crictl starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("crictl exits");
    let _ = writer.join().expect("no panic");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

fn end(node: Node) {
    node.remove_all_pods();
    node.end();
}

#[test]
fn exec_relays_input_output_and_exit_code() {
    let (node, _, id) = node(&["sleep", "1000"], |_| {});
    for transport in TRANSPORTS {
        let (out, err, success) =
            run(&node, &["exec", "-r", transport, &id, "sh", "-c", "echo out; echo err >&2"], b"");
        assert_eq!((out.as_str(), err.contains("err\n"), success), ("out\n", true, true), "{transport}: {err}");
        let (_, err, success) = run(&node, &["exec", "-r", transport, &id, "sh", "-c", "exit 3"], b"");
        assert!(!success && err.contains("exit code 3"), "{transport}: {err}");
        let (_, err, success) = run(&node, &["exec", "-r", transport, &id, "/no/such"], b"");
        assert!(!success && err.contains("/no/such"), "{transport}: {err}");
        let input = vec![b'x'; 3_000_000];
        let (out, err, success) = run(&node, &["exec", "-i", "-r", transport, &id, "wc", "-c"], &input);
        assert_eq!((out.trim(), success), ("3000000", true), "{transport}: {err}");
        let (out, _, success) = run(&node, &["exec", "-r", transport, &id, "head", "-c", "5000000", "/dev/zero"], b"");
        assert_eq!((out.len(), success), (5_000_000, true), "{transport}");
    }
    end(node);
}

#[test]
fn exec_on_a_terminal() {
    let (node, _, id) = node(&["sleep", "1000"], |_| {});
    for transport in TRANSPORTS {
        let line = format!(
            "{} --config /dev/null -r {ENDPOINT} exec -it -r {transport} {id} sh -c 'tty; read line; stty size; echo got-$line'",
            crictl().display()
        );
        let mut exec = Terminal::run(&node, &line);
        exec.see("/dev/pts/");
        exec.type_in("hello\r");
        exec.see("24 80");
        exec.see("got-hello");
        assert_eq!(exec.end(), Some(0), "{transport}");
    }
    end(node);
}

#[test]
fn attach_closes_stdin_only_with_stdin_once() {
    for transport in TRANSPORTS {
        let script = "while read line; do echo got-$line; done; echo over";
        let once = |spec: &mut serde_json::Value| {
            spec["stdin"] = json!(true);
            spec["stdin_once"] = json!(true);
        };
        let (node, _, id) = node(&["sh", "-c", script], once);
        let (out, err, success) = run(&node, &["attach", "-i", "-r", transport, &id], b"a line\n");
        assert_eq!((out.as_str(), success), ("got-a line\nover\n", true), "{transport}: {err}");
        wait_until("the container has exited", || {
            node.crictl(&["inspect", &id]).json()["status"]["state"] == "CONTAINER_EXITED"
        });
        end(node);
    }
    let (node, _, id) =
        node(&["sh", "-c", "while read line; do echo got-$line; done"], |spec| spec["stdin"] = json!(true));
    for transport in TRANSPORTS {
        let mut child = command(&node, &["attach", "-i", "-r", transport, &id]).spawn().expect("crictl starts");
        let (mut stdin, mut stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        stdin.write_all(b"more\n").expect("write");
        let mut line = [0; 9];
        stdout.read_exact(&mut line).expect("a line");
        assert_eq!(&line, b"got-more\n");
        drop(stdin);
        assert!(child.wait().expect("crictl exits").success());
        assert_eq!(node.crictl(&["inspect", &id]).json()["status"]["state"], "CONTAINER_RUNNING", "{transport}");
    }
    end(node);
}

#[test]
fn killing_a_client_kills_only_its_exec() {
    let (node, _, id) = node(&["sleep", "1000"], |_| {});
    for transport in TRANSPORTS {
        let mut child =
            command(&node, &["exec", "-i", "-r", transport, &id, "sleep", "777"]).spawn().expect("crictl starts");
        let is_running = || node.processes().iter().any(|process| process.command_line() == "sleep 777");
        wait_until("the command is running", is_running);
        kill_client(&node, &mut child);
        wait_until("the command has exited", || !is_running());
        let (out, ..) = run(&node, &["exec", "-r", transport, &id, "echo", "fine"], b"");
        assert_eq!(out, "fine\n");
    }
    assert_eq!(node.crictl(&["inspect", &id]).json()["status"]["state"], "CONTAINER_RUNNING");
    end(node);
}

/// Kills crictl itself, which is a child of nsenter.
fn kill_client(node: &Node, child: &mut Child) {
    for process in node.processes().iter().filter(|process| process.name == "crictl") {
        node.kill(process);
    }
    let _ = child.wait();
}

/// Starts a port-forward and waits until it listens.
fn forward(node: &Node, transport: &str, pod: &str, ports: &str) -> Child {
    let child = command(node, &["port-forward", "-r", transport, pod, ports]).spawn().expect("crictl starts");
    let port = ports.split(':').next().expect("a local port");
    wait_until("it listens", || {
        node.run("sh", &["-c", "cat /proc/net/tcp"])
            .stdout
            .contains(&format!(":{:04X} ", port.parse::<u16>().expect("a port")))
    });
    child
}

#[test]
fn port_forward_connects_to_the_loopback_interface_of_the_pod() {
    let (node, pod, _) = node(&["httpd", "-f", "-p", "127.0.0.1:80", "-h", "/www"], |_| {});
    for (transport, port) in TRANSPORTS.into_iter().zip(["8081", "8082"]) {
        let mut child = forward(&node, transport, &pod, &format!("{port}:80"));
        for _ in 0..20 {
            let page = node.run("curl", &["-fsS", "--max-time", "10", &format!("http://127.0.0.1:{port}/")]).ok();
            assert!(page.contains("hello from a pod"), "{page}");
        }
        kill_client(&node, &mut child);
    }
    end(node);
}

#[test]
fn port_forward_works_without_a_process_in_the_pod() {
    let node = Node::start();
    let pod = node.run_pod(&PodSpec::named(&node, "empty"));
    // A listener in the network namespace of the pod that is not a process of the pod; only on ::1.
    let pins = node.run("sh", &["-c", "ls /run/netns"]).ok();
    let script = format!(
        "nsenter --net=/run/netns/{pins} python3 -c 'import socket,os\ns=socket.create_server((\"::1\",90),family=socket.AF_INET6)\nos.write(1,b\"ready\\n\")\nwhile 1:\n c,_=s.accept(); d=b\"\"\n while 1:\n  b=c.recv(9999)\n  if not b: break\n  d+=b\n c.sendall(d.upper()); c.close()'"
    );
    let mut listener = node.command("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("a listener");
    let mut ready = [0; 6];
    listener.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it listens");
    for (transport, port) in TRANSPORTS.into_iter().zip(["8083", "8084"]) {
        let mut child = forward(&node, transport, &pod, &format!("{port}:90"));
        // The client shuts down its side first, and receives the response after that.
        let request = format!(
            "import socket\nc=socket.create_connection((\"127.0.0.1\",{port}))\nc.sendall(b\"hello\"*9999)\nc.shutdown(1)\nd=b\"\"\nwhile 1:\n b=c.recv(9999)\n if not b: break\n d+=b\nprint(len(d),d[:5].decode())"
        );
        assert_eq!(node.run("python3", &["-c", &request]).ok(), "49995 HELLO", "{transport}");
        kill_client(&node, &mut child);
    }
    let python = node.process("python3");
    node.kill(&python);
    let _ = listener.wait();
    end(node);
}

#[test]
fn sessions_end_with_the_daemon_and_containers_keep_running() {
    let (mut node, _, id) = node(&["sleep", "1000"], |_| {});
    let mut child = command(&node, &["exec", "-i", &id, "sleep", "777"]).spawn().expect("crictl starts");
    wait_until("the command is running", || {
        node.processes().iter().any(|process| process.command_line() == "sleep 777")
    });
    node.kill_daemon();
    // The exit code does not matter: crictl treats a lost connection as the end of the session.
    child.wait().expect("crictl exits");
    node.start_daemon();
    let (out, err, _) = run(&node, &["exec", &id, "echo", "again"], b"");
    assert_eq!(out, "again\n", "{err}");
    end(node);
}
