//! Plugins that are programs: environment and configuration in, a result or an error out, within bounds.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Map, Value};
use telemetry::Gauge;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::timeout,
};
use tracing::{Instrument, debug_span};

use super::{Chain, Plugin, Progress, end::end, start::Starts};
use crate::{Error, Figures, PodRef, PortMapping};

/// A result is no longer.
const MOST_OUTPUT: usize = 1 << 20;
/// As much is kept of what a plugin says on its standard error.
const MOST_WORDS: usize = 16 << 10;
/// As much of it is told.
const TOLD: usize = 400;
/// So long after a plugin's end its pipes are read: something it left behind may hold them open.
const DRAIN: Duration = Duration::from_secs(1);

/// How long one call of a plugin may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// `ADD`: some wait for a controller of their cluster.
    pub(crate) add: Duration,
    /// Every other.
    pub(crate) other: Duration,
}

/// Where plugins are, how long each may take, and what they do.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) progress: Arc<Progress>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) starts: Starts,
}

/// What one run of a plugin is about.
#[derive(Default)]
pub(super) struct About<'a> {
    pub(super) environment: Vec<(&'static str, std::ffi::OsString)>,
    sandbox: Option<&'a str>,
}

/// Whom a call is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) pod: &'a PodRef,
    /// None, when the namespace is gone.
    pub(crate) ns_path: Option<&'a Path>,
    pub(crate) interface: &'a str,
    pub(crate) ports: &'a [PortMapping],
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    code: u32,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    details: String,
}

impl Programs {
    /// `ADD`, `DEL` or `CHECK`; the result of `ADD`.
    pub(crate) async fn call(
        &self,
        command: &'static str,
        chain: &Chain,
        plugin: &Plugin,
        call: Call<'_>,
        previous: Option<&Value>,
    ) -> Result<Value, Error> {
        let fail = |reason: String| Error::plugin(&plugin.kind, command, reason);
        let mut config = configuration(chain, plugin);
        let mut runtime = Map::new();
        for (name, value) in &call.pod.capability_args {
            if plugin.has_capability(name) {
                runtime.insert(name.clone(), value.clone());
            }
        }
        if plugin.has_capability("portMappings") && !call.ports.is_empty() {
            runtime.insert("portMappings".into(), call.ports.iter().map(port_mapping).collect());
        }
        if !runtime.is_empty() {
            config.insert("runtimeConfig".into(), Value::Object(runtime));
        }
        if let Some(previous) = previous {
            config.insert("prevResult".into(), previous.clone());
        }
        let environment = vec![
            ("CNI_CONTAINERID", call.pod.sandbox.clone().into()),
            ("CNI_IFNAME", call.interface.into()),
            ("CNI_NETNS", call.ns_path.map(Path::as_os_str).unwrap_or_default().to_owned()),
            ("CNI_ARGS", arguments(call.pod).map_err(fail)?.into()),
        ];
        let about = About { environment, sandbox: Some(&call.pod.sandbox) };
        let running = self.progress.begin(&call.pod.sandbox, &plugin.kind, command);
        let outcome = self.run(command, &plugin.kind, &config, &about).await;
        running.end(outcome.as_ref().err().map(Run::text).as_deref());
        let output = match outcome {
            Err(Run::Failed(failure)) if failure.code == 1 => {
                let supported = self.versions(&plugin.kind, &chain.version).await;
                return Err(fail(format!("{}{supported}", failure.text())));
            }
            outcome => outcome.map_err(|run| fail(run.text()))?,
        };
        if command != "ADD" {
            return Ok(Value::Null);
        }
        let result: Value = serde_json::from_slice(&output)
            .map_err(|e| fail(format!("its result is not JSON: {e}; it said {}", told(&output))))?;
        if result.is_object() { Ok(result) } else { Err(fail(format!("its result is no object: {}", told(&output)))) }
    }

    /// `STATUS` (1.1.0): whether the plugin can attach pods.
    pub(crate) async fn status(&self, chain: &Chain, plugin: &Plugin) -> Result<(), Error> {
        let outcome = self.run("STATUS", &plugin.kind, &configuration(chain, plugin), &About::default()).await;
        outcome.map(drop).map_err(|run| Error::plugin(&plugin.kind, "STATUS", run.text()))
    }

