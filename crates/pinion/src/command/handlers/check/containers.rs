//! The pod and the containers of a check, and what is tried with them.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cri_proto::{
    REPORT_FORMAT,
    pinion::InfoRequest,
    v1::{self, NamespaceMode},
};
use pod::oci::{DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS};
use tonic::{Response, Status};

use super::{
    sample_image::{MODULE, MODULE_EXIT, PROGRAM},
    steps::Steps,
};
use crate::{Client, Failure, lookup::LOGS};

/// How long output, an exit or a statistic is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(10);
/// Exit code of the sample program after SIGTERM.
const TERMINATED: i32 = 7;
/// Memory limits before and after the update, in bytes.
const MEMORY: [i64; 2] = [64 << 20, 96 << 20];
/// First id on the node of the pod with a user namespace, and the number of ids.
const USER_MAP: (u32, u32) = (1 << 30, 1 << 16);

/// A pod of the handler.
pub(super) struct Checked {
    client: Client,
    handler: String,
    image: String,
    /// The program on the node, if the image does not contain it.
    program: Option<PathBuf>,
    pod: Option<String>,
    config: v1::PodSandboxConfig,
}

impl Checked {
    pub(super) fn new(client: Client, handler: &str, image: &str, program: Option<PathBuf>) -> Self {
        let config = v1::PodSandboxConfig::default();
        Self { client, handler: handler.to_owned(), image: image.to_owned(), program, pod: None, config }
    }

    pub(super) fn has_pod(&self) -> bool {
        self.pod.is_some()
    }

