use std::{
    io::{Write, stderr, stdout},
    path::Path,
    time::Duration,
};

use cri_proto::v1;
use serde_json::json;

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
            "container {:?} has no log: its pod was made without a folder for logs",
            args.container
        )));
    }
    let mut log = match LogFile::open(Path::new(&path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !args.follow => return Ok(0),
        log => log.map_err(|error| Failure::new(format!("open log {path}: {error}")))?,
    };
    let mut printer = Printer { json: client.json, timestamps: args.timestamps, continued: false };
    let wrong = |error: std::io::Error| Failure::new(format!("read log {path}: {error}"));
    for entry in log.up_to_now(args.tail, args.since).map_err(wrong)? {
        printer.print(&entry)?;
    }
    while args.follow {
        // Asked before the log is read: what was written before the end is then read after it.
        let runs = runs(&mut client, &id).await;
        while let Some(entry) = log.next().map_err(wrong)? {
            printer.print(&entry)?;
        }
        if !runs {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(0)
}

async fn status(client: &mut Client, id: &str) -> Result<v1::ContainerStatus, Failure> {
    let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    Ok(client.runtime.container_status(request).await?.into_inner().status.unwrap_or_default())
}

/// Whether more may come. A container that is gone writes no more.
async fn runs(client: &mut Client, id: &str) -> bool {
    let state = status(client, id).await.map(|status| status.state());
    matches!(state, Ok(v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning))
}

struct Printer {
    json: bool,
    timestamps: bool,
    /// The last piece did not end its line.
    continued: bool,
}

impl Printer {
    fn print(&mut self, entry: &Entry) -> Result<(), Failure> {
        if self.json {
            let stream = if entry.stderr { "stderr" } else { "stdout" };
            let text = String::from_utf8_lossy(&entry.text);
            let object = json!({"time": entry.moment, "stream": stream, "partial": !text.ends_with('\n'), "text": text.trim_end_matches('\n')});
            return crate::output::line(&object.to_string());
        }
        let mut bytes = Vec::with_capacity(entry.text.len() + 32);
        if self.timestamps && !self.continued {
            bytes.extend_from_slice(entry.moment.as_bytes());
            bytes.push(b' ');
        }
        bytes.extend_from_slice(&entry.text);
        self.continued = !entry.text.ends_with(b"\n");
        let mut out: Box<dyn Write> = if entry.stderr { Box::new(stderr().lock()) } else { Box::new(stdout().lock()) };
        out.write_all(&bytes)?;
        out.flush()?;
        Ok(())
    }
}
