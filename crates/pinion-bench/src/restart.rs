//! `pinion-bench restart`: how long a daemon takes to be ready again on a node full of pods.
//!
//! Two or more builds of the daemon take turns at the same pods, state directory and socket: the one that runs is
//! ended, the next one is started, and the time to its `READY=1` (sd_notify(3)) is taken.

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
    pods::{Alive, Shape, begin, end},
    statistics::Summary,
};

/// How long one start may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A daemon: NAME=PROGRAM; several take turns.
    #[arg(long = "daemon", required = true)]
    daemons: Vec<Daemon>,
    /// Their configuration, with a state and a data directory that no other daemon uses.
    #[arg(long)]
    config: PathBuf,
    /// The socket that it names.
    #[arg(long)]
    socket: String,
    /// Image with `sleep`; pulled where it is missing.
    #[arg(long)]
    image: String,
    /// Pods of one container each: a table row for each number, in ascending order.
    #[arg(long, short = 'n', value_delimiter = ',', default_values_t = [100, 1000])]
    pods: Vec<usize>,
    /// Starts of each daemon.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Pods in the host's network, without any network set-up.
    #[arg(long)]
    host_network: bool,
}

/// `NAME=PROGRAM`.
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
    let shape = Shape::new(&arguments.image, arguments.host_network).named_as_by_a_kubelet();
    let (mut running, _) = start(&arguments, &arguments.daemons[0])?;
    let mut alive = Vec::new();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(vec!["pods", "daemon", "to READY: p50 ms", "min ms"]);
    let mut outcome = Ok(());
    for pods in &arguments.pods {
        outcome = measure(&arguments, &shape, &mut running, &mut alive, *pods, &mut table).await;
        if outcome.is_err() {
            break;
        }
    }
    let engine = connect(&arguments).await?;
    let ends = stream::iter(alive.into_iter().map(|alive| end(&engine, alive)));
    let ended: Vec<Result<(), Failure>> = ends.buffer_unordered(8).collect().await;
    let _ = std::fs::remove_dir_all(shape.logs());
    stop(&mut running)?;
    outcome?;
    ended.into_iter().collect::<Result<(), Failure>>()?;
    println!("{}\n\n{table}", Machine::here().line());
    Ok(())
}

async fn measure(
    arguments: &Arguments,
    shape: &Shape,
    running: &mut Child,
    alive: &mut Vec<Alive>,
    pods: usize,
    table: &mut Table,
) -> Result<(), Failure> {
    let mut engine = connect(arguments).await?;
    engine.ensure_image(&arguments.image).await?;
    let engine = &engine;
    let make = |number: usize| async move { begin(engine, shape, &format!("restart-{number}")).await };
    let made = stream::iter((alive.len()..pods).map(make)).buffer_unordered(8);
    for one in made.collect::<Vec<_>>().await {
        alive.push(one?);
    }
    let mut samples = vec![Vec::new(); arguments.daemons.len()];
    for _ in 0..arguments.rounds {
        for (daemon, samples) in arguments.daemons.iter().zip(&mut samples) {
            stop(running)?;
            let (next, took) = start(arguments, daemon)?;
            *running = next;
            samples.push(took);
        }
    }
    for (daemon, samples) in arguments.daemons.iter().zip(&samples) {
        let summary = Summary::of(samples);
        let figures = [summary.p50_ms, summary.min_ms].map(|ms| format!("{ms:.1}"));
        table.add_row([pods.to_string(), daemon.name.clone()].into_iter().chain(figures));
    }
    Ok(())
}

async fn connect(arguments: &Arguments) -> Result<Engine, Failure> {
    Engine::connect(&Endpoint { name: "pinion".to_owned(), socket: arguments.socket.clone() }).await
}

/// Starts a daemon and waits until it is ready.
fn start(arguments: &Arguments, daemon: &Daemon) -> Result<(Child, Duration), Failure> {
    let wrong = |error: std::io::Error| Failure(format!("start {}: {error}", daemon.program.display()));
    let path = std::env::temp_dir().join(format!("pinion-bench-notify-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let notify = UnixDatagram::bind(&path).map_err(wrong)?;
    notify.set_read_timeout(Some(PATIENCE)).map_err(wrong)?;
    let mut command = Command::new(&daemon.program);
    command.arg("serve").arg("--config").arg(&arguments.config).env("NOTIFY_SOCKET", &path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let child = command.spawn().map_err(wrong)?;
    let mut text = [0; 4096];
    loop {
        let length = notify.recv(&mut text).map_err(wrong)?;
        if text[..length].starts_with(b"READY=1") {
            let took = began.elapsed();
            let _ = std::fs::remove_file(&path);
            return Ok((child, took));
        }
    }
}

/// Ends a daemon; its containers keep running.
fn stop(daemon: &mut Child) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| Failure(format!("end the daemon: {error}"));
    if daemon.try_wait().map_err(wrong)?.is_none() {
        kill_process(Pid::from_child(daemon), Signal::TERM).map_err(|errno| wrong(errno.into()))?;
        daemon.wait().map_err(wrong)?;
    }
    Ok(())
}
