//! An OTLP receiver in the network namespace of a node.

use std::{
    fs::File,
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::Span,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use system_tests::Node;
use tokio::sync::Notify;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

/// The received spans.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    received: Arc<Notify>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.spans.lock().expect("not poisoned").extend(scopes.flat_map(|scope| scope.spans));
        self.received.notify_one();
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts the receiver on a port of the node's loopback interface.
    pub(crate) fn start(node: &Node, port: u16) -> Self {
        let namespace =
            File::open(format!("/proc/{}/ns/net", node.init_pid())).expect("open the network namespace of the node");
        // A socket remains in the namespace of the thread that created it.
        let thread = thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .expect("enter the namespace");
            TcpListener::bind(("127.0.0.1", port)).expect("the port is free")
        });
        let listener = thread.join().expect("the thread ends");
        listener.set_nonblocking(true).expect("set");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let collector = Self::default();
        let service = TraceServiceServer::new(collector.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        collector
    }

    /// Waits until the received spans satisfy `condition`, and returns them.
    pub(crate) async fn spans(&self, condition: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        loop {
            let spans = self.spans.lock().expect("not poisoned").clone();
            if condition(&spans) {
                return spans;
            }
            self.received.notified().await;
        }
    }
}

/// Returns the value of an attribute as text.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|kv| kv.key == key)?.value.as_ref()?.value.as_ref()?;
    match value {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(int) => Some(int.to_string()),
        other => Some(format!("{other:?}")),
    }
}
