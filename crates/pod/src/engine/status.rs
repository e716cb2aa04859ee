//! Status of the engine and its components.

use super::{Engine, EngineInfo, MonitorInfo};
use crate::{
    Condition, Feature, HandlerInfo, PipeHolder, Silence,
    container::spec::apparmor,
    observe::health,
    stdio::{pipe_holders, shared_pipe},
};

/// Status of the engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Whether containers can be created.
    pub runtime: Condition,
    /// Whether pods can be attached to the network.
    pub network: Condition,
    /// Whether pods can have user namespaces.
    pub user_namespaces: Condition,
    /// Runtime handlers; the empty name is the default handler.
    pub handlers: Vec<HandlerInfo>,
    /// Further details for `pinion info`.
    pub info: EngineInfo,
}

impl Engine {
    /// Returns the status of the engine. Waits at most one second for components that do not respond
    /// ([`crate::Silence`]); the first call after the start may wait some seconds.
    pub async fn status(&self) -> EngineStatus {
        let parts = &self.0;
        let ((network, description), monitor, handlers) = tokio::join!(
            parts.observe.health.network(),
            parts.monitor.welcome_within(health::RECONNECT_TIMEOUT),
            parts.node.handlers.info()
        );
        let user_namespaces = parts.user_namespaces_for_status().await;
        let reason = user_namespaces.as_ref().err().cloned();
        let info = EngineInfo {
            network: description,
            state_dir: parts.node.config.state_dir.clone(),
            data_dir: parts.node.config.data_dir.clone(),
            health: parts.observe.health.info(),
            monitor: monitor.as_ref().ok().map(|monitor| MonitorInfo {
                pid: monitor.pid,
                version: monitor.version.clone(),
                contract: (monitor.major, monitor.minor),
            }),
            user_namespaces: Feature { supported: reason.is_none(), reason },
            apparmor: apparmor::describe(),
        };
        EngineStatus {
            runtime: match monitor {
                Ok(_) => parts.observe.health.heartbeat.condition(),
                Err(error) => Condition::from_result(Err(error), "MonitorUnavailable"),
            },
            network,
            user_namespaces: Condition::from_result(user_namespaces, "NotSupported"),
            handlers,
            info,
        }
    }

    /// Checks whether the data disk accepts writes, for callers that are about to rely on it. Waits at most 5 s.
    pub async fn data_disk(&self) -> Condition {
        self.0.observe.health.data_disk().await
    }

    /// Returns how long components that may hang have not responded.
    pub fn silence(&self) -> Silence {
        self.0.observe.health.silence()
    }

    /// Returns the number of threads of this process that are blocked in a call on a pipe that a process of a container
    /// holds inside the kernel. The call ends only when that process or its container is killed; until then an
    /// execve(2) of this process does not return, and its exit does not complete.
    pub fn blocked_pipe_calls(&self) -> usize {
        shared_pipe::blocked_calls()
    }

    /// Returns the processes of containers that keep a pipe of this process locked inside the kernel. This may have no
    /// effect yet, because a pipe without data is not read. The pipe is unlocked when the process or its container is
    /// killed; until then an execve(2) of this process does not return. Inspects every process of the machine.
    pub fn pipe_holders(&self) -> Vec<PipeHolder> {
        pipe_holders::holders_of_own_pipes(&self.0.node.config.state_dir)
    }
}
