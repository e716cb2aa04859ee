//! `pinion-bench netns-server`: an echo server in many namespaces, built in one of several ways.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use netns::{EventLoop, Interest, Key, Namespace, NsId, ThreadGuard};
use rustix::{
    fd::{AsFd, BorrowedFd},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use super::{
    plan::{PORT, Strategy, name, pins, use_processors},
    vrf,
};
use crate::engine::Failure;

/// Arguments of `pinion-bench netns-server`.
#[derive(clap::Args)]
pub(crate) struct ServerArguments {
    #[arg(long)]
    strategy: Strategy,
    /// Number of the first namespace.
    #[arg(long, default_value_t = 0)]
    first: usize,
    #[arg(long)]
    count: usize,
    /// Use the processors that the caller chose.
    #[arg(long)]
    inherit_processors: bool,
}

/// A socket of the server.
#[derive(Debug)]
enum Socket {
    Listener(TcpListener),
    Stream(TcpStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Stream(stream) => stream.as_fd(),
        }
    }
}

/// How an event loop gets into the namespace of an event.
enum Switch<'a> {
    None,
    Always(&'a [Namespace]),
    Cached(&'a ThreadGuard, &'a [Namespace]),
}

/// Serves until standard input ends. Prints `listening <microseconds>` when all namespaces listen, counted from its own
/// start, and the pids of its children.
pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let begin = Instant::now();
    let processors = if arguments.inherit_processors { 1 } else { use_processors(true)? };
    let count = if arguments.strategy == Strategy::One { 1 } else { arguments.count };
    if arguments.strategy == Strategy::Processes {
        return run_processes(begin, count);
    }
    let pins = pins()?;
    if arguments.strategy == Strategy::Vrf {
        let listeners = listen_in_vrfs(&pins.pins().get(vrf::NAMESPACE)?, count)?;
        println!("listening {}", begin.elapsed().as_micros());
        start(move || serve(listeners, &Switch::None))?;
        wait_for_the_end();
        return Ok(());
    }
    let numbers = arguments.first..arguments.first + count;
    let open = numbers.map(|number| pins.pins().get(&name(number))).collect::<Result<Vec<Namespace>, _>>();
    let namespaces = open?;
    let listeners = listen(&namespaces)?;
    println!("listening {}", begin.elapsed().as_micros());
    match arguments.strategy {
        Strategy::Setns => start(move || serve(listeners, &Switch::Always(&namespaces)))?,
        Strategy::Cached => start(move || {
            let guard = ThreadGuard::new()?;
            serve(listeners, &Switch::Cached(&guard, &namespaces))
        })?,
        Strategy::Threads => {
            for listener in listeners {
                start(move || serve(vec![listener], &Switch::None))?;
            }
        }
        Strategy::Sharded => {
            let mut shards: Vec<Vec<(NsId, TcpListener)>> = (0..processors).map(|_| Vec::new()).collect();
            for (number, listener) in listeners.into_iter().enumerate() {
                shards[number % processors].push(listener);
            }
            for shard in shards {
                start(move || serve(shard, &Switch::None))?;
            }
        }
        Strategy::One | Strategy::NoSwitch | Strategy::Processes | Strategy::Vrf => {
            start(move || serve(listeners, &Switch::None))?
        }
    }
    wait_for_the_end();
    Ok(())
}

/// Starts a server for each namespace.
fn run_processes(begin: Instant, count: usize) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure(format!("start a server: {e}"));
    let mut children: Vec<Child> = Vec::new();
    for number in 0..count {
        let mut command = Command::new("/proc/self/exe");
        command.args(["netns-server", "--strategy", "no-switch", "--count", "1", "--inherit-processors"]);
        command.args(["--first", &number.to_string()]);
        children.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail)?);
    }
    for child in &mut children {
        let mut line = [0; 9];
        let output = child.stdout.as_mut().ok_or_else(|| Failure("a server has no output".to_owned()))?;
        output.read_exact(&mut line).map_err(fail)?;
    }
    let pids: Vec<String> = children.iter().map(|child| child.id().to_string()).collect();
    println!("listening {} {}", begin.elapsed().as_micros(), pids.join(" "));
    wait_for_the_end();
    for mut child in children {
        // They end with their input.
        drop(child.stdin.take());
        child.wait().map_err(fail)?;
    }
    Ok(())
}

