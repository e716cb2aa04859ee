use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message;

use crate::{
    address::Address,
    bootstrap::Bootstrap,
    error::{Error, ErrorKind},
    messages::{
        Any, CheckpointTaskRequest, CloseIoRequest, ConnectResponse, CreateTaskRequest, DeleteResponse, Empty,
        ExecProcessRequest, KillRequest, PidResponse, ProcessRequest, ResizePtyRequest, ShutdownRequest, StateResponse,
        StatsResponse, TaskRequest, TaskStatus, Timestamp, UpdateTaskRequest, WaitResponse,
    },
    options::Options,
};

/// How long a connection to a socket of this machine may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Type of a process specification as JSON.
const PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// Type of resources as JSON.
const RESOURCES: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
/// Largest exit code.
const CODE_MAX: u32 = 255;

/// A container of a shim ("task"), over a connection of its own. Dropping it closes the connection.
pub struct Task {
    connection: ttrpc::Connection,
    service: &'static str,
    id: String,
    timeout: Duration,
}

/// Paths of the FIFOs of a process; empty for a stream that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Whether it has a terminal, whose output is `stdout`.
    pub terminal: bool,
    /// Standard input.
    pub stdin: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A container to create. Its root file system is mounted in its bundle.
#[derive(Clone, Debug)]
pub struct CreateTask<'a> {
    /// Absolute path of the bundle.
    pub bundle: &'a str,
    /// Its streams.
    pub streams: Streams,
    /// Options of the shim.
    pub options: Option<&'a Options>,
}

/// A process to execute in a container.
#[derive(Clone, Debug)]
pub struct ExecTask<'a> {
    /// Its id, unique in the container.
    pub id: &'a str,
    /// Its streams.
    pub streams: Streams,
    /// The process of the runtime specification, as JSON.
    pub process: Vec<u8>,
}

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, 128 + signal for a killed process.
    pub code: i32,
    /// Time of the exit in nanoseconds since the epoch; 0 if it is unknown.
    pub at: u64,
}

/// Status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It waits for `Start`.
    Created,
    /// It is running, or paused.
    Running,
    /// It exited.
    Stopped(Exit),
    /// The shim does not know.
    Unknown,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The pid that the shim reports; 0 if it reports none.
    pub pid: u32,
    /// Its status.
    pub status: Status,
}

impl Exit {
    /// Converts an exit status. A time in the future is unknown.
    pub(crate) fn new(status: u32, exited_at: Option<&Timestamp>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since_epoch = |at: &Timestamp| {
            let whole = Duration::from_secs(u64::try_from(at.seconds).ok()?);
            whole.checked_add(Duration::from_nanos(u64::try_from(at.nanos).ok()?))
        };
        let at = exited_at.and_then(since_epoch).filter(|at| *at <= now).unwrap_or_default();
        let code = i32::try_from(status.min(CODE_MAX)).unwrap_or(i32::MAX);
        Self { code, at: u64::try_from(at.as_nanos()).unwrap_or(0) }
    }
}

