//! One request on its way: counted, timed, in a span, told in the log when it fails.

use std::{thread, time::Instant};

use pod::Engine;
use telemetry::{Gauge, Held};
use tonic::{Code, Status, metadata::MetadataMap};
use tracing::{Span, error_span, field::Empty};

use crate::{
    about::{About, Names},
    rpc::{Rpc, code_name},
    trace_context::TraceContext,
};

/// From its arrival to its end. One that is dropped before was given up by its client.
pub(crate) struct Call {
    rpc: Rpc,
    began: Instant,
    span: Span,
    object: Option<Object>,
    over: bool,
    _in_flight: Held<&'static Gauge>,
}

/// What the request named by id only, so that a line about its failure can tell names too.
enum Object {
    Sandbox(String),
    Container(String),
}

/// How a request ended.
pub(crate) struct End<'a> {
    pub(crate) code: Code,
    pub(crate) message: &'a str,
}

impl Call {
    /// A request came. The span is of the highest level, so that every line within, however few are wanted, tells which
    /// request it belongs to.
    pub(crate) fn begin(rpc: Rpc, metadata: &MetadataMap, request: &impl Names) -> Self {
        let context = TraceContext::of(metadata);
        let about = request.about();
        let span = error_span!(
            parent: None,
            "rpc",
            rpc = rpc.method(),
            service = rpc.service(),
            trace = context.trace,
            parent = context.parent,
            sampled = context.sampled,
            sandbox = about.sandbox,
            pod = about.pod,
            namespace = about.namespace,
            container = about.container,
            name = about.name,
            image = about.image,
            status = Empty,
            error = Empty,
            refusal = Empty,
        );
        Self {
            rpc,
            began: Instant::now(),
            span,
            object: Object::of(&about),
            over: false,
            _in_flight: Gauge::hold(&rpc.figures().in_flight),
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// It is answered: counts it, and writes the one line that a failure gets.
    pub(crate) fn end(mut self, engine: &Engine, end: Option<End<'_>>) {
        let code = end.as_ref().map_or(Code::Ok, |end| end.code);
        let ms = self.count(code);
        let Some(end) = end else {
            self.span.in_scope(|| tracing::debug!(ms, "answered"));
            return;
        };
        self.name(engine);
        self.span.record(if is_error(code) { "error" } else { "refusal" }, end.message);
        self.span.in_scope(|| match is_ours(code) {
            true => tracing::warn!(code = code_name(code), ms, "{}", end.message),
            false if is_routine(self.rpc, code) => tracing::debug!(code = code_name(code), ms, "{}", end.message),
            false => tracing::info!(code = code_name(code), ms, "{}", end.message),
        });
    }

    /// In milliseconds, how long it took.
    fn count(&mut self, code: Code) -> f64 {
        self.over = true;
        let (took, figures) = (self.began.elapsed(), self.rpc.figures());
        figures.ended[code as usize].add(1);
        figures.took.observe(took);
        self.span.record("status", i64::from(code as i32));
        (took.as_secs_f64() * 1e6).round() / 1e3
    }

    /// Adds the names of what the request told by id.
    fn name(&self, engine: &Engine) {
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
        if !self.over {
            let panicking = thread::panicking();
            let ms = self.count(if panicking { Code::Internal } else { Code::Cancelled });
            self.span.in_scope(|| match panicking {
                true => tracing::error!(code = "Internal", ms, "a bug: the daemon failed at it"),
                false => tracing::debug!(code = "Canceled", ms, "its client left"),
            });
        }
    }
}

impl Object {
    fn of(about: &About<'_>) -> Option<Self> {
        match (about.container, about.sandbox) {
            (Some(id), _) => Some(Self::Container(id.to_owned())),
            (None, Some(id)) if about.pod.is_none() => Some(Self::Sandbox(id.to_owned())),
            _ => None,
        }
    }
}

impl<'a> From<&'a Status> for End<'a> {
    fn from(status: &'a Status) -> Self {
        Self { code: status.code(), message: status.message() }
    }
}

/// Which codes make a server's span an error (OpenTelemetry's conventions for gRPC); the others tell the client of its
/// own.
fn is_error(code: Code) -> bool {
    is_ours(code) || matches!(code, Code::DeadlineExceeded | Code::Unimplemented)
}

/// Whether this is how a client learns that something is gone: kubelet asks for the status of what it removed, and of
/// what ended between a list and the next request.
fn is_routine(rpc: Rpc, code: Code) -> bool {
    let asks = matches!(
        rpc,
        Rpc::PodSandboxStatus | Rpc::ContainerStatus | Rpc::PodSandboxStats | Rpc::ContainerStats | Rpc::ImageStatus
    );
    asks && code == Code::NotFound
}

/// Whether the daemon's side is at fault, so that its operator should read about it.
fn is_ours(code: Code) -> bool {
    matches!(code, Code::Internal | Code::Unavailable | Code::ResourceExhausted | Code::Unknown | Code::DataLoss)
}
