//! Runs plugin programs: passes environment and configuration, and reads a result or an error, within limits.

use std::{
    path::Path,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cni_plugins::PluginType;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Map, Value};
use telemetry::Gauge;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Child,
    sync::Notify,
    time::timeout,
};
use tracing::{Instrument, debug_span};

use super::{
    Chain, Plugin, in_process,
    kill::kill,
    programs::{Invocation, Programs, StartError},
    request::{Call, collection, configuration},
};
use crate::{Error, attachment_key::AttachmentKey};

/// Longest result of a plugin, in bytes.
const OUTPUT_MAX: usize = 1 << 20;
/// How many bytes of a plugin's standard error are kept.
const STDERR_MAX: usize = 16 << 10;
/// How many bytes of a plugin's output go into an error message.
const EXCERPT_MAX: usize = 400;
/// How long the pipes of a plugin are read after it exited: a process that it left behind may hold them open.
const DRAIN: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct PluginError {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    details: String,
}

impl Programs {
    /// Runs `ADD`, `DEL` or `CHECK`, and returns the result of `ADD`.
    pub(crate) async fn call(
        &self,
        command: &'static str,
        chain: &Chain,
        plugin: &Plugin,
        call: Call<'_>,
        previous: Option<&Value>,
    ) -> Result<Value, Error> {
        let fail = |reason: String| Error::plugin(&plugin.kind, command, reason);
        let config = call.configuration(chain, plugin, previous);
        let environment = vec![
            ("CNI_CONTAINERID", call.pod.sandbox.clone().into()),
            ("CNI_IFNAME", call.interface.into()),
            ("CNI_NETNS", call.ns_path.map(Path::as_os_str).unwrap_or_default().to_owned()),
            ("CNI_ARGS", call.arguments().map_err(fail)?.into()),
        ];
        let sandbox = Some(call.pod.sandbox.as_str());
        let invocation =
            Invocation { environment, sandbox, is_of_program: !call.in_process, namespace: call.namespace };
        let running = self.progress.begin(&call.pod.sandbox, &plugin.kind, command);
        let outcome = self.run(command, &plugin.kind, &config, &invocation).await;
        running.end(outcome.as_ref().err().map(|error| self.text(error)).as_deref());
        let output = match outcome {
            Err(RunError::Plugin(error)) if error.code == 1 => {
                let supported = self.versions(&plugin.kind, &chain.version).await;
                let is_too_old = !supported.is_empty() && !supported.contains(&chain.version);
                let list = supported.join(", ");
                let supported = if supported.is_empty() { String::new() } else { format!(" (it supports {list})") };
                let reason = format!("{}{supported}", error.text());
                return Err(Error::Plugin {
                    plugin: plugin.kind.clone(),
                    command,
                    reason,
                    code: is_too_old.then_some(1),
                });
            }
            outcome => outcome.map_err(|error| self.error(&plugin.kind, command, &error))?,
        };
        if command != "ADD" {
            return Ok(Value::Null);
        }
        let result: Value = serde_json::from_slice(&output)
            .map_err(|e| fail(format!("its result is not JSON: {e}; its output was {}", excerpt(&output))))?;
        if result.is_object() {
            Ok(result)
        } else {
            Err(fail(format!("its result is not an object: {}", excerpt(&output))))
        }
    }

    /// Runs `STATUS` (CNI 1.1.0): reports whether the plugin can attach pods.
    pub(crate) async fn status(&self, chain: &Chain, plugin: &Plugin) -> Result<(), Error> {
        let outcome = self.run("STATUS", &plugin.kind, &configuration(chain, plugin), &Invocation::default()).await;
        outcome.map(drop).map_err(|error| self.error(&plugin.kind, "STATUS", &error))
    }

    /// Runs `GC` (CNI 1.1.0): the plugin removes everything of the network except these attachments.
    pub(crate) async fn collect(
        &self,
        chain: &Chain,
        plugin: &Plugin,
        attachments: &[AttachmentKey],
    ) -> Result<(), Error> {
        let config = collection(chain, plugin, attachments);
        let outcome = self.run("GC", &plugin.kind, &config, &Invocation::default()).await;
        outcome.map(drop).map_err(|error| self.error(&plugin.kind, "GC", &error))
    }

    fn error(&self, plugin: &str, command: &'static str, error: &RunError) -> Error {
        match error {
            RunError::Missing => self.missing(plugin, command),
            error => Error::Plugin {
                plugin: plugin.to_owned(),
                command,
                reason: self.text(error),
                code: match error {
                    RunError::Plugin(error) => Some(error.code),
                    _ => None,
                },
            },
        }
    }

    /// Returns the error for a program that no plugin directory has.
    pub(crate) fn missing(&self, plugin: &str, command: &'static str) -> Error {
        Error::PluginMissing { plugin: plugin.to_owned(), command, directories: self.directory_names() }
    }

