//! Messages of the protocol, as far as they are used (`containerd/api`: `runtime/task`, `runtime/bootstrap`,
//! `types/runc/options`, `types/runtimeoptions`, `events`, `services/ttrpc/events`).

use prost::{Enumeration, Message};

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `google.protobuf.Empty`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BootstrapParams {
    #[prost(string, tag = "1")]
    pub(crate) instance_id: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "4")]
    pub(crate) containerd_version: String,
    #[prost(string, tag = "5")]
    pub(crate) containerd_ttrpc_address: String,
    #[prost(string, tag = "6")]
    pub(crate) containerd_grpc_address: String,
    #[prost(string, tag = "7")]
    pub(crate) containerd_binary: String,
    #[prost(message, repeated, tag = "8")]
    pub(crate) extensions: Vec<Extension>,
    #[prost(string, optional, tag = "9")]
    pub(crate) socket_dir: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Extension {
    #[prost(message, optional, tag = "1")]
    pub(crate) value: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BootstrapResult {
    #[prost(int32, tag = "1")]
    pub(crate) version: i32,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(string, tag = "3")]
    pub(crate) protocol: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateTaskRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) bundle: String,
    #[prost(bool, tag = "4")]
    pub(crate) terminal: bool,
    #[prost(string, tag = "5")]
    pub(crate) stdin: String,
    #[prost(string, tag = "6")]
    pub(crate) stdout: String,
    #[prost(string, tag = "7")]
    pub(crate) stderr: String,
    #[prost(message, optional, tag = "10")]
    pub(crate) options: Option<Any>,
}

/// Answer to `Create` and `Start`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PidResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
}

/// `StateRequest`, `StartRequest`, `WaitRequest`, `DeleteRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
}

/// `PauseRequest`, `ResumeRequest`, `PidsRequest`, `StatsRequest`, `ConnectRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecProcessRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(bool, tag = "3")]
    pub(crate) terminal: bool,
    #[prost(string, tag = "4")]
    pub(crate) stdin: String,
    #[prost(string, tag = "5")]
    pub(crate) stdout: String,
    #[prost(string, tag = "6")]
    pub(crate) stderr: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) spec: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResizePtyRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) width: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) height: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum TaskStatus {
    Unknown = 0,
    Created = 1,
    Running = 2,
    Stopped = 3,
    Paused = 4,
    Pausing = 5,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateResponse {
    #[prost(uint32, tag = "3")]
    pub(crate) pid: u32,
    #[prost(enumeration = "TaskStatus", tag = "4")]
    pub(crate) status: i32,
    #[prost(uint32, tag = "9")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "10")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KillRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) signal: u32,
    #[prost(bool, tag = "4")]
    pub(crate) all: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseIoRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(bool, tag = "3")]
    pub(crate) stdin: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateTaskRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resources: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CheckpointTaskRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WaitResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) exit_status: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) stats: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConnectResponse {
    #[prost(uint32, tag = "1")]
    pub(crate) shim_pid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) task_pid: u32,
    #[prost(string, tag = "3")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ShutdownRequest {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(bool, tag = "2")]
    pub(crate) now: bool,
}

/// `containerd.runc.v1.Options`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuncOptions {
    #[prost(bool, tag = "1")]
    pub(crate) no_pivot_root: bool,
    #[prost(bool, tag = "2")]
    pub(crate) no_new_keyring: bool,
    #[prost(string, tag = "3")]
    pub(crate) shim_cgroup: String,
    #[prost(uint32, tag = "4")]
    pub(crate) io_uid: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) io_gid: u32,
    #[prost(string, tag = "6")]
    pub(crate) binary_name: String,
    #[prost(string, tag = "7")]
    pub(crate) root: String,
    #[prost(bool, tag = "9")]
    pub(crate) systemd_cgroup: bool,
    #[prost(string, tag = "10")]
    pub(crate) criu_image_path: String,
    #[prost(string, tag = "11")]
    pub(crate) criu_work_path: String,
}

/// `runtimeoptions.v1.Options`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeOptions {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(string, tag = "2")]
    pub(crate) config_path: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) config_body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ForwardRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) envelope: Option<Envelope>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "3")]
    pub(crate) topic: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) event: Option<Any>,
}

/// The first field of every event of a task.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskEvent {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

/// `containerd.types.RuntimeInfo` (`api/types/introspection.proto`).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) version: Option<RuntimeVersion>,
    #[prost(message, optional, tag = "4")]
    pub(crate) features: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeVersion {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
}
