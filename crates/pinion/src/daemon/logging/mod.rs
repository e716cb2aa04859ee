//! The daemon's log: one line per event on standard error, for eyes or for collectors.
//!
//! ```text
//! event ─▶ filter (level per module) ─▶ repeats left out ─▶ fields of its request's span ─▶ queue ─▶ one write(2)
//! span  ─▶ otlp (off unless configured) ─▶ the collector
//! ```
//!
//! Every line that is written within a request has that request's fields (`rpc`, `trace`, and what it is about:
//! `sandbox`, `pod`, `namespace`, `container`, `name`, `image`), so all lines of one request are found by its trace. A
//! failed request gets one line, with `code` and `ms`. Nothing that a client, an image or a registry says can break a
//! line or colour a terminal, and nothing long is written whole. No request waits for the reader of standard error: see
//! [`queue`].

mod journal;
mod line;
mod lines;
mod queue;
mod repeats;

use std::{
    io::stderr,
    panic::PanicHookInfo,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use otlp::Traces;
use serde_json::Value;
use telemetry::Counter;
use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::LevelFilter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use super::config::{Log, Tracing};
use crate::Failure;
use line::{Line, Style};
use lines::Lines;
use queue::Queue;

/// Crates of ours: a bare level is meant for them, and their spans are traced. Those below (HTTP/2 frames, netlink) say
/// more than anyone reads.
const OURS: &[&str] =
    &["pinion", "cri", "streaming", "pod", "image", "network", "netns", "cgroup", "seccomp", "cdi", "otlp"];

/// How long the daemon's end waits for the collector.
const LAST_SPANS: Duration = Duration::from_secs(1);
/// How long the daemon's end waits for standard error to take the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How long a thread that panics does: the process may end with it.
const PANIC_LINES: Duration = Duration::from_millis(200);

/// Levels, as [`LogFigures::lines`] counts them.
pub(super) const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Lines since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct LogFigures {
    /// Written, by level (the index in [`LEVELS`]).
    pub(super) lines: [Counter; LEVELS.len()],
    /// Left out, because there were too many like them.
    pub(super) left_out: Counter,
}

/// What can be changed about the log and the traces while the daemon runs. Clones are one.
#[derive(Clone)]
pub(crate) struct Control {
    filter: reload::Handle<EnvFilter, Registry>,
    style: Arc<Style>,
    traces: Traces,
    figures: Arc<LogFigures>,
    queue: Queue,
}

/// From here on, what is traced goes to standard error. Spans go nowhere before [`Control::trace`].
pub(crate) fn start(log: &Log) -> Result<Control, Failure> {
    let (filter, handle) = reload::Layer::new(filter(&log.level).map_err(Failure::daemon)?);
    let style = Arc::new(Style::of(log.format, &stderr()));
    let (traces, figures) = (Traces::off(OURS), Arc::new(LogFigures::default()));
    let failed = |error: std::io::Error| Failure::daemon(format!("start the log: {error}"));
    let of_notice = Arc::clone(&style);
    let queue = Queue::start(stderr(), Box::new(move |lines| dropped(&of_notice, lines))).map_err(failed)?;
    report_panics(Arc::clone(&style), queue.clone());
    let lines = Lines::new(Arc::clone(&style), Arc::clone(&figures), queue.clone());
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.layer()).try_init();
    started.map_err(|error| Failure::daemon(format!("start the log: {error}")))?;
    Ok(Control { filter: handle, style, traces, figures, queue })
}

impl Control {
    /// From now on lines of this level, looking so; nothing changes if it is not a level.
    pub(crate) fn apply(&self, log: &Log) -> Result<(), Failure> {
        let wrong = |why: String| Failure::daemon(format!("log level {:?}: {why}", log.level));
        self.filter.reload(filter(&log.level).map_err(wrong)?).map_err(|error| wrong(error.to_string()))?;
        self.style.set(log.format);
        Ok(())
    }

