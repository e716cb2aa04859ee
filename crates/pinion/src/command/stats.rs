use std::{collections::HashMap, io::Write, time::Duration};

use cri_proto::v1;
use serde_json::{Value, json};

use crate::{
    Client, Failure, human, lookup, output,
    table::{Table, printable},
    terminal,
};

/// Time between two samples of a stream.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between the two samples of a single table.
const ONCE_PERIOD: Duration = Duration::from_millis(300);

/// Arguments of `pinion stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one table and exit
    #[arg(long)]
    no_stream: bool,
    /// Names or ids [default: all running containers]
    #[arg(value_name = "CONTAINER")]
    containers: Vec<String>,
}

type Sample = HashMap<String, v1::ContainerStats>;

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut ids = Vec::new();
    for name in &args.containers {
        ids.push(lookup::container(&mut client, name).await?.id);
    }
    let once = args.no_stream || client.json || !terminal::is_output();
    let mut before = sample(&mut client, &ids).await?;
    loop {
        tokio::time::sleep(if once { ONCE_PERIOD } else { PERIOD }).await;
        let now = sample(&mut client, &ids).await?;
        let mut rows: Vec<Row> = now.values().map(|stats| Row::of(stats, before.get(id(stats)))).collect();
        rows.sort_by(|a, b| b.cpu.total_cmp(&a.cpu).then_with(|| a.name.cmp(&b.name)));
        if client.json {
            output::json(&rows.iter().map(Row::object).collect::<Vec<_>>())?;
        } else if once {
            table(&rows).print()?;
        } else {
            refresh(&table(&rows).text())?;
        }
        if once {
            return Ok(0);
        }
        before = now;
    }
}

async fn sample(client: &mut Client, ids: &[String]) -> Result<Sample, Failure> {
    let all = client.runtime.list_container_stats(v1::ListContainerStatsRequest::default()).await?.into_inner().stats;
    let selected = all.into_iter().filter(|stats| ids.is_empty() || ids.iter().any(|other| other == id(stats)));
    Ok(selected.map(|stats| (id(&stats).to_owned(), stats)).collect())
}

fn id(stats: &v1::ContainerStats) -> &str {
    stats.attributes.as_ref().map_or("", |attributes| attributes.id.as_str())
}

/// The resource usage of one container.
struct Row {
    id: String,
    name: String,
    cpu: f64,
    memory: u64,
    limit: Option<u64>,
    disk: u64,
    cpu_total: u64,
}

impl Row {
    fn of(now: &v1::ContainerStats, before: Option<&v1::ContainerStats>) -> Self {
        let cpu = now.cpu.unwrap_or_default();
        let earlier = before.and_then(|stats| stats.cpu).unwrap_or(cpu);
        let used = |cpu: &v1::CpuUsage| cpu.usage_core_nano_seconds.map_or(0, |v| v.value);
        let elapsed = u64::try_from(cpu.timestamp.saturating_sub(earlier.timestamp)).unwrap_or(0);
        let memory = now.memory.unwrap_or_default();
        let working_set = memory.working_set_bytes.map_or(0, |v| v.value);
        let attributes = now.attributes.clone().unwrap_or_default();
        Self {
            id: attributes.id,
            name: attributes.metadata.map(|m| m.name).unwrap_or_default(),
            cpu: human::percent(used(&cpu).saturating_sub(used(&earlier)), elapsed),
            memory: working_set,
            limit: memory.available_bytes.map(|available| available.value + working_set),
            disk: now.writable_layer.as_ref().and_then(|layer| layer.used_bytes).map_or(0, |v| v.value),
            cpu_total: used(&cpu),
        }
    }

    fn object(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "cpuPercent": (self.cpu * 100.0).round() / 100.0,
            "cpuNanoseconds": self.cpu_total, "memoryBytes": self.memory, "memoryLimitBytes": self.limit,
            "diskBytes": self.disk,
        })
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["CONTAINER", "NAME", "CPU", "MEMORY", "LIMIT", "DISK"]);
    for row in rows {
        table.row([
            human::short(&row.id).to_owned(),
            printable(&row.name),
            format!("{:.1}%", row.cpu),
            human::memory(row.memory),
            row.limit.map_or_else(|| "-".to_owned(), human::memory),
            human::size(row.disk),
        ]);
    }
    table
}

/// Draws over the previous table: moves the cursor to the top, clears each line to its end, then the rest of the
/// screen.
fn refresh(text: &str) -> Result<(), Failure> {
    let rows = terminal::size().map_or(usize::MAX, |size| usize::from(size.height));
    let mut out = std::io::stdout().lock();
    write!(out, "\x1b[H")?;
    for line in text.lines().take(rows.saturating_sub(1)) {
        writeln!(out, "{line}\x1b[K")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()?;
    Ok(())
}