    /// Runs the pod.
    pub(super) async fn pod(&mut self, steps: &mut Steps, with_user_namespace: bool) -> Result<(), Failure> {
        let name = if with_user_namespace { "handlers-check-users" } else { "handlers-check" };
        let info = self.client.native.info(InfoRequest { format: REPORT_FORMAT }).await?.into_inner();
        let data = info.daemon.map(|daemon| daemon.data_dir).unwrap_or_default();
        let logs = Path::new(&data).join("logs").join(name);
        std::fs::create_dir_all(&logs)
            .map_err(|error| Failure::new(format!("create log directory {}: {error}", logs.display())))?;
        let logs = logs.display().to_string();
        let security = v1::LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces(with_user_namespace)),
            ..Default::default()
        };
        self.config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: name.to_owned(),
                namespace: "pinion".to_owned(),
                attempt: std::process::id(),
            }),
            log_directory: logs.clone(),
            annotations: [(LOGS.to_owned(), logs)].into(),
            linux: Some(v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() }),
            ..Default::default()
        };
        let began = Instant::now();
        let request =
            v1::RunPodSandboxRequest { config: Some(self.config.clone()), runtime_handler: self.handler.clone() };
        let run = text(self.client.runtime.run_pod_sandbox(request).await).map(|pod| pod.pod_sandbox_id);
        let step = if with_user_namespace { "run pod with users" } else { "run pod" };
        self.pod = steps.record(step, began, run)?;
        Ok(())
    }

    /// Tries everything with one container.
    pub(super) async fn container(&mut self, steps: &mut Steps) -> Result<(), Failure> {
        let began = Instant::now();
        let created = self.create("sample", &["wait"], false).await;
        let Some(id) = steps.record("create", began, created)? else { return Ok(()) };
        let began = Instant::now();
        let started = self.start(&id).await;
        if steps.record("start", began, started)?.is_none() {
            return Ok(());
        }
        let began = Instant::now();
        let output = self.log_has("sample", &["output", "error output"]).await;
        steps.record("output", began, output)?;
        let began = Instant::now();
        let echoed = self.exec(&id, &["echo", "hello"], "hello\n", 0).await;
        steps.record("exec", began, echoed)?;
        let began = Instant::now();
        let exit = self.exec(&id, &["exit", "9"], "", 9).await;
        steps.record("exit code of an exec", began, exit)?;
        let began = Instant::now();
        let stats = self.stats(&id).await;
        steps.record("statistics", began, stats)?;
        let began = Instant::now();
        let update = self.update(&id).await;
        steps.record("update", began, update)?;
        let began = Instant::now();
        let stop = self.stop(&id).await;
        steps.record("stop, signal, exit code", began, stop)?;
        let began = Instant::now();
        let removed = self.client.runtime.remove_container(v1::RemoveContainerRequest { container_id: id }).await;
        steps.record("delete", began, text(removed))?;
        Ok(())
    }

    /// Tries a container with a terminal.
    pub(super) async fn terminal(&mut self, steps: &mut Steps) -> Result<(), Failure> {
        let began = Instant::now();
        let outcome = async {
            let id = self.create("terminal", &["terminal"], true).await?;
            self.start(&id).await?;
            self.log_has("terminal", &["terminal "]).await?;
            self.exited(&id, 0).await
        };
        let outcome = outcome.await;
        steps.record("terminal", began, outcome)?;
        Ok(())
    }

    /// Tries a container whose program is a WebAssembly module.
    pub(super) async fn module(&mut self, steps: &mut Steps) -> Result<(), Failure> {
        let began = Instant::now();
        let outcome = async {
            let id = self.create_with("module", &[MODULE], &[], false).await?;
            self.start(&id).await?;
            self.exited(&id, MODULE_EXIT).await
        };
        let outcome = outcome.await;
        steps.record("WebAssembly module", began, outcome)?;
        Ok(())
    }

    /// Tries a container in a user namespace.
    pub(super) async fn user_namespace(&mut self, steps: &mut Steps) -> Result<(), Failure> {
        let began = Instant::now();
        let outcome = async {
            let id = self.create("users", &["user-map"], false).await?;
            self.start(&id).await?;
            self.exited(&id, 0).await?;
            self.log_has("users", &[&USER_MAP.0.to_string()]).await
        };
        let outcome = outcome.await;
        steps.record("user namespace", began, outcome)?;
        Ok(())
    }

    /// Removes the pod with all its containers, and its logs.
    pub(super) async fn remove(&mut self, steps: &mut Steps) -> Result<(), Failure> {
        let Some(pod) = self.pod.take() else { return Ok(()) };
        let began = Instant::now();
        let removed = crate::command::rm::remove_pod(&mut self.client, &pod).await;
        steps.record("remove pod", began, removed.map_err(|failure| failure.line().trim().to_owned()))?;
        Ok(())
    }

    async fn create(&mut self, name: &str, words: &[&str], tty: bool) -> Result<String, String> {
        self.create_with(name, &[PROGRAM, "sample"], words, tty).await
    }

    async fn create_with(&mut self, name: &str, command: &[&str], words: &[&str], tty: bool) -> Result<String, String> {
        let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let security = v1::LinuxContainerSecurityContext {
            namespace_options: self.config.linux.as_ref().and_then(|linux| {
                linux.security_context.as_ref().and_then(|security| security.namespace_options.clone())
            }),
            masked_paths: paths(&DEFAULT_MASKED_PATHS),
            readonly_paths: paths(&DEFAULT_READONLY_PATHS),
            seccomp: Some(v1::SecurityProfile::default()),
            ..Default::default()
        };
        let resources = v1::LinuxContainerResources { memory_limit_in_bytes: MEMORY[0], ..Default::default() };
        let program = self.program.iter().map(|program| v1::Mount {
            host_path: program.display().to_string(),
            container_path: PROGRAM.to_owned(),
            readonly: true,
            ..Default::default()
        });
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: paths(command),
            args: paths(words),
            mounts: program.collect(),
            log_path: format!("{name}.log"),
            tty,
            linux: Some(v1::LinuxContainerConfig { resources: Some(resources), security_context: Some(security) }),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: self.pod.clone().unwrap_or_default(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        text(self.client.runtime.create_container(request).await).map(|created| created.container_id)
    }

    async fn start(&mut self, id: &str) -> Result<(), String> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        text(self.client.runtime.start_container(request).await).map(drop)
    }

    /// Waits until the log of a container contains these texts.
    async fn log_has(&self, name: &str, expected: &[&str]) -> Result<(), String> {
        let path = Path::new(&self.config.log_directory).join(format!("{name}.log"));
        let begin = Instant::now();
        loop {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let missing = expected.iter().find(|text| !log.contains(*text));
            match missing {
                None => return Ok(()),
                Some(text) if begin.elapsed() > PATIENCE => {
                    return Err(format!("{text:?} is not in its log, which is {log:?}"));
                }
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Executes the sample program in the container.
    async fn exec(&mut self, id: &str, words: &[&str], output: &str, code: i32) -> Result<(), String> {
        let cmd = [PROGRAM, "sample"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let timeout = i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX);
        let request = v1::ExecSyncRequest { container_id: id.to_owned(), cmd, timeout };
        let response = text(self.client.runtime.exec_sync(request).await)?;
        let stdout = String::from_utf8_lossy(&response.stdout);
        match (response.exit_code, &*stdout) == (code, output) {
            true => Ok(()),
            false => Err(format!("exit code {}, output {stdout:?}; expected {code}, {output:?}", response.exit_code)),
        }
    }

    async fn stats(&mut self, id: &str) -> Result<(), String> {
        let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
        let stats = text(self.client.runtime.container_stats(request).await)?.stats.unwrap_or_default();
        let memory = stats.memory.and_then(|memory| memory.usage_bytes).map_or(0, |usage| usage.value);
        let cpu = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds).map_or(0, |usage| usage.value);
        match memory > 0 && cpu > 0 {
            true => Ok(()),
            false => Err(format!("memory {memory} bytes, CPU time {cpu} ns")),
        }
    }

    /// Changes the memory limit, which the container itself then sees.
    async fn update(&mut self, id: &str) -> Result<(), String> {
        let resources = v1::LinuxContainerResources { memory_limit_in_bytes: MEMORY[1], ..Default::default() };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        text(self.client.runtime.update_container_resources(request).await)?;
        self.exec(id, &["memory-limit"], &format!("{}\n", MEMORY[1]), 0).await
    }

    /// Stops the container, whose program exits when it gets SIGTERM.
    async fn stop(&mut self, id: &str) -> Result<(), String> {
        let timeout = i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX);
        text(
            self.client.runtime.stop_container(v1::StopContainerRequest { container_id: id.to_owned(), timeout }).await,
        )?;
        self.log_has("sample", &["terminated"]).await?;
        self.exited(id, TERMINATED).await
    }

    /// Waits until the container has exited with this code.
    async fn exited(&mut self, id: &str, code: i32) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
            let status = text(self.client.runtime.container_status(request).await)?.status.unwrap_or_default();
            let has_exited = status.state() == v1::ContainerState::ContainerExited;
            match (has_exited, status.exit_code == code) {
                (true, true) => return Ok(()),
                (true, false) => return Err(format!("exit code {}, expected {code}", status.exit_code)),
                (false, _) if begin.elapsed() > PATIENCE => return Err("it does not exit".to_owned()),
                (false, _) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

fn namespaces(with_user_namespace: bool) -> v1::NamespaceOption {
    let map = || v1::IdMapping { container_id: 0, host_id: USER_MAP.0, length: USER_MAP.1 };
    let users = v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: vec![map()], gids: vec![map()] };
    v1::NamespaceOption {
        network: NamespaceMode::Pod.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
        userns_options: with_user_namespace.then_some(users),
        ..Default::default()
    }
}

/// Returns the message of a response, or the text of its error.
fn text<T>(response: Result<Response<T>, Status>) -> Result<T, String> {
    response.map(Response::into_inner).map_err(|status| status.message().to_owned())
}
