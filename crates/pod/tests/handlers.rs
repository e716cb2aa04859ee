//! Containers of an OCI runtime: daemon, monitor and the runtime itself are killed at every step, and nothing of a
//! container is left behind, also not in the state of the runtime.
#![cfg(feature = "failpoint")]

mod node;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use node::{Node, TIMEOUT, container, exit_code, on_a_node};
use pod::{Engine, Error, ErrorKind, OciHandler};
use testbed::{shell, wait_until};

const RUNC: &str = "/usr/sbin/runc";
const FAILPOINTS: [&str; 7] = [
    "container.recorded",
    "container.prepared",
    "container.made",
    "container.starting",
    "container.started",
    "remove.deleted",
    "remove.discarded",
];

/// Adds the handler `runc` to the configuration of a node.
fn with_runc(node: &mut Node, binary: &Path) {
    let handler = OciHandler {
        name: "runc".into(),
        binary: binary.to_owned(),
        timeout: Duration::from_secs(20),
        ..OciHandler::default()
    };
    node.config.handlers = vec![handler];
}

/// Kills the monitor of this node.
const KILL_MONITOR: &str = "kill -9 $(pidof pinmon)";

async fn lifecycle(node: &Node, engine: &Engine) -> Result<(), Error> {
    let mut sandbox = node.sandbox("web");
    sandbox.runtime_handler = "runc".into();
    let pod = engine.run_sandbox(sandbox).await?;
    let id = engine.create_container(&pod, container("c", &["true"])).await?;
    engine.start_container(&id).await?;
    assert_eq!(exit_code(engine, &id).await, Some(0));
    engine.stop_container(&id, Duration::ZERO).await?;
    engine.remove_container(&id).await?;
    engine.stop_sandbox(&pod).await?;
    engine.remove_sandbox(&pod).await
}

#[track_caller]
fn assert_no_state(node: &Node, when: &str) {
    let root = node.config.state_dir.join("runtime/runc");
    let left: Vec<PathBuf> = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{when}: {left:?}");
    // The child of a killed runtime exits when it notices that.
    wait_until(&format!("{when}: no runtime is running"), TIMEOUT, || shell("pidof runc || true").trim().is_empty());
}

async fn crash_everywhere(mut node: Node, and_the_monitor: bool) {
    with_runc(&mut node, Path::new(RUNC));
    if std::env::var_os("PINION_CRASH_AT").is_some() {
        let engine = node.open().await;
        return lifecycle(&node, &engine).await.expect("the lifecycle");
    }
    drop(node.open_with_image().await);
    for failpoint in FAILPOINTS {
        assert!(node.crash(failpoint), "{failpoint} is not reached");
        if and_the_monitor {
            // Only processes of this PID namespace are visible.
            shell("kill -9 $(pidof pinmon); while pidof pinmon; do sleep 0.01; done");
        }
        let engine = node.open().await;
        for sandbox in engine.sandboxes() {
            engine.remove_sandbox(&sandbox.id).await.expect(failpoint);
        }
        assert_no_state(&node, failpoint);
        lifecycle(&node, &engine).await.expect(failpoint);
        assert_no_state(&node, failpoint);
        node.assert_nothing_left(engine).await;
    }
}

#[test]
fn a_daemon_killed_anywhere_leaves_nothing_in_the_runtime() {
    on_a_node(|node| crash_everywhere(node, false));
}

#[test]
fn a_daemon_and_its_monitor_killed_anywhere_leave_nothing_in_the_runtime() {
    on_a_node(|node| crash_everywhere(node, true));
}

/// Writes a program.
fn install(path: &Path, text: &str) {
    fs::write(path, text).expect("write the program");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
}

/// How often [`killing_runtime`] kills.
const KILLS: usize = 14;

/// Writes a program that runs runc, and kills it or the monitor: at once in the first call of a command, and after a time
/// that increases from one call to the next.
fn killing_runtime(directory: &Path, verb: &str, kill: &str) -> PathBuf {
    let path = directory.join("killing-runc");
    let count = directory.join("count");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' {verb} '*) ;; *) exec {RUNC} \"$@\";; esac\n\
         echo >> {count}\nn=$(wc -l < {count})\n{RUNC} \"$@\" & runc=$!\n\
         [ $n = 1 ] || [ $n -gt {KILLS} ] || sleep $(printf 0.%03d $((n * 4)))\n[ $n -gt {KILLS} ] || {kill}\nwait $runc\n",
        count = count.display()
    );
    install(&path, &script);
    path
}

/// What may come of a request whose runtime or monitor is killed.
#[derive(PartialEq, Eq)]
enum Outcome {
    /// It fails in some of the rounds.
    Fails,
    /// It may fail.
    MayFail,
    /// It succeeds in all rounds.
    Succeeds,
}

