//! The processes of a pod in a virtual machine, the monitor and the daemon are killed, at rest and during a command: the pod is
//! stopped or lives on, its exit codes are reported, and nothing is left behind. Guests are emulated if this machine cannot run
//! them. PINION_VM_IMAGE is the directory of an image (`pinion vm image`).

use std::{thread, time::Instant};

use serde_json::Value;
use system_tests::{ContainerSpec, Node, Outcome, PodSpec, Process, node_with_guests, wait_until};

const IMAGE: &str = "docker.io/library/demo:1";
/// The processes of a virtual machine.
const PROGRAMS: [&str; 2] = ["qemu-system-", "virtiofsd"];
/// A command that writes, and exits after the kill.
const COMMAND: &str = "echo begun; touch /tmp/begun; sleep 3; echo ended; exit 7";
/// How long a request may take whose virtual machine is gone, in seconds: less than its own time limit.
const FAILURE_MAX: u64 = 20;

/// Runs a pod in a virtual machine, and a container in it that exits with code 9 when a file exists. Returns their ids.
fn run_pod(node: &Node, name: &str) -> (String, String) {
    let pod = PodSpec::named(node, name);
    let file = node.file(&format!("pod-{name}.json"), &pod.0);
    let pod_id = node.crictl(&["--timeout", "90s", "runp", "--runtime", "vm", &file]).ok();
    let script = "echo running; until [ -e /tmp/stop ]; do sleep 0.2; done; echo stopped; exit 9";
    let id = node.run_container(&pod_id, &pod, &ContainerSpec::new("app", IMAGE, &["sh", "-c", script]));
    wait_until("the container is running", || node.crictl(&["logs", &id]).ok() == "running");
    (pod_id, id)
}

fn guests(node: &Node) -> Vec<Process> {
    let is_guests = |process: &Process| PROGRAMS.iter().any(|program| process.command_line().contains(program));
    node.processes().into_iter().filter(is_guests).collect()
}

fn status(node: &Node, id: &str) -> Value {
    node.crictl(&["inspect", id]).json()["status"].clone()
}

fn exec(node: &Node, id: &str, script: &str) -> Outcome {
    node.pinion(&["exec", id, "sh", "-c", script])
}

/// Runs a command, and `kill` while the command is running. Returns what became of it.
fn during_a_command(node: &Node, id: &str, kill: impl FnOnce()) -> Outcome {
    exec(node, id, "rm -f /tmp/begun").ok();
    thread::scope(|scope| {
        let command = scope.spawn(|| exec(node, id, COMMAND));
        wait_until("the command is running", || {
            command.is_finished() || exec(node, id, "test -e /tmp/begun").code == Some(0)
        });
        kill();
        command.join().expect("the command ends")
    })
}

#[test]
fn a_pod_is_stopped_when_a_process_of_its_virtual_machine_is_killed() {
    let node = node_with_guests("");
    for program in PROGRAMS {
        for is_busy in [false, true] {
            let (pod_id, id) = run_pod(&node, &format!("{program}{is_busy}"));
            let guests = guests(&node);
            let process = guests.iter().find(|process| process.command_line().contains(program)).expect("a process");
            match is_busy {
                false => node.kill(process),
                true => {
                    let mut begin = Instant::now();
                    let outcome = during_a_command(&node, &id, || {
                        begin = Instant::now();
                        node.kill(process);
                    });
                    outcome.error();
                    let seconds = begin.elapsed().as_secs();
                    assert!(seconds < FAILURE_MAX, "{program}: the command ended after {seconds} s: {outcome:?}");
                }
            }
            wait_until("the container has exited", || status(&node, &id)["state"] == "CONTAINER_EXITED");
            let exit = status(&node, &id)["exitCode"].as_i64();
            assert!(
                exit.is_some_and(|code| code != 0),
                "{program}: the exit code is unknown, and reported as a failure: {exit:?}"
            );
            wait_until("the pod is stopped", || {
                node.crictl(&["inspectp", &pod_id]).json()["status"]["state"] == "SANDBOX_NOTREADY"
            });
            wait_until("the virtual machine has ended", || self::guests(&node).is_empty());
            assert!(node.crictl(&["logs", &id]).ok() == "running", "output is kept");
            node.crictl(&["stopp", &pod_id]).ok();
            node.crictl(&["rmp", &pod_id]).ok();
        }
    }
    node.end();
}

#[test]
fn a_virtual_machine_outlives_a_killed_monitor_and_daemon() {
    let mut node = node_with_guests("");
    for (round, is_busy) in [false, true].into_iter().enumerate() {
        for kill in ["monitor", "daemon", "both"] {
            println!("{kill}, {}", if is_busy { "during a command" } else { "at rest" });
            let (pod_id, id) = run_pod(&node, &format!("{kill}-{round}"));
            let pids: Vec<i32> = guests(&node).iter().map(|process| process.pid).collect();
            let victims: &[&str] = match kill {
                "monitor" => &["pinmon"],
                "daemon" => &["pinion"],
                _ => &["pinmon", "pinion"],
            };
            let victims: Vec<String> = victims.iter().map(|name| node.process(name).pid.to_string()).collect();
            let kill_all = || {
                let mut arguments = vec!["-KILL"];
                arguments.extend(victims.iter().map(String::as_str));
                node.run("kill", &arguments).ok();
            };
            if is_busy {
                let outcome = during_a_command(&node, &id, kill_all);
                match kill {
                    // The streams of the command are those of the daemon.
                    "monitor" => {
                        assert_eq!((outcome.code, outcome.stdout.trim()), (Some(7), "begun\nended"), "{outcome:?}")
                    }
                    _ => drop(outcome.error()),
                }
            } else {
                kill_all();
            }
            if kill != "monitor" {
                node.reap_daemon();
                node.start_daemon();
            }
            wait_until("commands are executed", || exec(&node, &id, "echo alive").stdout.trim() == "alive");
            assert_eq!(guests(&node).iter().map(|process| process.pid).collect::<Vec<_>>(), pids, "the same guest");
            assert_eq!(status(&node, &id)["state"], "CONTAINER_RUNNING");
            exec(&node, &id, "touch /tmp/stop").ok();
            wait_until("the exit is reported", || status(&node, &id)["state"] == "CONTAINER_EXITED");
            assert_eq!(status(&node, &id)["exitCode"], 9, "{kill}");
            assert_eq!(node.crictl(&["logs", &id]).ok(), "running\nstopped", "nothing is lost or logged twice");
            node.crictl(&["stopp", &pod_id]).ok();
            node.crictl(&["rmp", &pod_id]).ok();
            assert!(guests(&node).is_empty(), "{kill}: the virtual machine has ended");
        }
    }
    node.end();
}