fn wait_for_the_end() {
    // The other end is closed, or the parent is dead: the end in both cases.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn start(serve: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let report = move || {
        if let Err(error) = serve() {
            eprintln!("pinion-bench netns-server: {error}");
        }
    };
    // Small stacks: there may be a thread for each namespace.
    let builder = thread::Builder::new().stack_size(64 * 1024);
    builder.spawn(report).map(drop).map_err(|e| Failure(format!("start a thread: {e}")))
}

/// Listens in all namespaces: on one thread, which switches, without a hop to a helper thread for each.
fn listen(namespaces: &[Namespace]) -> Result<Vec<(NsId, TcpListener)>, Failure> {
    let fail = |e: std::io::Error| Failure(format!("listen: {e}"));
    let guard = ThreadGuard::new()?;
    let mut listeners = Vec::with_capacity(namespaces.len());
    for namespace in namespaces {
        guard.switch(namespace)?;
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        listeners.push((namespace.id()?, listener));
    }
    Ok(listeners)
}

fn listen_in_vrfs(namespace: &Namespace, count: usize) -> Result<Vec<(NsId, TcpListener)>, Failure> {
    let fail = |e: std::io::Error| Failure(format!("listen in a VRF: {e}"));
    let (guard, id) = (ThreadGuard::new()?, namespace.id()?);
    guard.switch(namespace)?;
    let mut listeners = Vec::with_capacity(count);
    for number in 0..count {
        let listener = vrf::listener(number).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        listeners.push((id, listener));
    }
    Ok(listeners)
}

fn serve(listeners: Vec<(NsId, TcpListener)>, switch: &Switch<'_>) -> Result<(), Failure> {
    let (mut events, mut ready, mut buffer) = (EventLoop::new()?, Vec::new(), [0; 4096]);
    // Ids of namespaces are far apart: the position of a namespace is looked up.
    let positions: std::collections::HashMap<NsId, usize> =
        listeners.iter().enumerate().map(|(position, (id, _))| (*id, position)).collect();
    for (id, listener) in listeners {
        events.add(id, Socket::Listener(listener), Interest::Read)?;
    }
    loop {
        events.wait(&mut ready, None)?;
        for ready in &ready {
            let Some((id, _)) = events.get_mut(ready.key) else { continue };
            match switch {
                Switch::None => {}
                Switch::Always(namespaces) => {
                    move_into_link_name_space(namespaces[positions[&id]].as_fd(), Some(LinkNameSpaceType::Network))
                        .map_err(|e| Failure(format!("setns: {e}")))?;
                }
                Switch::Cached(guard, namespaces) => drop(guard.switch(&namespaces[positions[&id]])?),
            }
            handle(&mut events, ready.key, &mut buffer)?;
        }
    }
}

fn handle(events: &mut EventLoop<Socket>, key: Key, buffer: &mut [u8]) -> Result<(), Failure> {
    let Some((id, socket)) = events.get_mut(key) else { return Ok(()) };
    match socket {
        Socket::Stream(stream) => {
            let echoed = match stream.read(buffer) {
                Ok(0) => false,
                // Requests are shorter than the buffer of a socket.
                Ok(length) => stream.write_all(&buffer[..length]).is_ok(),
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
            if !echoed {
                events.remove(key);
            }
        }
        Socket::Listener(listener) => {
            // One connection for each event: level-triggered.
            if let Ok((stream, _)) = listener.accept() {
                let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
                ready.map_err(|e| Failure(format!("accept: {e}")))?;
                events.add(id, Socket::Stream(stream), Interest::Read)?;
            }
        }
    }
    Ok(())
}

/// Returns the PSS of a process in KiB, and its number of threads; zero if it is gone.
pub(super) fn memory(pid: u32) -> (u64, u64) {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{path}")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    (field("smaps_rollup", "Pss:"), field("status", "Threads:"))
}

/// Returns the time that the threads of a process were on a processor, to the nanosecond: the ticks of `/proc/<pid>/stat` are
/// coarser than what each of many processes takes in a second.
pub(super) fn processor_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}
