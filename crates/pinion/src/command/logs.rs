use std::{
    io::{BufWriter, Stderr, Stdout, Write, stderr, stdout},
    path::Path,
    time::Duration,
};

use cri_proto::v1;
use serde_json::json;
use tonic::Code;

use crate::{
    Client, Failure,
    log_file::{Entry, LogFile},
    lookup, timestamp,
};

/// Interval at which a followed log is polled: too short to be noticed, and each poll costs one stat(2).
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `pinion logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print new output until the container exits
    #[arg(short, long)]
    follow: bool,
    /// Print only this number of the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    /// Print only output since this time: 10m, 2h, or a timestamp like 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = timestamp::since)]
    since: Option<i64>,
    /// Prefix each line with its timestamp
    #[arg(short, long)]
    timestamps: bool,
    /// Name or id
    container: String,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let id = lookup::container(&mut client, &args.container).await?.id;
    let path = status(&mut client, &id).await?.log_path;
    if path.is_empty() {
        return Err(Failure::new(format!(
            "container {:?} has no log: its pod was created without a log directory",
            args.container
        )));
    }
    let mut log = match LogFile::open(Path::new(&path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !args.follow => return Ok(0),
        log => log.map_err(|error| Failure::new(format!("open log {path}: {error}")))?,
    };
    let mut printer = Printer::new(client.json, args.timestamps);
    let failed = |error: std::io::Error| Failure::new(format!("read log {path}: {error}"));
    let filter = |entry: &Entry| args.since.is_none_or(|since| entry.is_since(since));
    match args.tail {
        Some(lines) => log.tail(lines, filter).map_err(failed)?.iter().try_for_each(|entry| printer.print(entry))?,
        None => {
            while let Some(entry) = log.next().map_err(failed)? {
                if filter(&entry) {
                    printer.print(&entry)?;
                }
            }
        }
    }
    printer.flush()?;
    if args.follow {
        follow(&mut client, &id, &mut log, &mut printer).await?;
    }
    Ok(0)
}

/// Prints new entries until the container exits.
async fn follow(client: &mut Client, id: &str, log: &mut LogFile, printer: &mut Printer) -> Result<(), Failure> {
    loop {
        // Checked before the log is read, so that everything written before the exit is still printed.
        let is_running = is_running(client, id).await;
        while let Some(entry) = log.next().map_err(|error| Failure::new(format!("read log: {error}")))? {
            printer.print(&entry)?;
        }
        printer.flush()?;
        if !is_running? {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn status(client: &mut Client, id: &str) -> Result<v1::ContainerStatus, Failure> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    Ok(client.runtime.container_status(request).await?.into_inner().status.unwrap_or_default())
}

/// Whether the container may still write to its log. False for a container that was removed; an error if the daemon
/// does not respond.
async fn is_running(client: &mut Client, id: &str) -> Result<bool, Failure> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let state = match client.runtime.container_status(request).await {
        Ok(response) => response.into_inner().status.unwrap_or_default().state(),
        Err(status) if status.code() == Code::NotFound => return Ok(false),
        Err(status) => return Err(status.into()),
    };
    Ok(matches!(state, v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning))
}

/// Writes entries to standard output and standard error, buffered but in their order.
struct Printer {
    json: bool,
    timestamps: bool,
    /// Whether the last entry did not end its line.
    continued: bool,
    stdout: BufWriter<Stdout>,
    stderr: BufWriter<Stderr>,
}

impl Printer {
    fn new(json: bool, timestamps: bool) -> Self {
        let (stdout, stderr) = (BufWriter::new(stdout()), BufWriter::new(stderr()));
        Self { json, timestamps, continued: false, stdout, stderr }
    }

    fn print(&mut self, entry: &Entry) -> Result<(), Failure> {
        if self.json {
            let stream = if entry.stderr { "stderr" } else { "stdout" };
            let text = String::from_utf8_lossy(entry.text.strip_suffix(b"\n").unwrap_or(&entry.text));
            let object =
                json!({"time": entry.timestamp, "stream": stream, "partial": !entry.ends_line(), "text": text});
            writeln!(self.stdout, "{object}")?;
            return Ok(());
        }
        // Earlier entries of the other stream must become visible first.
        let out: &mut dyn Write = if entry.stderr {
            self.stdout.flush()?;
            &mut self.stderr
        } else {
            self.stderr.flush()?;
            &mut self.stdout
        };
        if self.timestamps && !self.continued {
            write!(out, "{} ", entry.timestamp)?;
        }
        out.write_all(&entry.text)?;
        self.continued = !entry.ends_line();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush()?;
        self.stderr.flush()?;
        Ok(())
    }
}
