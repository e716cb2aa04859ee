//! Polls an engine as a kubelet does: a list of pods and of containers, and the status of one of each.

use std::time::{Duration, Instant};

use cri_proto::v1::{ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest, PodSandboxStatusRequest};
use tokio::sync::Notify;
use tonic::{Response, Status};

use crate::{engine::Engine, results::TurnLog};

/// The calls of a poll, in order.
pub(super) const CALLS: [&str; 4] = ["ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"];

/// Longest time that a call may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Polls an engine once in a period until `end`. A slow engine is polled less often.
pub(super) async fn poll(
    engine: &Engine,
    (period, end): (Duration, &Notify),
    parameter: Option<f64>,
    log: &mut TurnLog,
) {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The lists need messages larger than gRPC's default with many pods; `engine.runtime` permits them.
    let mut runtime = engine.runtime.clone();
    loop {
        tokio::select! {
            biased;
            () = end.notified() => return,
            _ = interval.tick() => {}
        }
        let mut clock = Clock { log: &mut *log, parameter };
        let pods = clock.call(CALLS[0], runtime.list_pod_sandbox(ListPodSandboxRequest::default())).await;
        let containers = clock.call(CALLS[1], runtime.list_containers(ListContainersRequest::default())).await;
        // A pod may be removed in between, which is not a failure of the engine.
        if let Some(pod) = pods.and_then(|pods| pods.items.into_iter().next()) {
            let request = PodSandboxStatusRequest { pod_sandbox_id: pod.id, verbose: false };
            clock.call(CALLS[2], runtime.pod_sandbox_status(request)).await;
        }
        if let Some(container) = containers.and_then(|list| list.containers.into_iter().next()) {
            let request = ContainerStatusRequest { container_id: container.id, verbose: false };
            clock.call(CALLS[3], runtime.container_status(request)).await;
        }
    }
}

struct Clock<'a> {
    log: &'a mut TurnLog,
    parameter: Option<f64>,
}

impl Clock<'_> {
    async fn call<T>(&mut self, name: &str, call: impl Future<Output = Result<Response<T>, Status>>) -> Option<T> {
        let start = Instant::now();
        match tokio::time::timeout(TIMEOUT, call).await {
            Ok(Ok(response)) => {
                self.log.add_ms(name, self.parameter, start.elapsed());
                Some(response.into_inner())
            }
            Ok(Err(status)) if status.code() == tonic::Code::NotFound => None,
            Ok(Err(status)) => {
                self.log.fail(name, self.parameter, status.message());
                None
            }
            Err(_) => {
                self.log.fail(name, self.parameter, &format!("no response in {} s", TIMEOUT.as_secs()));
                None
            }
        }
    }
}