impl Task {
    /// Connects to a shim for this container. `timeout` is the time limit of each call but [`Task::wait`].
    ///
    /// # Errors
    /// `Gone` if no shim serves at the address, `Timeout`.
    pub async fn connect(bootstrap: &Bootstrap, id: &str, timeout: Duration) -> Result<Self, Error> {
        let operation = || format!("connect to the shim of container {id} at {}", bootstrap.address);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, bootstrap.address.connect()).await;
        let socket = connected
            .map_err(|_| Error::new(ErrorKind::Timeout, operation(), "it does not accept connections"))?
            .map_err(|error| Error::new(ErrorKind::Gone, operation(), error))?;
        Ok(Self {
            connection: ttrpc::connect(socket, ttrpc::refuse_all()),
            service: bootstrap.service(),
            id: id.to_owned(),
            timeout,
        })
    }

    /// Whether the connection is closed, because the shim died or does not keep to the protocol.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Creates the container. Returns the pid of its first process, as the shim reports it.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn create(&self, create: &CreateTask<'_>) -> Result<u32, Error> {
        let Streams { terminal, stdin, stdout, stderr } = create.streams.clone();
        let request = CreateTaskRequest {
            id: self.id.clone(),
            bundle: create.bundle.to_owned(),
            terminal,
            stdin,
            stdout,
            stderr,
            options: create.options.map(Options::to_any),
        };
        self.call::<PidResponse>("Create", "", &request).await.map(|response| response.pid)
    }

    /// Starts the container, or the process with this id in it. Returns its pid, as the shim reports it.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn start(&self, exec: &str) -> Result<u32, Error> {
        self.call::<PidResponse>("Start", exec, &self.process(exec)).await.map(|response| response.pid)
    }

    /// Returns the state of the container, or of the process with this id in it.
    ///
    /// # Errors
    /// `NotFound` if the shim does not know it, and the others of [`ErrorKind`].
    pub async fn state(&self, exec: &str) -> Result<State, Error> {
        let StateResponse { pid, status, exit_status, exited_at } =
            self.call("State", exec, &self.process(exec)).await?;
        let status = match TaskStatus::try_from(status).unwrap_or(TaskStatus::Unknown) {
            TaskStatus::Created => Status::Created,
            TaskStatus::Running | TaskStatus::Paused | TaskStatus::Pausing => Status::Running,
            TaskStatus::Stopped => Status::Stopped(Exit::new(exit_status, exited_at.as_ref())),
            TaskStatus::Unknown => Status::Unknown,
        };
        Ok(State { pid, status })
    }

    /// Waits until the container, or the process with this id in it, has exited, however long that takes.
    ///
    /// # Errors
    /// `NotFound` if the shim does not know it, and the others of [`ErrorKind`].
    pub async fn wait(&self, exec: &str) -> Result<Exit, Error> {
        let response: WaitResponse = self.call_for("Wait", exec, &self.process(exec), None).await?;
        Ok(Exit::new(response.exit_status, response.exited_at.as_ref()))
    }

    /// Has the shim forget an exited container or process. All its output is in its FIFOs afterwards.
    ///
    /// # Errors
    /// `NotFound` if the shim does not know it, `State` if it is running, and the others of [`ErrorKind`].
    pub async fn delete(&self, exec: &str) -> Result<Exit, Error> {
        let response: DeleteResponse = self.call("Delete", exec, &self.process(exec)).await?;
        Ok(Exit::new(response.exit_status, response.exited_at.as_ref()))
    }

    /// Sends a signal to the first process of the container, to all of its processes, or to the process with this id.
    ///
    /// # Errors
    /// `NotFound` if it has exited, and the others of [`ErrorKind`].
    pub async fn kill(&self, exec: &str, signal: i32, all: bool) -> Result<(), Error> {
        let signal = signal.unsigned_abs();
        let request = KillRequest { id: self.id.clone(), exec_id: exec.to_owned(), signal, all };
        self.call::<Empty>("Kill", exec, &request).await.map(drop)
    }

    /// Prepares a process in the container, which [`Task::start`] then starts.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn exec(&self, exec: ExecTask<'_>) -> Result<(), Error> {
        let Streams { terminal, stdin, stdout, stderr } = exec.streams;
        let request = ExecProcessRequest {
            id: self.id.clone(),
            exec_id: exec.id.to_owned(),
            terminal,
            stdin,
            stdout,
            stderr,
            spec: Some(Any { type_url: PROCESS.to_owned(), value: exec.process }),
        };
        self.call::<Empty>("Exec", exec.id, &request).await.map(drop)
    }

    /// Changes the size of a terminal.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn resize(&self, exec: &str, width: u16, height: u16) -> Result<(), Error> {
        let (width, height) = (width.into(), height.into());
        let request = ResizePtyRequest { id: self.id.clone(), exec_id: exec.to_owned(), width, height };
        self.call::<Empty>("ResizePty", exec, &request).await.map(drop)
    }

    /// Closes the end of standard input that the shim keeps open.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn close_stdin(&self, exec: &str) -> Result<(), Error> {
        let request = CloseIoRequest { id: self.id.clone(), exec_id: exec.to_owned(), stdin: true };
        self.call::<Empty>("CloseIO", exec, &request).await.map(drop)
    }

    /// Changes the limits of the container: resources of the runtime specification, as JSON.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn update(&self, resources: Vec<u8>) -> Result<(), Error> {
        let resources = Some(Any { type_url: RESOURCES.to_owned(), value: resources });
        self.call::<Empty>("Update", "", &UpdateTaskRequest { id: self.id.clone(), resources }).await.map(drop)
    }

    /// Pauses all processes of the container.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn pause(&self) -> Result<(), Error> {
        self.call::<Empty>("Pause", "", &self.task()).await.map(drop)
    }

    /// Continues a paused container.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn resume(&self) -> Result<(), Error> {
        self.call::<Empty>("Resume", "", &self.task()).await.map(drop)
    }

    /// Writes the state of the container into a directory.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn checkpoint(&self, directory: &str) -> Result<(), Error> {
        let request = CheckpointTaskRequest { id: self.id.clone(), path: directory.to_owned(), options: None };
        self.call::<Empty>("Checkpoint", "", &request).await.map(drop)
    }

    /// Returns the measurements of the container: the name of their type, and the encoded message.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn stats(&self) -> Result<(String, Vec<u8>), Error> {
        let response: StatsResponse = self.call("Stats", "", &self.task()).await?;
        let Any { type_url, value } = response.stats.unwrap_or_default();
        Ok((type_url, value))
    }

    /// Returns the pid of the shim, as it reports it.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn shim_pid(&self) -> Result<u32, Error> {
        self.call::<ConnectResponse>("Connect", "", &self.task()).await.map(|response| response.shim_pid)
    }

    /// Has the shim exit, unless it has other containers.
    ///
    /// # Errors
    /// Those of [`ErrorKind`].
    pub async fn shutdown(&self) -> Result<(), Error> {
        let request = ShutdownRequest { id: self.id.clone(), now: false };
        match self.call::<Empty>("Shutdown", "", &request).await {
            // It exits before it answers.
            Err(Error { kind: ErrorKind::Gone, .. }) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn task(&self) -> TaskRequest {
        TaskRequest { id: self.id.clone() }
    }

    fn process(&self, exec: &str) -> ProcessRequest {
        ProcessRequest { id: self.id.clone(), exec_id: exec.to_owned() }
    }

    async fn call<Answer: Message + Default>(
        &self,
        method: &str,
        exec: &str,
        request: &impl Message,
    ) -> Result<Answer, Error> {
        self.call_for(method, exec, request, Some(self.timeout)).await
    }

    async fn call_for<Answer: Message + Default>(
        &self,
        method: &str,
        exec: &str,
        request: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<Answer, Error> {
        let operation = || match exec.is_empty() {
            true => format!("{method} of the shim for container {}", self.id),
            false => format!("{method} of the shim for process {exec} of container {}", self.id),
        };
        let answer = self.connection.call(self.service, method, request, timeout).await;
        let answer = answer.map_err(|error| Error::call(operation(), &error))?;
        Answer::decode(&*answer).map_err(|error| Error::new(ErrorKind::Protocol, operation(), error))
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("id", &self.id).field("service", &self.service).finish_non_exhaustive()
    }
}

impl Address {
    /// Whether a shim accepts connections at the address.
    pub async fn is_served(&self) -> bool {
        matches!(tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await, Ok(Ok(_)))
    }
}