    /// `GC` (1.1.0): everything but these sandboxes' attachments may be removed.
    pub(crate) async fn collect(
        &self,
        chain: &Chain,
        plugin: &Plugin,
        sandboxes: &[String],
        interface: &str,
    ) -> Result<(), Error> {
        let mut config = configuration(chain, plugin);
        let valid = |sandbox: &String| serde_json::json!({"containerID": sandbox, "ifname": interface});
        config.insert("cni.dev/valid-attachments".into(), sandboxes.iter().map(valid).collect());
        let outcome = self.run("GC", &plugin.kind, &config, &About::default()).await;
        outcome.map(drop).map_err(|run| Error::plugin(&plugin.kind, "GC", run.text()))
    }

    /// What a plugin that refused a version says it supports.
    async fn versions(&self, kind: &str, version: &str) -> String {
        let config = Map::from_iter([("cniVersion".to_owned(), version.into())]);
        let output = self.run("VERSION", kind, &config, &About::default()).await.unwrap_or_default();
        let answer: Value = serde_json::from_slice(&output).unwrap_or_default();
        let supported: Vec<&str> =
            answer["supportedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str).take(16).collect();
        if supported.is_empty() { String::new() } else { format!(" (it supports {})", supported.join(", ")) }
    }

    async fn run(
        &self,
        command: &'static str,
        kind: &str,
        config: &Map<String, Value>,
        about: &About<'_>,
    ) -> Result<Vec<u8>, Run> {
        let (began, _running) = (Instant::now(), Gauge::hold(&self.figures.plugins_running));
        let work = self.run_program(command, kind, config, about);
        let outcome = work.instrument(debug_span!("plugin", plugin = kind, command)).await;
        self.figures.plugin_took.observe(began.elapsed());
        if outcome.is_err() {
            self.figures.plugin_failed.add(1);
        }
        outcome
    }

    async fn run_program(
        &self,
        command: &'static str,
        kind: &str,
        config: &Map<String, Value>,
        about: &About<'_>,
    ) -> Result<Vec<u8>, Run> {
        let input = serde_json::to_vec(config).map_err(|e| Run::Other(e.to_string()))?;
        let limit = if command == "ADD" { self.limits.add } else { self.limits.other };
        let cancelled = async {
            match about.sandbox.filter(|_| command == "ADD") {
                Some(sandbox) => self.progress.cancelled(sandbox).await,
                None => std::future::pending().await,
            }
        };
        let mut started = None;
        let work = async {
            let child = self.start(command, kind, about).await?;
            let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            let (child, _) = started.insert((child, group));
            converse(child, &input).await.map_err(|e| e.to_string())
        };
        let outcome = tokio::select! {
            outcome = timeout(limit, work) => outcome.map_err(|_| Stop::Late),
            () = cancelled => Err(Stop::Cancelled),
        };
        let stop = match outcome {
            Ok(outcome) => {
                let (status, output, words) = outcome.map_err(Run::Other)?;
                return judge(status, output, &words);
            }
            Err(stop) => stop,
        };
        let why = stop.text(started.is_some(), limit, &self.directory_names());
        let (child, group) = started.unzip();
        let sandbox = about.sandbox.map(str::to_owned);
        // A panic there was printed where it happened.
        let _ = tokio::task::spawn_blocking(move || end(group.flatten(), sandbox.as_deref())).await;
        if let Some(mut child) = child {
            // It is killed; this only reaps it.
            let _ = child.wait().await;
        }
        Err(Run::Other(why))
    }
}

/// Why a plugin was not waited for.
enum Stop {
    Late,
    Cancelled,
}

impl Stop {
    fn text(&self, is_started: bool, limit: Duration, directories: &str) -> String {
        let seconds = limit.as_secs_f32();
        match (self, is_started) {
            (Self::Late, true) => format!("no answer within {seconds} s; it was killed with all it started"),
            (Self::Late, false) => {
                format!("its program was not started within {seconds} s; check the disk or server of {directories}")
            }
            (Self::Cancelled, true) => "the pod is being stopped; it was killed with all it started".to_owned(),
            (Self::Cancelled, false) => "the pod is being stopped; its program was not started yet".to_owned(),
        }
    }
}

enum Run {
    /// It ended with an error as the specification has it.
    Failed(Failure),
    Other(String),
}

impl Run {
    fn text(&self) -> String {
        match self {
            Self::Failed(failure) => failure.text(),
            Self::Other(reason) => reason.clone(),
        }
    }
}

impl Failure {
    fn text(&self) -> String {
        let details =
            if self.details.is_empty() { String::new() } else { format!(": {}", told(self.details.as_bytes())) };
        format!("{}{details} (code {})", told(self.msg.as_bytes()), self.code)
    }
}

fn judge(status: ExitStatus, output: Output, words: &[u8]) -> Result<Vec<u8>, Run> {
    if output.overflow {
        return Err(Run::Other(format!("its output is longer than {MOST_OUTPUT} bytes")));
    }
    if status.success() {
        return Ok(output.bytes);
    }
    match serde_json::from_slice::<Failure>(&output.bytes) {
        Ok(failure) if !failure.msg.is_empty() => Err(Run::Failed(failure)),
        _ => {
            let said = if words.is_empty() { &output.bytes } else { words };
            Err(Run::Other(format!("{status}, without a CNI error; it said {}", told(said))))
        }
    }
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    overflow: bool,
}

async fn converse(child: &mut Child, input: &[u8]) -> std::io::Result<(ExitStatus, Output, Vec<u8>)> {
    let output = child.stdout.take().map(|pipe| Drainer::start(pipe, MOST_OUTPUT));
    let words = child.stderr.take().map(|pipe| Drainer::start(pipe, MOST_WORDS));
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin may end without having read its configuration; its status tells.
        let _ = stdin.write_all(input).await;
    }
    let status = child.wait().await?;
    let output = match output {
        Some(drainer) => drainer.end().await,
        None => Output::default(),
    };
    let words = match words {
        Some(drainer) => drainer.end().await.bytes,
        None => Vec::new(),
    };
    Ok((status, output, words))
}

