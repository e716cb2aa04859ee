//! An engine that does nothing, in a known time.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use cri_proto::v1::{
    ContainerStatusResponse, CreateContainerResponse, ExecSyncResponse, Image, ImageStatusResponse,
    RunPodSandboxResponse, StopPodSandboxRequest, VersionResponse,
};
use tokio::{net::UnixListener, runtime::Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{Grpc, NamedService},
    transport::Server,
};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// How the engine behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Duration of RunPodSandbox.
    pub(crate) run_ms: u64,
    /// Duration of StopContainer.
    pub(crate) stop_ms: u64,
    /// Every so many calls of RunPodSandbox fail; 0 for none.
    pub(crate) fail_every: usize,
}

/// A running engine. It ends with this value.
pub(crate) struct Engine {
    socket: PathBuf,
    state: Arc<State>,
    _runtime: Runtime,
}

struct State {
    behaviour: Behaviour,
    calls: AtomicUsize,
    pods: Mutex<BTreeSet<String>>,
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

impl Engine {
    /// Starts an engine with a socket in a directory.
    pub(crate) fn start(directory: &Path, behaviour: Behaviour) -> Self {
        let socket = directory.join(format!("{}.sock", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let state = Arc::new(State { behaviour, calls: AtomicUsize::new(0), pods: Mutex::default() });
        let runtime = Runtime::new().expect("a runtime");
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(&socket).expect("a socket")
        };
        let server = Server::builder().add_service(RuntimeService(state.clone())).add_service(ImageService);
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self { socket, state, _runtime: runtime }
    }

    /// Returns the argument of `--engine` for it.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{name}={}", self.socket.display())
    }

    /// Returns the number of pods that exist.
    pub(crate) fn pods(&self) -> usize {
        self.state.pods.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[derive(Clone)]
struct RuntimeService(Arc<State>);

#[derive(Clone)]
struct ImageService;

impl NamedService for RuntimeService {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ImageService {
    const NAME: &'static str = "runtime.v1.ImageService";
}

type HttpFuture = BoxFuture<http::Response<Body>, Infallible>;

impl Service<http::Request<Body>> for RuntimeService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> HttpFuture {
        let state = self.0.clone();
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        Box::pin(async move {
            Ok(match method.as_str() {
                "Version" => {
                    let (runtime_name, runtime_version) = ("fake".to_owned(), "1.0".to_owned());
                    reply(request, Ok(VersionResponse { runtime_name, runtime_version, ..Default::default() })).await
                }
                "RunPodSandbox" => reply(request, run(&state).await).await,
                "CreateContainer" => {
                    reply(request, Ok(CreateContainerResponse { container_id: "container".to_owned() })).await
                }
                "ExecSync" => reply(request, Ok(ExecSyncResponse::default())).await,
                "StopContainer" => {
                    tokio::time::sleep(Duration::from_millis(state.behaviour.stop_ms)).await;
                    reply(request, Ok(())).await
                }
                "RemovePodSandbox" => remove(request, state).await,
                "StartContainer" | "RemoveContainer" | "StopPodSandbox" => reply(request, Ok(())).await,
                _ => reply::<ContainerStatusResponse>(request, Err(Status::unimplemented(method))).await,
            })
        })
    }
}

impl Service<http::Request<Body>> for ImageService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> HttpFuture {
        let response = ImageStatusResponse { image: Some(Image::default()), ..Default::default() };
        Box::pin(async move { Ok(reply(request, Ok(response)).await) })
    }
}

async fn run(state: &State) -> Result<RunPodSandboxResponse, Status> {
    tokio::time::sleep(Duration::from_millis(state.behaviour.run_ms)).await;
    let call = state.calls.fetch_add(1, Ordering::Relaxed) + 1;
    if state.behaviour.fail_every > 0 && call.is_multiple_of(state.behaviour.fail_every) {
        return Err(Status::resource_exhausted("the node is full & busy"));
    }
    let id = format!("pod-{call}");
    state.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    Ok(RunPodSandboxResponse { pod_sandbox_id: id })
}

async fn remove(request: http::Request<Body>, state: Arc<State>) -> http::Response<Body> {
    let service = service_fn(move |request: Request<StopPodSandboxRequest>| {
        // RemovePodSandboxRequest has the same field.
        state.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.get_ref().pod_sandbox_id);
        std::future::ready(Ok::<_, Status>(Response::new(())))
    });
    Grpc::new(ProstCodec::<(), StopPodSandboxRequest>::default()).unary(service, request).await
}

/// Sends a response whatever the request is: the empty message ignores unknown fields.
async fn reply<M>(request: http::Request<Body>, response: Result<M, Status>) -> http::Response<Body>
where
    M: prost::Message + Default + Clone + 'static,
{
    let service = service_fn(move |_: Request<()>| std::future::ready(response.clone().map(Response::new)));
    Grpc::new(ProstCodec::<M, ()>::default()).unary(service, request).await
}
