//! A request in progress: it is counted, timed, traced, and logged when it fails.

use std::{thread, time::Instant};

use pod::Engine;
use telemetry::{Gauge, GaugeGuard};
use tonic::{Code, Status, metadata::MetadataMap};
use tracing::{Span, error_span, field::Empty};

use crate::{
    rpc::{Rpc, code_name},
    subject::{HasSubject, Subject},
    trace_context::TraceContext,
};

/// A request from its arrival to its end. Dropping it before [`Call::end`] means that the client disconnected.
pub(crate) struct Call {
    rpc: Rpc,
    began: Instant,
    span: Span,
    object: Option<Object>,
    ended: bool,
    _in_flight: GaugeGuard<&'static Gauge>,
}

/// An object that the request names by id only, so that a failure can be logged with its name.
enum Object {
    Sandbox(String),
    Container(String),
}

/// The code and message that a request ended with.
pub(crate) struct End<'a> {
    pub(crate) code: Code,
    pub(crate) message: &'a str,
}

impl Call {
    /// Begins a call. Its span has the highest level, so that log lines at every configured level contain the request
    /// they belong to.
    pub(crate) fn begin(rpc: Rpc, metadata: &MetadataMap, request: &impl HasSubject) -> Self {
        let context = TraceContext::from_metadata(metadata);
        let subject = request.subject();
        let span = error_span!(
            parent: None,
            "rpc",
            rpc = rpc.method(),
            service = rpc.service(),
            trace = context.trace,
            parent = context.parent,
            sampled = context.sampled,
            sandbox = subject.sandbox,
            pod = subject.pod,
            namespace = subject.namespace,
            container = subject.container,
            name = subject.name,
            image = subject.image,
            status = Empty,
            error = Empty,
            refusal = Empty,
        );
        Self {
            rpc,
            began: Instant::now(),
            span,
            object: Object::of(&subject),
            ended: false,
            _in_flight: Gauge::hold(&rpc.metrics().in_flight),
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Ends the call: counts it, and logs a failure in one line.
    pub(crate) fn end(mut self, engine: &Engine, end: Option<End<'_>>) {
        let code = end.as_ref().map_or(Code::Ok, |end| end.code);
        let ms = self.count(code);
        let Some(end) = end else {
            self.span.in_scope(|| tracing::debug!(ms, "request succeeded"));
            return;
        };
        self.record_names(engine);
        self.span.record(if is_error(code) { "error" } else { "refusal" }, end.message);
        self.span.in_scope(|| match is_server_error(code) {
            true => tracing::warn!(code = code_name(code), ms, "{}", end.message),
            false if is_routine(self.rpc, code) => tracing::debug!(code = code_name(code), ms, "{}", end.message),
            false => tracing::info!(code = code_name(code), ms, "{}", end.message),
        });
    }

    /// Counts the call and returns its duration in milliseconds.
    fn count(&mut self, code: Code) -> f64 {
        self.ended = true;
        let (took, metrics) = (self.began.elapsed(), self.rpc.metrics());
        metrics.completed[code as usize].add(1);
        metrics.duration.observe(took);
        self.span.record("status", i64::from(code as i32));
        (took.as_secs_f64() * 1e6).round() / 1e3
    }

    /// Adds the names of the object that the request identifies by id to the span.
    fn record_names(&self, engine: &Engine) {
        let sandbox = match &self.object {
            Some(Object::Sandbox(id)) => engine.sandbox(id),
            Some(Object::Container(id)) => engine.container(id).and_then(|container| {
                self.span.record("name", &container.config.name);
                engine.sandbox(&container.sandbox)
            }),
            None => return,
        };
        if let Ok(sandbox) = sandbox {
            self.span.record("pod", &sandbox.config.name.name);
            self.span.record("namespace", &sandbox.config.name.namespace);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let panicking = thread::panicking();
            let ms = self.count(if panicking { Code::Internal } else { Code::Cancelled });
            self.span.in_scope(|| match panicking {
                true => tracing::error!(
                    code = "Internal",
                    ms,
                    "the daemon panicked while handling the request; this is a bug"
                ),
                false => tracing::debug!(code = "Canceled", ms, "the client disconnected"),
            });
        }
    }
}

impl Object {
    fn of(subject: &Subject<'_>) -> Option<Self> {
        match (subject.container, subject.sandbox) {
            (Some(id), _) => Some(Self::Container(id.to_owned())),
            (None, Some(id)) if subject.pod.is_none() => Some(Self::Sandbox(id.to_owned())),
            _ => None,
        }
    }
}

impl<'a> From<&'a Status> for End<'a> {
    fn from(status: &'a Status) -> Self {
        Self { code: status.code(), message: status.message() }
    }
}

/// Reports whether a code makes a server's span an error (OpenTelemetry's semantic conventions for gRPC). The other
/// codes are errors of the client.
fn is_error(code: Code) -> bool {
    is_server_error(code) || matches!(code, Code::DeadlineExceeded | Code::Unimplemented)
}

/// Reports whether the error is the normal way in which a client learns that an object is gone: kubelet requests the
/// status of objects that it removed, or that ended after it listed them.
fn is_routine(rpc: Rpc, code: Code) -> bool {
    let is_query = matches!(
        rpc,
        Rpc::PodSandboxStatus | Rpc::ContainerStatus | Rpc::PodSandboxStats | Rpc::ContainerStats | Rpc::ImageStatus
    );
    is_query && code == Code::NotFound
}

/// Reports whether the fault is on the server's side, so that its operator should read about it.
fn is_server_error(code: Code) -> bool {
    matches!(code, Code::Internal | Code::Unavailable | Code::ResourceExhausted | Code::Unknown | Code::DataLoss)
}
