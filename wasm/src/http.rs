//! Serves a component that exports `wasi:http/incoming-handler`: HTTP/1.1, an instance for each request.

mod handled_body;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Method, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};
use wasmtime::{Engine, Result, bail, component::Component, error::Context};
use wasmtime_wasi_http::{
    WasiHttpView,
    io::TokioIo,
    p2::{
        bindings::{ProxyPre, http::types::Scheme},
        body::HyperOutgoingBody,
    },
};

use self::handled_body::{HandledBody, Handler};
use crate::{
    arguments::Run,
    host::ComponentHost,
    run::{Outcome, component_linker, component_store},
};

/// The address, unless the command line or the environment has one.
const ADDRESS: &str = "0.0.0.0:8080";
/// Variable of the environment with the address.
const VARIABLE: &str = "PINION_WASM_HTTP_ADDRESS";
/// Most connections at a time. Further ones wait in the queue of the socket.
const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after an error of accept(2), which is most likely a limit of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

struct Server {
    component: ProxyPre<ComponentHost>,
    run: Run,
}

/// Serves requests until the process is ended by a signal.
pub(crate) fn serve(engine: &Engine, component: &Component, run: &Run) -> Outcome {
    let address = address(run.http_address.as_deref())?;
    let component = ProxyPre::new(component_linker(engine)?.instantiate_pre(component)?)?;
    let run = Run { arguments: run.arguments.clone(), ..Run::default() };
    let server = Arc::new(Server { component, run });
    // One request must not delay the others, so each core gets a thread.
    let runtime = Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        accept(&listener, &server).await;
        Ok(Ok(Ok(())))
    })
}

fn address(argument: Option<&str>) -> Result<SocketAddr> {
    let variable = std::env::var(VARIABLE).ok();
    let address = argument.or(variable.as_deref()).unwrap_or(ADDRESS);
    address.parse::<SocketAddr>().with_context(|| format!("HTTP address {address:?}: not an IP address with a port"))
}

async fn accept(listener: &TcpListener, server: &Arc<Server>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        match listener.accept().await {
            Ok((connection, _)) => drop(tokio::spawn(serve_connection(Arc::clone(server), connection, permit))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn serve_connection(server: Arc<Server>, connection: TcpStream, _permit: OwnedSemaphorePermit) {
    let service = service_fn(|request| {
        let server = Arc::clone(&server);
        async move { server.respond(request).await.inspect_err(|error| eprintln!("pinion-wasm: request: {error:#}")) }
    });
    let mut http = http1::Builder::new();
    http.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // A client that disconnects is not an error of this server.
    let _ = http.serve_connection(TokioIo::new(connection), service).await;
}

impl Server {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<HyperOutgoingBody>> {
        let mut store = component_store(self.component.engine(), &self.run)?;
        let (sender, receiver) = oneshot::channel();
        let is_head = request.method() == Method::HEAD;
        let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
        let response = store.data_mut().http().new_response_outparam(sender)?;
        let component = self.component.clone();
        // The handler may continue after it has set the response, to write the body.
        let handler = Handler::spawn(async move {
            let proxy = component.instantiate_async(&mut store).await?;
            proxy.wasi_http_incoming_handler().call_handle(&mut store, request, response).await
        });
        // hyper drops this future, and later the body, if the client disconnects.
        match receiver.await {
            Ok(response) => Ok(HandledBody::attach(response?, handler, is_head)),
            Err(_) => match handler.join().await {
                Ok(()) => bail!("the component returned without a response"),
                Err(error) => Err(error.context("the component returned no response")),
            },
        }
    }
}
