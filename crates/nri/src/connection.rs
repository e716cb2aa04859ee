//! A connection to a plugin: ttrpc over frames of two logical connections.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::net::UnixStream;
use ttrpc::{Request, Status};

pub(crate) use ttrpc::{CallError, code};

use crate::{
    bounded::{self, Bounded},
    wire::{Reader, Writer},
};

const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Serves the requests of a plugin: the method and its encoded argument in, the encoded answer out.
pub(crate) type Service = Arc<dyn Fn(String, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Status>> + Send + Sync>;

/// A connection; dropping it closes it.
pub(crate) struct Connection(ttrpc::Connection);

impl Connection {
    pub(crate) fn new(socket: UnixStream, service: Service) -> Self {
        let (read_half, write_half) = socket.into_split();
        let serve = move |request: Request| match request.service == RUNTIME {
            true => service(request.method, request.payload),
            false => {
                let message = format!("no service {}", request.service);
                Box::pin(std::future::ready(Err(Status { code: code::UNIMPLEMENTED, message }))) as BoxFuture<'_, _>
            }
        };
        Self(ttrpc::Connection::new(Reader::new(read_half), Writer(write_half), Arc::new(serve)))
    }

    /// Sends a request and waits for the answer, for at most `timeout`.
    pub(crate) async fn call<Answer: Bounded>(
        &self,
        method: &str,
        argument: &impl prost::Message,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let answer = self.0.call(PLUGIN, method, argument, Some(timeout)).await?;
        bounded::decode(&answer).map_err(|e| CallError::Garbage(e.to_string()))
    }

    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}