/// Reads a pipe to its end, keeping the first bytes.
struct Drainer {
    kept: Arc<Mutex<Output>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drainer {
    fn start(mut pipe: impl AsyncRead + Unpin + Send + 'static, most: usize) -> Self {
        let kept = Arc::new(Mutex::new(Output::default()));
        let theirs = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            let mut chunk = vec![0; 16 << 10];
            while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
                let mut kept = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                let room = (most - kept.bytes.len()).min(length);
                kept.bytes.extend_from_slice(&chunk[..room]);
                kept.overflow |= room < length;
            }
        });
        Self { kept, task }
    }

    async fn end(mut self) -> Output {
        if timeout(DRAIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A plugin's words, escaped and short: they go into logs and error messages.
fn told(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TOLD)]);
    let more = if bytes.len() > TOLD { "…" } else { "" };
    let escaped: String =
        text.trim().chars().flat_map(|c| if c == '"' { vec!['"'] } else { c.escape_debug().collect() }).collect();
    if escaped.is_empty() { "nothing".into() } else { format!("{escaped}{more}") }
}

fn configuration(chain: &Chain, plugin: &Plugin) -> Map<String, Value> {
    let mut config = plugin.config.clone();
    config.insert("name".into(), chain.name.clone().into());
    config.insert("cniVersion".into(), chain.version.clone().into());
    config
}

fn port_mapping(port: &PortMapping) -> Value {
    serde_json::json!({
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": port.protocol,
        "hostIP": port.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
    })
}

/// `CNI_ARGS`: `key=value` with semicolons between, so neither may have one.
fn arguments(pod: &PodRef) -> Result<String, String> {
    let pairs = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &pod.namespace),
        ("K8S_POD_NAME", &pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &pod.sandbox),
        ("K8S_POD_UID", &pod.uid),
    ];
    for (key, value) in pairs {
        if value.contains([';', '=', '\0']) {
            return Err(format!("{key} {value:?} cannot be an argument: it has one of ; ="));
        }
    }
    Ok(pairs.map(|(key, value)| format!("{key}={value}")).join(";"))
}