    /// From now on spans go where the configuration says, or nowhere. Must be called within the runtime.
    pub(crate) fn trace(&self, tracing: &Tracing) -> Result<(), Failure> {
        let settings = tracing.endpoint.as_ref().map(|endpoint| otlp::Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            sample_ratio: tracing.sample_ratio,
            service_name: tracing.service_name.clone(),
            resource: resource(),
        });
        self.traces.set(settings).map_err(|error| Failure::daemon(format!("tracing: {error}")))
    }

    /// Waits a moment for spans that are on their way.
    pub(crate) async fn flush(&self) {
        self.traces.flush(LAST_SPANS).await;
    }

    /// Waits a moment for standard error to take what was logged. To be called before the process ends or executes
    /// another program.
    pub(crate) fn finish(&self) {
        self.queue.flush(LAST_LINES);
    }

    /// Writes why the daemon ends, in the form of a command's failure, and gives one that is reported already.
    pub(crate) fn last_words(&self, failure: &Failure) -> Failure {
        self.queue.push(failure.line());
        self.finish();
        Failure::quiet(failure.code)
    }

    /// Lines that were dropped because standard error did not take them.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// What became of lines.
    pub(super) fn figures(&self) -> &LogFigures {
        &self.figures
    }

    /// What becomes of spans.
    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }
}

/// The line that reports lines which are missing before it.
fn dropped(style: &Style, lines: u64) -> String {
    let lines = Value::from(lines);
    let message = "log lines were dropped: standard error did not take them";
    of_the_log(style, Level::WARN, message, vec![("lines", &lines)])
}

/// What the standard library ends with.
const PANIC_CODE: i32 = 101;
/// Where the async runtime panics when it cannot wake a worker: the tasks that waited for that would wait for ever.
const IO_DRIVER: &str = "/runtime/io/driver.rs";

/// A panic is a line like any other: the default hook would block on standard error.
fn report_panics(style: Arc<Style>, queue: Queue) {
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        let thread = thread::current();
        let name = Value::from(thread.name().unwrap_or("unnamed"));
        queue.push(of_the_log(&style, Level::ERROR, &panic.to_string(), vec![("thread", &name)]));
        queue.flush(PANIC_LINES);
        // Nothing goes on without the main thread, and its unwinding may wait forever: for threads of a runtime that
        // was not made.
        let is_fatal =
            thread.name() == Some("main") || panic.location().is_some_and(|at| at.file().ends_with(IO_DRIVER));
        if is_fatal {
            std::process::exit(PANIC_CODE);
        }
    }));
}

fn of_the_log(style: &Style, level: Level, message: &str, fields: Vec<(&str, &Value)>) -> String {
    style.write(&Line { at: SystemTime::now(), level, target: module_path!(), message, fields, left_out: 0 })
}

/// What the spans' resource tells beside its name.
fn resource() -> Vec<(String, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![
        ("service.version".to_owned(), cri::RUNTIME_VERSION.to_owned()),
        ("host.name".to_owned(), host),
        ("process.pid".to_owned(), std::process::id().to_string()),
    ]
}

/// What a configuration's level lets through, or why it is none.
pub(super) fn filter(level: &str) -> Result<EnvFilter, String> {
    // The filter itself takes a word that is no level for the name of a module, which then says all that it can.
    let words = level.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    if let Some(word) = words.into_iter().find(|word| word.parse::<LevelFilter>().is_err() || word.is_empty()) {
        return Err(format!("{word:?} is none"));
    }
    EnvFilter::try_new(directives(level)).map_err(|error| error.to_string())
}

/// `debug` → `warn,pinion=debug,cri=debug,…`; anything else is taken as it is written.
fn directives(level: &str) -> String {
    match level.contains(['=', ',']) {
        true => level.to_owned(),
        false => OURS.iter().fold("warn".to_owned(), |all, name| format!("{all},{name}={level}")),
    }
}

#[cfg(test)]
mod tests;
