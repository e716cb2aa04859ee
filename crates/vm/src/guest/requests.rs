//! The requests, one function each.

use agent_api::{
    Capacity, Configuration, CreateContainer, Exec, Exit, ProcessId, ProcessState, Reply, Request, Statistics,
};

use super::{Error, ErrorKind, Guest};

/// Returns how errors name a process.
fn name(process: &ProcessId) -> String {
    match &process.exec {
        None => format!("container {} in the guest", process.container),
        Some(exec) => format!("process {exec} of container {} in the guest", process.container),
    }
}

impl Guest {
    async fn request(&self, operation: String, request: Request) -> Result<Reply, Error> {
        match self.connection.call(request, Some(self.timeout)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(failure)) => Err(Error::refused(operation, failure)),
            Err(error) => Err(error.during(operation)),
        }
    }

    async fn request_done(&self, operation: String, request: Request) -> Result<(), Error> {
        match self.request(operation.clone(), request).await? {
            Reply::Done => Ok(()),
            _ => Err(unexpected(operation)),
        }
    }

    /// Returns when the agent has answered.
    ///
    /// # Errors
    /// Those of [`ErrorKind`], here and below.
    pub async fn ping(&self) -> Result<(), Error> {
        self.request_done("ping the guest".to_owned(), Request::Ping).await
    }

    /// Prepares the guest for its pod.
    pub async fn configure(&self, configuration: Configuration) -> Result<(), Error> {
        self.request_done("configure the guest".to_owned(), Request::Configure(Box::new(configuration))).await
    }

    /// Creates a container, which waits for its start then.
    pub async fn create(&self, container: CreateContainer) -> Result<(), Error> {
        let operation = format!("create {}", name(&ProcessId::container(&container.id)));
        self.request_done(operation, Request::Create(Box::new(container))).await
    }

    /// Starts the program of a container.
    pub async fn start(&self, container: &str) -> Result<(), Error> {
        let operation = format!("start {}", name(&ProcessId::container(container)));
        self.request_done(operation, Request::Start { container: container.to_owned() }).await
    }

    /// Executes a process in a container.
    pub async fn exec(&self, exec: Exec) -> Result<(), Error> {
        let operation = format!("start {}", name(&ProcessId::exec(&exec.container, &exec.id)));
        self.request_done(operation, Request::Exec(Box::new(exec))).await
    }

    /// Sends a signal to a process; with `all`, to all processes of its container, or to all of its descendants.
    pub async fn signal(&self, process: &ProcessId, signal: i32, all: bool) -> Result<(), Error> {
        let operation = format!("signal {}", name(process));
        self.request_done(operation, Request::Signal { process: process.clone(), signal, all }).await
    }

    /// Changes the size of the terminal of a process.
    pub async fn resize(&self, process: &ProcessId, size: oci::TerminalSize) -> Result<(), Error> {
        let operation = format!("resize the terminal of {}", name(process));
        self.request_done(operation, Request::Resize { process: process.clone(), size }).await
    }

    /// Returns the state of a process.
    pub async fn state(&self, process: &ProcessId) -> Result<ProcessState, Error> {
        let operation = format!("get the state of {}", name(process));
        match self.request(operation.clone(), Request::State { process: process.clone() }).await? {
            Reply::State(state) => Ok(state),
            _ => Err(unexpected(operation)),
        }
    }

    /// Waits for the exit of a process, however long that takes. The guest has sent all of its output then.
    pub async fn wait(&self, process: &ProcessId) -> Result<Exit, Error> {
        let operation = format!("wait for {}", name(process));
        let answer = self.connection.call(Request::Wait { process: process.clone() }, None).await;
        match answer.map_err(|error| error.during(&operation))? {
            Ok(Reply::Exited(exit)) => Ok(exit),
            Ok(_) => Err(unexpected(operation)),
            Err(failure) => Err(Error::refused(operation, failure)),
        }
    }

    /// Has the agent kill and forget a process. Succeeds for one that it does not know.
    pub async fn delete(&self, process: &ProcessId) -> Result<(), Error> {
        let operation = format!("delete {}", name(process));
        self.request_done(operation, Request::Delete { process: process.clone() }).await
    }

    /// Changes the limits of a container.
    pub async fn update(&self, container: &str, resources: oci::Resources) -> Result<(), Error> {
        let operation = format!("update {}", name(&ProcessId::container(container)));
        let request = Request::Update { container: container.to_owned(), resources: Box::new(resources) };
        self.request_done(operation, request).await
    }

    /// Freezes or thaws a container.
    pub async fn freeze(&self, container: &str, frozen: bool) -> Result<(), Error> {
        let operation = format!("freeze {}", name(&ProcessId::container(container)));
        self.request_done(operation, Request::Freeze { container: container.to_owned(), frozen }).await
    }

    /// Returns the usage of a container.
    pub async fn statistics(&self, container: &str) -> Result<Statistics, Error> {
        let operation = format!("get the statistics of {}", name(&ProcessId::container(container)));
        match self.request(operation.clone(), Request::Statistics { container: container.to_owned() }).await? {
            Reply::Statistics(statistics) => Ok(statistics),
            _ => Err(unexpected(operation)),
        }
    }

    /// Connects a virtio-serial port with a TCP port on the loopback device of the guest, in [chunks](agent_api::chunk).
    pub async fn forward(&self, port: u16, stream: &str) -> Result<(), Error> {
        let operation = format!("connect to port {port} of the guest");
        self.request_done(operation, Request::Forward { port, stream: stream.to_owned() }).await
    }

    /// Sets the processors and the memory online that were added, and returns what the guest has.
    pub async fn online(&self) -> Result<Capacity, Error> {
        let operation = "set processors and memory of the guest online".to_owned();
        match self.request(operation.clone(), Request::Online).await? {
            Reply::Capacity(capacity) => Ok(capacity),
            _ => Err(unexpected(operation)),
        }
    }

    /// Has the guest power itself off. Returns when the connection has closed.
    pub async fn shut_down(&self) -> Result<(), Error> {
        match self.connection.call(Request::Shutdown, Some(self.timeout)).await {
            Err(error) if error.kind == ErrorKind::Gone => Ok(()),
            Err(error) => Err(error.during("shut the guest down")),
            Ok(_) => Err(unexpected("shut the guest down".to_owned())),
        }
    }
}

fn unexpected(operation: String) -> Error {
    Error::new(ErrorKind::Protocol, operation, "the agent in the guest answered something else")
}
