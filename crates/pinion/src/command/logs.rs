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
    lookup, moment,
};

/// How often a followed log is looked at: below what people notice, and one stat for it.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `pinion logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Go on until the container ended
    #[arg(short, long)]
    follow: bool,
    /// Only so many of the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    /// Only what was written after: 10m, 2h, or a time like 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment::since)]
    since: Option<i64>,
    /// Begin each line with its time
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
            "container {:?} has no log: its pod was made without a directory for logs",
            args.container
        )));
    }
    let mut log = match LogFile::open(Path::new(&path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !args.follow => return Ok(0),
        log => log.map_err(|error| Failure::new(format!("open log {path}: {error}")))?,
    };
    let mut printer = Printer::new(client.json, args.timestamps);
    let wrong = |error: std::io::Error| Failure::new(format!("read log {path}: {error}"));
    let wanted = |entry: &Entry| args.since.is_none_or(|since| entry.is_since(since));
    match args.tail {
        Some(lines) => log.tail(lines, wanted).map_err(wrong)?.iter().try_for_each(|entry| printer.print(entry))?,
        None => {
            while let Some(entry) = log.next().map_err(wrong)? {
                if wanted(&entry) {
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

/// Prints what comes until the container ended.
async fn follow(client: &mut Client, id: &str, log: &mut LogFile, printer: &mut Printer) -> Result<(), Failure> {
    loop {
        // Asked before the log is read: what was written before the end is then read after it.
        let runs = runs(client, id).await;
        while let Some(entry) = log.next().map_err(|error| Failure::new(format!("read log: {error}")))? {
            printer.print(&entry)?;
        }
        printer.flush()?;
        if !runs? {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn status(client: &mut Client, id: &str) -> Result<v1::ContainerStatus, Failure> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    Ok(client.runtime.container_status(request).await?.into_inner().status.unwrap_or_default())
}

/// Whether more may come. A container that was removed writes no more; of one whose daemon does not answer nobody
/// knows.
async fn runs(client: &mut Client, id: &str) -> Result<bool, Failure> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let state = match client.runtime.container_status(request).await {
        Ok(answer) => answer.into_inner().status.unwrap_or_default().state(),
        Err(status) if status.code() == Code::NotFound => return Ok(false),
        Err(status) => return Err(status.into()),
    };
    Ok(matches!(state, v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning))
}

/// Writes entries to the two outputs, in large pieces, and in their order.
struct Printer {
    json: bool,
    timestamps: bool,
    /// The last piece did not end its line.
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
            let object = json!({"time": entry.moment, "stream": stream, "partial": !entry.ends_line(), "text": text});
            writeln!(self.stdout, "{object}")?;
            return Ok(());
        }
        // What went to the other stream before must be seen before.
        let out: &mut dyn Write = if entry.stderr {
            self.stdout.flush()?;
            &mut self.stderr
        } else {
            self.stderr.flush()?;
            &mut self.stdout
        };
        if self.timestamps && !self.continued {
            write!(out, "{} ", entry.moment)?;
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