async fn kill_runtime(mut node: Node, verb: &str, kill: &str, expected: Outcome) {
    let binary = killing_runtime(&node.dir, verb, kill);
    with_runc(&mut node, &binary);
    let engine = node.open_with_image().await;
    let (mut failures, mut failed_removals) = (0, 0);
    for round in 0..KILLS {
        let when = format!("round {round}");
        let outcome = lifecycle(&node, &engine).await;
        if expected == Outcome::Succeeds {
            outcome.as_ref().expect(&when);
        }
        failures += usize::from(outcome.is_err());
        for sandbox in engine.sandboxes() {
            // As the kubelet does: the program may kill the monitor again.
            while let Err(error) = engine.remove_sandbox(&sandbox.id).await {
                assert_eq!(error.kind, ErrorKind::Unavailable, "{when}: {error}");
                failed_removals += 1;
                assert!(failed_removals <= KILLS, "{when}: more removals failed than the monitor was killed: {error}");
            }
        }
        assert_no_state(&node, &when);
        assert!(engine.containers().is_empty(), "{when}");
    }
    assert!(failures > 0 || expected != Outcome::Fails, "the runtime was never killed in the middle");
    // The program no longer kills.
    lifecycle(&node, &engine).await.expect("the lifecycle");
    node.assert_nothing_left(engine).await;
}

#[test]
fn a_runtime_that_is_killed_while_it_creates_leaves_nothing_behind() {
    on_a_node(|node| kill_runtime(node, "create", "kill -9 $runc", Outcome::Fails));
}

#[test]
fn a_runtime_that_is_killed_while_it_starts_leaves_nothing_behind() {
    on_a_node(|node| kill_runtime(node, "start", "kill -9 $runc", Outcome::Fails));
}

#[test]
fn a_runtime_that_is_killed_while_it_deletes_leaves_nothing_behind() {
    on_a_node(|node| kill_runtime(node, "delete", "kill -9 $runc", Outcome::MayFail));
}

#[test]
fn a_monitor_that_is_killed_while_a_runtime_creates_leaves_nothing_behind() {
    on_a_node(|node| kill_runtime(node, "create", KILL_MONITOR, Outcome::Fails));
}

#[test]
fn a_monitor_that_is_killed_while_a_runtime_starts_does_not_end_the_container() {
    on_a_node(|node| kill_runtime(node, "start", KILL_MONITOR, Outcome::Succeeds));
}

/// Kills the monitor during the `start` of a runtime whose cases of a shell's `case` are `cases`: STARTS is a file to which
/// `start` adds a line. The container is started once.
async fn assert_started_once(mut node: Node, cases: &str) {
    let (binary, starts) = (node.dir.join("special-runc"), node.dir.join("starts"));
    let cases = cases.replace("STARTS", &starts.to_string_lossy());
    install(&binary, &format!("#!/bin/sh\ncase \" $* \" in\n{cases}\nesac\nexec {RUNC} \"$@\"\n"));
    with_runc(&mut node, &binary);
    let engine = node.open_with_image().await;
    lifecycle(&node, &engine).await.expect("the lifecycle");
    assert_eq!(fs::read_to_string(&starts).expect("started"), "\n", "it was started once");
    node.assert_nothing_left(engine).await;
}

#[test]
fn a_start_is_waited_for_although_the_created_process_has_the_descriptors_of_create() {
    on_a_node(|node| async move {
        // As with crun and youki, `create` leaves its descriptors to a process of another session.
        let cases = format!(
            "*' create '*) setsid sleep 20 <&- >&- 2>&- &;;\n*' start '*) echo >> STARTS; {KILL_MONITOR}; sleep 1;;"
        );
        assert_started_once(node, &cases).await;
    });
}

#[test]
fn a_program_that_appears_after_the_end_of_a_start_is_not_started_again() {
    on_a_node(|node| async move {
        // As with runc and crun on a machine with much to do: `start` ends before the program is executed.
        let cases = format!(
            "*' start '*) echo >> STARTS; {KILL_MONITOR}\n\
             setsid sh -c 'sleep 0.3; exec {RUNC} \"$0\" \"$@\"' \"$@\" & exit 0;;"
        );
        assert_started_once(node, &cases).await;
    });
}

#[test]
fn a_monitor_that_is_killed_while_a_runtime_deletes_leaves_nothing_behind() {
    on_a_node(|node| kill_runtime(node, "delete", KILL_MONITOR, Outcome::MayFail));
}

#[test]
fn a_runtime_deletes_an_exited_container_by_force_only_if_it_fails_otherwise() {
    on_a_node(|mut node| async move {
        let (binary, log) = (node.dir.join("logging-runc"), node.dir.join("log"));
        let deletes = |script: &str| {
            let text = format!(
                "#!/bin/sh\ncase \" $* \" in\n*' delete --force '*) echo force >> {log};;\n\
                 *' delete '*) echo plain >> {log}; {script};;\nesac\nexec {RUNC} \"$@\"\n",
                log = log.display()
            );
            fs::write(&log, "").expect("clear the log");
            install(&binary, &text);
        };
        deletes(":");
        with_runc(&mut node, &binary);
        let engine = node.open_with_image().await;
        for (script, expected) in [(":", "plain\n"), ("exit 1", "plain\nforce\n"), ("kill -9 $$", "plain\nforce\n")] {
            deletes(script);
            lifecycle(&node, &engine).await.expect(script);
            assert_eq!(fs::read_to_string(&log).expect("log"), expected, "{script}");
            assert_no_state(&node, script);
        }
        node.assert_nothing_left(engine).await;
    });
}