    fn text(&self, error: &RunError) -> String {
        match error {
            RunError::Plugin(error) => error.text(),
            RunError::Missing => format!("not found in {}", self.directory_names()),
            RunError::Other(reason) => reason.clone(),
        }
    }

    /// Returns the versions that a plugin supports, after it refused one; none if it does not say that.
    async fn versions(&self, kind: &str, version: &str) -> Vec<String> {
        let config = Map::from_iter([("cniVersion".to_owned(), version.into())]);
        let output = self.run("VERSION", kind, &config, &Invocation::default()).await.unwrap_or_default();
        let response: Value = serde_json::from_slice(&output).unwrap_or_default();
        let supported = response["supportedVersions"].as_array().into_iter().flatten();
        supported.filter_map(Value::as_str).take(16).map(str::to_owned).collect()
    }

    async fn run(
        &self,
        command: &'static str,
        kind: &str,
        config: &Map<String, Value>,
        invocation: &Invocation<'_>,
    ) -> Result<Vec<u8>, RunError> {
        let (began, _running) = (Instant::now(), Gauge::hold(&self.metrics.plugins_running));
        let work = async {
            match in_process::plugin_type(kind, config, invocation) {
                Some(built_in) => self.run_in_process(built_in, command, config, invocation).await,
                None => self.run_program(command, kind, config, invocation).await,
            }
        };
        let outcome = work.instrument(debug_span!("plugin", plugin = kind, command)).await;
        self.metrics.plugin_duration.observe(began.elapsed());
        if outcome.is_err() {
            self.metrics.plugin_failed.add(1);
        }
        outcome
    }

    async fn run_in_process(
        &self,
        kind: PluginType,
        command: &'static str,
        config: &Map<String, Value>,
        invocation: &Invocation<'_>,
    ) -> Result<Vec<u8>, RunError> {
        let run = async |config: &Map<String, Value>, invocation: &Invocation<'_>| {
            in_process::run(kind, command, config, invocation, self).await.map_err(RunError::Other)
        };
        let (mut is_success, mut output) = run(config, invocation).await?;
        if !is_success && command == "DEL" && !is_of_system(&output) {
            // What the pod requested may be the reason: it failed to be attached for the same one, and must still go.
            let (config, invocation) = in_process::without_requests(config, invocation);
            let (is_deleted, second) = run(&config, &invocation).await?;
            if is_deleted {
                (is_success, output) = (true, second);
            }
        }
        if is_success {
            return Ok(output);
        }
        let error = serde_json::from_slice::<PluginError>(&output);
        Err(error.map_or_else(|e| RunError::Other(e.to_string()), RunError::Plugin))
    }

    async fn run_program(
        &self,
        command: &'static str,
        kind: &str,
        config: &Map<String, Value>,
        invocation: &Invocation<'_>,
    ) -> Result<Vec<u8>, RunError> {
        let input = serde_json::to_vec(config).map_err(|e| RunError::Other(e.to_string()))?;
        let limit = match command {
            "ADD" => self.limits.add,
            "CHECK" => self.limits.check,
            "GC" => self.limits.collect,
            _ => self.limits.other,
        };
        let cancelled = async {
            match invocation.sandbox.filter(|_| matches!(command, "ADD" | "CHECK")) {
                Some(sandbox) => self.progress.cancelled(sandbox).await,
                None => std::future::pending().await,
            }
        };
        let mut started = None;
        let work = async {
            let child = self.start(command, kind, invocation).await.map_err(|error| match error {
                StartError::Missing => RunError::Missing,
                StartError::Other(reason) => RunError::Other(reason),
            })?;
            let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            let (child, _) = started.insert((child, group));
            communicate(child, &input).await.map_err(|e| RunError::Other(e.to_string()))
        };
        let outcome = tokio::select! {
            outcome = timeout(limit, work) => outcome.map_err(|_| Stop::TimedOut),
            () = cancelled => Err(Stop::Cancelled),
        };
        let stop = match outcome {
            Ok(outcome) => match outcome? {
                Some((status, output, stderr)) => return evaluate(status, output, &stderr),
                None => Stop::Overflowed,
            },
            Err(stop) => stop,
        };
        let reason = stop.text(started.is_some(), limit, &self.directory_names());
        let (child, group) = started.unzip();
        let sandbox = invocation.sandbox.map(str::to_owned);
        // A panic was already printed by the thread.
        let _ = offload::blocking(move || kill(group.flatten(), sandbox.as_deref())).await;
        if let Some(mut child) = child {
            // The process is killed; this only reaps it.
            let _ = child.wait().await;
        }
        Err(RunError::Other(reason))
    }
}

/// Why waiting for a plugin was aborted.
enum Stop {
    TimedOut,
    Cancelled,
    /// Its output is too long.
    Overflowed,
}

