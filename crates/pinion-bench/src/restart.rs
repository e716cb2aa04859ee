//! `pinion-bench restart`: measures how long a daemon takes to become ready on a node full of pods.
//!
//! Two or more builds of the daemon are used in turn with the same pods, state directory and socket: the running one is
//! stopped, the next one is started, and the time until its `READY=1` (sd_notify(3)) is measured.

use std::{
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use comfy_table::{Table, presets};
use futures_util::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    pods::{RunningPod, Shape, remove_pod, start_pod},
    statistics::Summary,
};

/// Timeout of one start.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of `pinion-bench restart`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Daemon to measure, NAME=PROGRAM; may be repeated.
    #[arg(long = "daemon", required = true)]
    daemons: Vec<Daemon>,
    /// Configuration of the daemons, with state and data directories that no other daemon uses.
    #[arg(long)]
    config: PathBuf,
    /// Socket in that configuration.
    #[arg(long)]
    socket: String,
    /// Image with `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Numbers of pods with one container each, in ascending order; one table row for each.
    #[arg(long, short = 'n', value_delimiter = ',', default_values_t = [100, 1000])]
    pods: Vec<usize>,
    /// Number of starts of each daemon.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
}

/// A daemon to measure, parsed from `NAME=PROGRAM`.
#[derive(Clone, Debug)]
struct Daemon {
    name: String,
    program: PathBuf,
}

impl FromStr for Daemon {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=PROGRAM"))?;
        Ok(Self { name: name.to_owned(), program: program.into() })
    }
}

/// Measures every daemon and prints the table.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let shape = Shape::new(&arguments.image, arguments.host_network).with_kubelet_labels();
    let (mut running, _) = start(&arguments, &arguments.daemons[0])?;
    let mut running_pods = Vec::new();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(vec!["pods", "daemon", "time to READY: p50 ms", "min ms"]);
    let mut outcome = Ok(());
    for pods in &arguments.pods {
        outcome = measure(&arguments, &shape, &mut running, &mut running_pods, *pods, &mut table).await;
        if outcome.is_err() {
            break;
        }
    }
    let engine = connect(&arguments).await?;
    let removals = stream::iter(running_pods.into_iter().map(|pod| remove_pod(&engine, pod)));
    let removed: Vec<Result<(), Failure>> = removals.buffer_unordered(8).collect().await;
    let _ = std::fs::remove_dir_all(shape.logs());
    stop(&mut running)?;
    outcome?;
    removed.into_iter().collect::<Result<(), Failure>>()?;
    println!("{}\n\n{table}", Machine::here().line());
    Ok(())
}

async fn measure(
    arguments: &Arguments,
    shape: &Shape,
    running: &mut Child,
    running_pods: &mut Vec<RunningPod>,
    pods: usize,
    table: &mut Table,
) -> Result<(), Failure> {
    let mut engine = connect(arguments).await?;
    engine.ensure_image(&arguments.image).await?;
    let engine = &engine;
    let create = |number: usize| async move { start_pod(engine, shape, &format!("restart-{number}")).await };
    let created = stream::iter((running_pods.len()..pods).map(create)).buffer_unordered(8);
    for pod in created.collect::<Vec<_>>().await {
        running_pods.push(pod?);
    }
    let mut samples = vec![Vec::new(); arguments.daemons.len()];
    for _ in 0..arguments.rounds {
        for (daemon, samples) in arguments.daemons.iter().zip(&mut samples) {
            stop(running)?;
            let (next, duration) = start(arguments, daemon)?;
            *running = next;
            samples.push(duration);
        }
    }
    for (daemon, samples) in arguments.daemons.iter().zip(&samples) {
        let summary = Summary::of(samples);
        let cells = [summary.p50_ms, summary.min_ms].map(|ms| format!("{ms:.1}"));
        table.add_row([pods.to_string(), daemon.name.clone()].into_iter().chain(cells));
    }
    Ok(())
}

async fn connect(arguments: &Arguments) -> Result<Engine, Failure> {
    let (name, socket) = ("pinion".to_owned(), arguments.socket.clone());
    let endpoint = Endpoint { name, socket, handler: String::new(), image: None };
    Engine::connect(&endpoint).await
}

/// Starts a daemon and waits until it is ready.
fn start(arguments: &Arguments, daemon: &Daemon) -> Result<(Child, Duration), Failure> {
    let failed = |error: std::io::Error| Failure(format!("start {}: {error}", daemon.program.display()));
    let path = std::env::temp_dir().join(format!("pinion-bench-notify-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let notify = UnixDatagram::bind(&path).map_err(failed)?;
    notify.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let mut command = Command::new(&daemon.program);
    command.arg("serve").arg("--config").arg(&arguments.config).env("NOTIFY_SOCKET", &path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let child = command.spawn().map_err(failed)?;
    let mut text = [0; 4096];
    loop {
        let length = notify.recv(&mut text).map_err(failed)?;
        if text[..length].starts_with(b"READY=1") {
            let duration = start.elapsed();
            let _ = std::fs::remove_file(&path);
            return Ok((child, duration));
        }
    }
}

/// Stops a daemon; its containers keep running.
fn stop(daemon: &mut Child) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure(format!("stop the daemon: {error}"));
    if daemon.try_wait().map_err(failed)?.is_none() {
        kill_process(Pid::from_child(daemon), Signal::TERM).map_err(|errno| failed(errno.into()))?;
        daemon.wait().map_err(failed)?;
    }
    Ok(())
}
