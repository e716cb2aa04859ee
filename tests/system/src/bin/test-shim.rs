//! A containerd shim for tests, with real processes. `TEST_SHIM="MODE CALL"` makes it misbehave in one call: a command
//! (`start`, `delete`) or a method of the task service.
//!
//! | mode | |
//! |---|---|
//! | `hang` | never answers |
//! | `die` | exits, and leaves its processes running |
//! | `refuse` | answers with an error |
//! | `garbage` | answers with bytes that are not a message |
//! | `lie` | answers that all is well, and does nothing; or names pids that are none of its own |
//!
//! A container is its program in a chroot, without namespaces and without a cgroup.

use std::{
    collections::HashMap,
    env,
    error::Error,
    fs,
    io::Write,
    os::fd::OwnedFd,
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    process::{self, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use prost::Message;
use tokio::{net::UnixListener, sync::watch};
use ttrpc::{Request, Service, Status};

type Outcome = Result<(), Box<dyn Error>>;

/// The fields of requests that matter here: ids in the order of the protocol.
#[derive(Clone, PartialEq, Message)]
struct Ids {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    exec: String,
}

#[derive(Clone, PartialEq, Message)]
struct Create {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    bundle: String,
    #[prost(string, tag = "6")]
    stdout: String,
    #[prost(string, tag = "7")]
    stderr: String,
}

#[derive(Clone, PartialEq, Message)]
struct Exec {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    exec: String,
    #[prost(string, tag = "5")]
    stdout: String,
    #[prost(string, tag = "6")]
    stderr: String,
    #[prost(message, optional, tag = "7")]
    spec: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Kill {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    exec: String,
    #[prost(uint32, tag = "3")]
    signal: u32,
}

/// Answer to `Create`, `Start` and `Connect`.
#[derive(Clone, PartialEq, Message)]
struct Pid {
    #[prost(uint32, tag = "1")]
    pid: u32,
}

/// Answer to `Wait`.
#[derive(Clone, PartialEq, Message)]
struct Waited {
    #[prost(uint32, tag = "1")]
    exit_status: u32,
}

/// Answer to `Delete`, and of the command `delete`.
#[derive(Clone, PartialEq, Message)]
struct Deleted {
    #[prost(uint32, tag = "1")]
    pid: u32,
    #[prost(uint32, tag = "2")]
    exit_status: u32,
}

/// Output of the command `-info`.
#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "4")]
    features: Option<Features>,
}

/// `google.protobuf.Any` with features as JSON.
#[derive(Clone, PartialEq, Message)]
struct Features {
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct State {
    #[prost(uint32, tag = "3")]
    pid: u32,
    #[prost(int32, tag = "4")]
    status: i32,
    #[prost(uint32, tag = "9")]
    exit_status: u32,
}

/// How it misbehaves, and in which call.
#[derive(Clone, Default)]
struct Misbehaviour {
    mode: String,
    call: String,
}

impl Misbehaviour {
    fn read() -> Self {
        let text = env::var("TEST_SHIM").unwrap_or_default();
        let (mode, call) = text.split_once(' ').unwrap_or_default();
        Self { mode: mode.to_owned(), call: call.to_owned() }
    }

    /// Returns the mode of a call; empty: it works.
    fn mode_of(&self, call: &str) -> &str {
        if self.call == call { &self.mode } else { "" }
    }
}

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().collect();
    let misbehaviour = Misbehaviour::read();
    let verb = arguments.last().map(String::as_str).unwrap_or_default();
    let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1).cloned();
    match verb {
        "start" => start(&after("-id").ok_or("no id")?, misbehaviour.mode_of("start")),
        "delete" => delete(misbehaviour.mode_of("delete")),
        "-info" => info(misbehaviour.mode_of("info")),
        _ => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?
            .block_on(serve(misbehaviour)),
    }
}

/// Carries out the mode of a command. Returns whether the command is over.
fn misbehave(mode: &str) -> bool {
    match mode {
        "hang" => std::thread::sleep(Duration::from_secs(1000)),
        "die" => process::exit(3),
        "refuse" => {
            eprintln!("the test shim refuses");
            process::exit(1);
        }
        "garbage" => drop(std::io::stdout().write_all(&[0xff; 100])),
        "lie" => drop(std::io::stdout().write_all(b"unix:///no/such/socket")),
        _ => return false,
    }
    true
}

fn start(id: &str, mode: &str) -> Outcome {
    let events = PathBuf::from(env::var("TTRPC_ADDRESS")?);
    let socket = events.with_file_name(format!("test-shim-{}", &id[..16]));
    let listener = StdListener::bind(&socket)?;
    process::Command::new(env::current_exe()?)
        .arg("serve")
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Whatever happens now, the shim is running.
    if !misbehave(mode) {
        print!("unix://{}", socket.display());
    }
    Ok(())
}

fn delete(mode: &str) -> Outcome {
    if !misbehave(mode) {
        std::io::stdout().write_all(&Deleted { pid: 0, exit_status: 137 }.encode_to_vec())?;
    }
    Ok(())
}

fn info(mode: &str) -> Outcome {
    if !misbehave(mode) {
        let value = br#"{"ociVersionMin": "1.0.0", "ociVersionMax": "1.3.0", "mountOptions": ["rro"]}"#.to_vec();
        let info = Info { name: "io.example.test.v1".to_owned(), features: Some(Features { value }) };
        std::io::stdout().write_all(&info.encode_to_vec())?;
    }
    Ok(())
}

/// A process of a container.
#[derive(Clone)]
struct Process {
    arguments: Vec<String>,
    root: PathBuf,
    stdout: String,
    stderr: String,
    pid: u32,
    /// Its exit status.
    exit: watch::Sender<Option<u32>>,
}

#[derive(Clone, Default)]
struct Shim {
    misbehaviour: Misbehaviour,
    processes: Arc<Mutex<HashMap<(String, String), Process>>>,
}

async fn serve(misbehaviour: Misbehaviour) -> Outcome {
    let listener = StdListener::from(rustix::io::dup(std::io::stdin())?);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let shim = Shim { misbehaviour, ..Shim::default() };
    loop {
        let (socket, _) = listener.accept().await?;
        let connection = ttrpc::connect(socket, shim.service());
        tokio::spawn(async move { connection.closed().await });
    }
}

fn refused(message: &str) -> Status {
    Status { code: 2, message: message.to_owned() }
}

impl Shim {
    fn service(&self) -> Service {
        let shim = self.clone();
        Arc::new(move |request: Request| {
            let shim = shim.clone();
            Box::pin(async move {
                match shim.misbehaviour.mode_of(&request.method) {
                    "hang" => std::future::pending().await,
                    "die" => process::exit(3),
                    "refuse" => Err(refused("the test shim refuses")),
                    "garbage" => Ok(vec![0xff; 100]),
                    "lie" => Ok(lie(&request.method)),
                    _ => shim.handle(&request).await,
                }
            })
        })
    }

    async fn handle(&self, request: &Request) -> Result<Vec<u8>, Status> {
        let payload = &*request.payload;
        let malformed = |error: prost::DecodeError| refused(&error.to_string());
        match request.method.as_str() {
            "Create" => self.create(Create::decode(payload).map_err(malformed)?),
            "Exec" => self.exec(Exec::decode(payload).map_err(malformed)?),
            "Start" => self.start(&Ids::decode(payload).map_err(malformed)?),
            "Kill" => self.kill(&Kill::decode(payload).map_err(malformed)?),
            "Wait" => self.wait(&Ids::decode(payload).map_err(malformed)?).await,
            "State" => {
                let process = self.find(&Ids::decode(payload).map_err(malformed)?)?;
                let exit = *process.exit.borrow();
                let status = if exit.is_some() {
                    3
                } else if process.pid == 0 {
                    1
                } else {
                    2
                };
                Ok(State { pid: process.pid, status, exit_status: exit.unwrap_or(0) }.encode_to_vec())
            }
            "Delete" => {
                let ids = Ids::decode(payload).map_err(malformed)?;
                let process = self.find(&ids)?;
                self.processes.lock().expect("not poisoned").remove(&(ids.id, ids.exec));
                let exit_status = process.exit.borrow().unwrap_or(137);
                Ok(Deleted { pid: process.pid, exit_status }.encode_to_vec())
            }
            "Connect" => Ok(Pid { pid: process::id() }.encode_to_vec()),
            "Shutdown" => process::exit(0),
            "Update" | "CloseIO" | "ResizePty" => Ok(Vec::new()),
            other => Err(Status { code: ttrpc::code::UNIMPLEMENTED, message: other.to_owned() }),
        }
    }

    fn find(&self, ids: &Ids) -> Result<Process, Status> {
        let processes = self.processes.lock().expect("not poisoned");
        let process = processes.get(&(ids.id.clone(), ids.exec.clone())).cloned();
        process.ok_or_else(|| Status { code: ttrpc::code::NOT_FOUND, message: format!("no process {ids:?}") })
    }

    fn add(&self, ids: (String, String), process: Process) -> Vec<u8> {
        self.processes.lock().expect("not poisoned").insert(ids, process);
        Vec::new()
    }

    fn create(&self, create: Create) -> Result<Vec<u8>, Status> {
        let config = fs::read_to_string(Path::new(&create.bundle).join("config.json"));
        let config = config.map_err(|error| refused(&error.to_string()))?;
        let root = Path::new(&create.bundle).join("rootfs");
        let process = process(&config, "process", root, create.stdout, create.stderr)?;
        Ok(self.add((create.id, String::new()), process))
    }

    fn exec(&self, exec: Exec) -> Result<Vec<u8>, Status> {
        let spec = String::from_utf8(exec.spec.unwrap_or_default().value).unwrap_or_default();
        let root = self.find(&Ids { id: exec.id.clone(), exec: String::new() })?.root;
        let process = process(&spec, "", root, exec.stdout, exec.stderr)?;
        Ok(self.add((exec.id, exec.exec), process))
    }

    fn start(&self, ids: &Ids) -> Result<Vec<u8>, Status> {
        let mut process = self.find(ids)?;
        let output = |path: &str| match path.is_empty() {
            true => Stdio::null(),
            // In both directions, as others do: the reader may die and come back.
            false => fs::File::options().read(true).write(true).open(path).map_or_else(|_| Stdio::null(), Stdio::from),
        };
        let mut command = tokio::process::Command::new("chroot");
        command.arg(&process.root).args(&process.arguments).stdin(Stdio::null());
        let spawned = command.stdout(output(&process.stdout)).stderr(output(&process.stderr)).spawn();
        let mut child = spawned.map_err(|error| refused(&error.to_string()))?;
        process.pid = child.id().unwrap_or(0);
        let (exit, pid) = (process.exit.clone(), process.pid);
        self.add((ids.id.clone(), ids.exec.clone()), process);
        tokio::spawn(async move {
            let status = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(137);
            exit.send_replace(Some(status.unsigned_abs()));
        });
        Ok(Pid { pid }.encode_to_vec())
    }

    fn kill(&self, kill: &Kill) -> Result<Vec<u8>, Status> {
        let process = self.find(&Ids { id: kill.id.clone(), exec: kill.exec.clone() })?;
        match rustix::process::Pid::from_raw(process.pid.cast_signed()) {
            // Not started: it is over.
            None => drop(process.exit.send_replace(Some(128 + kill.signal))),
            Some(pid) => {
                let signal = rustix::process::Signal::from_named_raw(kill.signal.cast_signed());
                let _ = rustix::process::kill_process(pid, signal.unwrap_or(rustix::process::Signal::KILL));
            }
        }
        Ok(Vec::new())
    }

    async fn wait(&self, ids: &Ids) -> Result<Vec<u8>, Status> {
        let mut exit = self.find(ids)?.exit.subscribe();
        let exited = exit.wait_for(Option::is_some).await.map_err(|error| refused(&error.to_string()))?;
        Ok(Waited { exit_status: exited.unwrap_or(255) }.encode_to_vec())
    }
}

/// Parses a process of the runtime specification: at `key`, or the whole text.
fn process(text: &str, key: &str, root: PathBuf, stdout: String, stderr: String) -> Result<Process, Status> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| refused(&error.to_string()))?;
    let value = if key.is_empty() { &value } else { &value[key] };
    let arguments = value["args"].as_array().into_iter().flatten();
    let arguments = arguments.filter_map(|argument| argument.as_str().map(str::to_owned)).collect();
    Ok(Process { arguments, root, stdout, stderr, pid: 0, exit: watch::Sender::new(None) })
}

/// Answers as if all was well. The pids are those of the node's init.
fn lie(method: &str) -> Vec<u8> {
    match method {
        "Create" | "Start" | "Connect" => Pid { pid: 1 }.encode_to_vec(),
        "Wait" => Waited { exit_status: u32::MAX }.encode_to_vec(),
        "State" => State { pid: 1, status: 77, exit_status: 5 }.encode_to_vec(),
        "Delete" => Deleted { pid: 1, exit_status: 5 }.encode_to_vec(),
        _ => Vec::new(),
    }
}
