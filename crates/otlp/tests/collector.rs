//! Spans as a standard OTLP receiver gets them.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use otlp::{QUEUE, Settings, Traces};
use tokio::{net::TcpListener, sync::Notify};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use tracing::{Instrument, debug_span, field::Empty, info_span};
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const LONG: Duration = Duration::from_secs(30);

/// A collector that stores requests.
#[derive(Clone, Default)]
struct Received {
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    notify: Arc<Notify>,
}

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.requests.lock().expect("not poisoned").push(request.into_inner());
        self.notify.notify_one();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Received {
    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().expect("not poisoned");
        let scopes = requests.iter().flat_map(|r| &r.resource_spans).flat_map(|r| &r.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

async fn collector() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let received = Received::default();
    serve(listener, received.clone());
    (address, received)
}

fn serve(listener: TcpListener, received: Received) {
    let service = TraceServiceServer::new(received);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
}

fn settings(address: SocketAddr, sample_ratio: f64) -> Settings {
    Settings {
        endpoint: format!("http://{address}"),
        sample_ratio,
        service_name: "engine".into(),
        resource: vec![("service.version".into(), "1".into())],
    }
}

fn subscriber(traces: &Traces) -> impl tracing::Subscriber + Send + Sync + use<> {
    Registry::default().with(traces.layer().boxed())
}

fn texts(span: &Span) -> HashMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(int) => int.to_string(),
        other => format!("{other:?}"),
    };
    let value = |kv: &'_ opentelemetry_proto::tonic::common::v1::KeyValue| {
        kv.value.as_ref().and_then(|value| value.value.as_ref()).map(text).unwrap_or_default()
    };
    span.attributes.iter().map(|kv| (kv.key.as_str(), value(kv))).collect()
}

#[tokio::test]
async fn a_tree_of_spans_is_exported() {
    let (address, received) = collector().await;
    let traces = Traces::off(&["collector"]);
    let _guard = tracing::subscriber::set_default(subscriber(&traces));
    traces.set(Some(settings(address, 0.0))).expect("valid");
    {
        let root = info_span!(
            parent: None, "rpc", rpc = "RunPodSandbox", service = "runtime.v1.RuntimeService", trace = TRACE,
            parent = PARENT, sampled = true, pod = "web", namespace = "shop", status = Empty, error = Empty,
        );
        async {
            async { tracing::warn!(tries = 2, "slow") }.instrument(debug_span!("attach", image = "x")).await;
            debug_span!("publish").in_scope(|| ());
            debug_span!(target: "h2::frame", "foreign").in_scope(|| ());
        }
        .instrument(root.clone())
        .await;
        root.record("status", 13i64);
        root.record("error", "no addresses left");
    }
    traces.flush(LONG).await;

    let spans = received.spans();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:?}"));
    assert_eq!(spans.len(), 3, "{spans:?}");
    let (root, attach, publish) = (named("runtime.v1.RuntimeService/RunPodSandbox"), named("attach"), named("publish"));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE && span.span_id.len() == 8));
    assert_eq!((hex(&root.parent_span_id).as_str(), root.kind()), (PARENT, SpanKind::Server));
    assert_eq!((&attach.parent_span_id, &publish.parent_span_id), (&root.span_id, &root.span_id));
    assert!(root.start_time_unix_nano <= attach.start_time_unix_nano);
    assert!(attach.end_time_unix_nano <= root.end_time_unix_nano);
    let attributes = texts(root);
    assert_eq!(attributes["k8s.pod.name"], "web");
    assert_eq!(attributes["k8s.namespace.name"], "shop");
    assert_eq!(attributes["rpc.grpc.status_code"], "13");
    assert_eq!(attributes["rpc.system"], "grpc");
    assert_eq!(texts(attach)["container.image.name"], "x");
    let status = root.status.as_ref().expect("an error");
    assert_eq!((status.code, status.message.as_str()), (2, "no addresses left"));
    assert!(attach.status.is_none());
    assert_eq!(attach.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["slow"]);

    let requests = received.requests.lock().expect("not poisoned");
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let keys: Vec<_> = resource.attributes.iter().map(|kv| kv.key.as_str()).collect();
    assert_eq!(keys, ["service.name", "service.version"]);
    assert_eq!(traces.metrics().exported.get(), 3);
}

#[tokio::test]
async fn children_of_unsampled_spans_are_not_exported() {
    let (address, received) = collector().await;
    let traces = Traces::off(&["collector"]);
    let _guard = tracing::subscriber::set_default(subscriber(&traces));
    let pair = |sampled: Option<bool>| {
        let root = info_span!(parent: None, "rpc", trace = TRACE, sampled);
        root.in_scope(|| debug_span!("child").in_scope(|| ()));
    };
    pair(Some(true)); // export is off
    traces.set(Some(settings(address, 1.0))).expect("valid");
    pair(Some(false)); // the client decided not to sample
    traces.set(Some(settings(address, 0.0))).expect("valid");
    pair(None); // ratio 0
    traces.set(Some(settings(address, 1.0))).expect("valid");
    pair(None); // ratio 1
    traces.set(None).expect("off");
    pair(Some(true));
    // Spans that were queued before export was turned off are still sent.
    while received.spans().len() < 2 {
        received.notify.notified().await;
    }
    assert_eq!(received.spans().len(), 2);
}

#[tokio::test]
async fn an_unreachable_collector_blocks_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let traces = Traces::off(&["collector"]);
    let _guard = tracing::subscriber::set_default(subscriber(&traces));
    traces.set(Some(settings(address, 1.0))).expect("the collector need not be reachable");
    let count = QUEUE as u64 + 100;
    for _ in 0..count {
        debug_span!("work").in_scope(|| ());
    }
    let metrics = traces.metrics();
    assert_eq!(metrics.dropped.get(), 100, "the queue is bounded, and nothing waits");
    assert_eq!(metrics.queued.get(), QUEUE as i64);

    // The collector becomes reachable, and receives the queued spans.
    let received = Received::default();
    serve(TcpListener::bind(address).await.expect("the port is free"), received.clone());
    traces.flush(LONG).await;
    assert_eq!(received.spans().len(), QUEUE);
    assert_eq!((metrics.exported.get(), metrics.failed.get(), metrics.queued.get()), (QUEUE as u64, 0, 0));
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let traces = Traces::off(&["collector"]);
    let settings = settings(SocketAddr::from(([127, 0, 0, 1], 1)), 0.5);
    for invalid in [
        Settings { endpoint: "collector:4317".into(), ..settings.clone() },
        Settings { endpoint: "https://collector:4317".into(), ..settings.clone() },
        Settings { endpoint: "http://".into(), ..settings.clone() },
        Settings { sample_ratio: 1.5, ..settings.clone() },
        Settings { sample_ratio: f64::NAN, ..settings.clone() },
    ] {
        let error = traces.set(Some(invalid.clone())).expect_err(&invalid.endpoint).to_string();
        assert!(error.starts_with("traces to "), "{error}");
    }
}