impl Stop {
    fn text(&self, is_started: bool, limit: Duration, directories: &str) -> String {
        let seconds = limit.as_secs_f32();
        match (self, is_started) {
            (Self::TimedOut, true) => format!("timed out after {seconds} s; killed it and all processes it started"),
            (Self::TimedOut, false) => {
                format!("its program was not started within {seconds} s; check the file system of {directories}")
            }
            (Self::Overflowed, _) => {
                format!("its output is longer than {OUTPUT_MAX} bytes; killed it and all processes it started")
            }
            (Self::Cancelled, true) => {
                "the pod is being stopped; killed the plugin and all processes it started".to_owned()
            }
            (Self::Cancelled, false) => "the pod is being stopped; the plugin was not started yet".to_owned(),
        }
    }
}

/// Why a plugin call failed.
enum RunError {
    /// The plugin returned an error in the format of the specification.
    Plugin(PluginError),
    /// Its program does not exist.
    Missing,
    /// Any other failure.
    Other(String),
}

impl PluginError {
    fn text(&self) -> String {
        let details =
            if self.details.is_empty() { String::new() } else { format!(": {}", excerpt(self.details.as_bytes())) };
        format!("{}{details} (code {})", excerpt(self.msg.as_bytes()), self.code)
    }
}

fn evaluate(status: ExitStatus, output: Output, stderr: &[u8]) -> Result<Vec<u8>, RunError> {
    if output.overflow {
        return Err(RunError::Other(format!("its output is longer than {OUTPUT_MAX} bytes")));
    }
    if status.success() {
        return Ok(output.bytes);
    }
    match serde_json::from_slice::<PluginError>(&output.bytes) {
        Ok(error) if !error.msg.is_empty() => Err(RunError::Plugin(error)),
        _ => {
            let text = if stderr.is_empty() { &output.bytes } else { stderr };
            Err(RunError::Other(format!("{status}, without a CNI error; its output was {}", excerpt(text))))
        }
    }
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    overflow: bool,
}

/// Writes the configuration to a plugin and waits for it. Returns `None` as soon as its output is too long.
async fn communicate(child: &mut Child, input: &[u8]) -> std::io::Result<Option<(ExitStatus, Output, Vec<u8>)>> {
    let output = child.stdout.take().map(|pipe| Drainer::start(pipe, OUTPUT_MAX));
    let stderr = child.stderr.take().map(|pipe| Drainer::start(pipe, STDERR_MAX));
    let overflow = output.as_ref().map(|drainer| Arc::clone(&drainer.overflow)).unwrap_or_default();
    let work = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin may exit without reading its configuration; its status shows whether that is an error.
            let _ = stdin.write_all(input).await;
        }
        child.wait().await
    };
    let status = tokio::select! {
        status = work => status?,
        () = overflow.notified() => return Ok(None),
    };
    let output = match output {
        Some(drainer) => drainer.end().await,
        None => Output::default(),
    };
    let stderr = match stderr {
        Some(drainer) => drainer.end().await.bytes,
        None => Vec::new(),
    };
    Ok(Some((status, output, stderr)))
}

/// Reads a pipe to its end and keeps the first bytes.
struct Drainer {
    output: Arc<Mutex<Output>>,
    /// Notified when bytes were dropped.
    overflow: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Drainer {
    fn start(mut pipe: impl AsyncRead + Unpin + Send + 'static, limit: usize) -> Self {
        let output = Arc::new(Mutex::new(Output::default()));
        let (shared, overflow) = (Arc::clone(&output), Arc::new(Notify::new()));
        let notify = Arc::clone(&overflow);
        let task = tokio::spawn(async move {
            let mut chunk = vec![0; 16 << 10];
            while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
                let mut output = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let room = (limit - output.bytes.len()).min(length);
                output.bytes.extend_from_slice(&chunk[..room]);
                if room < length && !output.overflow {
                    output.overflow = true;
                    notify.notify_one();
                }
            }
        });
        Self { output, overflow, task }
    }

    async fn end(mut self) -> Output {
        if timeout(DRAIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
        std::mem::take(&mut *self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns a plugin's output escaped and shortened, for logs and error messages.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_MAX)]);
    let more = if bytes.len() > EXCERPT_MAX { "…" } else { "" };
    let escaped: String =
        text.trim().chars().flat_map(|c| if c == '"' { vec!['"'] } else { c.escape_debug().collect() }).collect();
    if escaped.is_empty() { "nothing".into() } else { format!("{escaped}{more}") }
}
/// Reports whether the error of a built-in type is one of the kernel or of a file, which no request of the pod causes.
fn is_of_system(output: &[u8]) -> bool {
    const SYSTEM: u32 = 999;
    serde_json::from_slice::<PluginError>(output).is_ok_and(|error| error.code == SYSTEM)
}
