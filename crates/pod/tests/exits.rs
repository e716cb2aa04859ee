//! Exits of containers that are easy to miss, and stops that fail halfway.

mod node;

use std::{fs, time::Duration};

use node::{exit_code, on_a_node, script, state};
use pod::ContainerState;
use rustix::{
    net::{Shutdown, SocketAddrUnix, getpeername, shutdown},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};
use testbed::shell;

/// Breaks the engine's connection to its monitor; both keep running.
fn break_connection() {
    let own_pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("own pidfd");
    let mut broken = 0;
    for entry in fs::read_dir("/proc/self/fd").expect("descriptors").flatten() {
        let number = entry.file_name().to_str().expect("text").parse().expect("a number");
        let Ok(file) = pidfd_getfd(&own_pidfd, number, PidfdGetfdFlags::empty()) else { continue };
        let peer = getpeername(&file).ok().flatten().and_then(|peer| SocketAddrUnix::try_from(peer).ok());
        let is_monitor = |path: &[u8]| String::from_utf8_lossy(path).contains("monitor.sock");
        if peer.and_then(|peer| peer.path_bytes().map(is_monitor)).unwrap_or(false) {
            shutdown(&file, Shutdown::Both).expect("shutdown");
            broken += 1;
        }
    }
    assert_eq!(broken, 1, "connections to the monitor");
}

#[test]
fn an_exit_while_the_connection_is_broken_is_not_missed() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let id = node.run(&engine, &pod, script("c", "exec sleep 1000")).await;
        let pid = engine.container(&id).expect("c").pid.expect("pid");
        let monitor = engine.status().await.info.monitor.expect("the monitor").pid;
        // The monitor sees the broken connection and the exit at the same time, when it has no daemon to report the
        // exit to.
        shell(&format!("kill -STOP {monitor}"));
        break_connection();
        shell(&format!("kill -9 {pid}; kill -CONT {monitor}"));
        assert_eq!(exit_code(&engine, &id).await, Some(137));
        assert_eq!(engine.status().await.info.monitor.expect("the monitor").pid, monitor, "the same monitor");
        engine.stop_container(&id, Duration::from_secs(60)).await.expect("stop");
        engine.remove_container(&id).await.expect("remove");
        node.assert_nothing_left(engine).await;
    });
}

#[test]
fn a_stop_signal_that_could_not_be_sent_is_sent_by_the_next_stop() {
    on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let pod = engine.run_sandbox(node.sandbox("web")).await.expect("run");
        let mut config = script("c", "exec sleep 1000");
        // The monitor refuses to send it.
        config.stop_signal = Some(99);
        let id = node.run(&engine, &pod, config).await;
        for attempt in ["first", "second"] {
            let stopped = engine.stop_container(&id, Duration::from_secs(1)).await;
            assert!(stopped.expect_err(attempt).message.contains("signal 99"), "{attempt} stop");
            assert_eq!(state(&engine, &id), ContainerState::Running, "{attempt} stop");
        }
        engine.stop_container(&id, Duration::ZERO).await.expect("kill");
        node.assert_nothing_left(engine).await;
    });
}
