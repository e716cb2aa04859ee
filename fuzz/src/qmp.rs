use std::{os::fd::OwnedFd, str::Lines, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    runtime::Builder,
};
use vm::{
    Error,
    qemu::Qemu,
    qmp::{Events, Qmp},
    vmm::Vmm,
};

use crate::answers::check_text;

/// Time limit of a command. Nearly all are answered at once, or the connection is closed.
const TIMEOUT: Duration = Duration::from_millis(20);
/// Stands for the number of the command that a line answers.
const NUMBER: &str = "$";
/// Number of events that are received: more do not fit into an input.
const EVENTS: usize = 8192;

/// Has the driver of QEMU read lines: the first one is the greeting. A command is answered by the lines up to one with
/// [`NUMBER`]. Every error must be bounded and printable.
pub fn qmp(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (near, far) = UnixStream::pair().expect("sockets");
        tokio::join!(serve(far, text.lines()), control(near));
    });
}

/// Answers commands until there are no lines left, or the driver has closed the connection.
async fn serve(mut socket: UnixStream, mut lines: Lines<'_>) {
    let (reader, mut writer) = socket.split();
    let mut commands = BufReader::new(reader).lines();
    let greeting = format!("{}\r\n", lines.next().unwrap_or_default());
    if writer.write_all(greeting.as_bytes()).await.is_err() {
        return;
    }
    while let Ok(Some(command)) = commands.next_line().await {
        let command: serde_json::Value = serde_json::from_str(&command).expect("a command is JSON");
        let number = command["id"].as_u64().expect("a command has a number").to_string();
        loop {
            let Some(line) = lines.next() else { return };
            let answer = format!("{}\n", line.replace(NUMBER, &number));
            if writer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            if line.contains(NUMBER) {
                break;
            }
        }
    }
}

async fn control(socket: UnixStream) {
    let qmp = match Qmp::negotiate(socket, TIMEOUT).await {
        Ok(qmp) => qmp,
        Err(error) => return check_text(&error),
    };
    let events = qmp.events();
    match Qemu::recover(qmp).await {
        Ok(qemu) => use_all(&qemu).await,
        Err(error) => check_text(&error),
    }
    receive(events).await;
}

/// Uses everything whose answers the driver interprets.
async fn use_all(qemu: &Qemu) {
    assert!(qemu.ports().len() < 512);
    check(qemu.status().await);
    check(qemu.memory().await);
    check(qemu.plug_cpus(2).await);
    let (near, _far) = UnixStream::pair().expect("sockets");
    let near: OwnedFd = near.into_std().expect("a socket").into();
    check(qemu.add_connection("agent-a", near).await);
    for port in qemu.ports() {
        check(qemu.drain(&port, Duration::ZERO).await);
        check(qemu.remove_port(&port).await);
    }
    check(qemu.resume().await);
    check(qemu.quit().await);
}

fn check<T>(outcome: Result<T, Error>) {
    if let Err(error) = outcome {
        check_text(&error);
    }
}

/// Receives all events: the connection is closed.
async fn receive(mut events: Events) {
    let mut count = 0;
    while events.next().await.is_some() {
        count += 1;
    }
    assert!(count <= EVENTS);
}
