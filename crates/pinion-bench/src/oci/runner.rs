//! The process that starts runtimes: small, of one thread, in a mount namespace of its own, so that every runtime is
//! started alike and from memory that costs nothing to copy. One request a line on standard input, one answer a line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    process::Pid,
};
use serde::{Deserialize, Serialize};

use crate::engine::Failure;

/// How the runner's mount namespace differs from the host's.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunnerArguments {
    /// Without the cgroup v2 tree of a hybrid machine, for runtimes that stumble over it.
    #[arg(long)]
    pub(crate) hide_v2: bool,
    /// Directories of states, each on a tmpfs, as `/run` is on nodes.
    #[arg(long)]
    pub(crate) states: Vec<PathBuf>,
    /// With so many mounts more.
    #[arg(long, default_value_t = 0)]
    pub(crate) mounts: usize,
    /// Where these mounts go.
    #[arg(long)]
    pub(crate) place: Option<PathBuf>,
}

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    words: Vec<String>,
    idle_ms: u64,
    errors: PathBuf,
}

/// One run of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) wall_us: f64,
    pub(crate) cpu_us: u64,
    /// Exit code, or 128 and the signal.
    pub(crate) code: i32,
}

/// `pinion-bench oci-runner`
pub(crate) fn serve(arguments: &RunnerArguments) -> Result<(), Failure> {
    prepare(arguments).map_err(|error| Failure(format!("prepare the runner's mount namespace: {error}")))?;
    for line in io::stdin().lock().lines() {
        let answer = line.and_then(|line| answer(&line)).map_err(|error| error.to_string());
        let text = serde_json::to_string(&answer).map_err(|error| Failure(error.to_string()))?;
        if writeln!(io::stdout(), "{text}").is_err() {
            break;
        }
    }
    Ok(())
}

fn prepare(arguments: &RunnerArguments) -> io::Result<()> {
    syscall::mount_namespace::unshare_mounts()?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    if arguments.hide_v2 && Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
        unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH)?;
    }
    for directory in &arguments.states {
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), None)?;
    }
    if let Some(place) = &arguments.place {
        mount("tmpfs", place, "tmpfs", MountFlags::empty(), None)?;
        for number in 0..arguments.mounts {
            let directory = place.join(number.to_string());
            std::fs::create_dir(&directory)?;
            mount("tmpfs", &directory, "tmpfs", MountFlags::empty(), Some(c"size=4k"))?;
        }
    }
    Ok(())
}

fn answer(line: &str) -> io::Result<Sample> {
    let request: Request = serde_json::from_str(line)?;
    let (program, arguments) = request.words.split_first().ok_or_else(|| io::Error::other("no program"))?;
    let errors = File::options().append(true).create(true).open(&request.errors)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    std::thread::sleep(std::time::Duration::from_millis(request.idle_ms));
    let begin = Instant::now();
    let child = command.spawn()?;
    let pid = Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("no pid"))?;
    let usage = syscall::wait_usage::wait_with_usage(pid)?;
    let wall_us = begin.elapsed().as_secs_f64() * 1e6;
    let signal = usage.status & 0x7f;
    let code = if signal == 0 { usage.status >> 8 & 0xff } else { 128 + signal };
    Ok(Sample { wall_us, cpu_us: usage.cpu_us, code })
}

/// A runner that was started.
#[derive(Debug)]
pub(crate) struct Runner {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: PathBuf,
}

impl Runner {
    /// Starts it; what runtimes say on standard error goes to this file.
    pub(crate) fn start(arguments: &RunnerArguments, errors: PathBuf) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("oci-runner").stdin(Stdio::piped()).stdout(Stdio::piped());
        if arguments.hide_v2 {
            command.arg("--hide-v2");
        }
        for directory in &arguments.states {
            command.arg("--states").arg(directory);
        }
        if let Some(place) = &arguments.place {
            command.arg("--mounts").arg(arguments.mounts.to_string()).arg("--place").arg(place);
        }
        let mut child = command.spawn()?;
        let missing = || io::Error::other("no pipe to the runner");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, requests, answers, errors })
    }

    /// Runs a program to its end.
    pub(crate) fn run(&mut self, words: Vec<String>, idle_ms: u64) -> io::Result<Sample> {
        let request = Request { words, idle_ms, errors: self.errors.clone() };
        writeln!(self.requests, "{}", serde_json::to_string(&request)?)?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the runner ended"));
        }
        let answer: Result<Sample, String> = serde_json::from_str(&line)?;
        answer.map_err(io::Error::other)
    }

    /// The last line that a runtime said.
    pub(crate) fn last_error(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        text.lines().next_back().unwrap_or("nothing was said").chars().take(300).collect()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It ends when its input does; a killed one does so too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
