//! Hooks of the runtime's namespaces: prestart, createRuntime, poststart, poststop (runtime-spec config.md).
//!
//! They are programs of the node, and they take their time: the monitor has neither the node's files nor time. So a
//! child of it enters the node's mount namespace, runs them there one after the other, and ends; what it waits for,
//! nobody else does.
//!
//! ```text
//! monitor ──clone──▶ runner: setns(node's mounts) ──spawn──▶ hook, hook, …
//!    │ ◀── errors, then end of file ──┘      the monitor closes its end: what runs is killed
//! ```
//!
//! createContainer hooks run in the container's own child, with the node's mounts in its namespace; startContainer
//! hooks inside the container. A hook without a timeout has [`PATIENCE`].

use std::{io::Write, time::Duration};

use container::hooks::{Hooks, Moment};
use monitor_api::{Attachments, Failure, HeldHooks, Reply};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};
use syscall::clone::Clone3;

use crate::{
    connection::Asked,
    failure::{of_container, system},
    monitor::Monitor,
};

/// Seconds that a hook has which says nothing of its own: no request shall wait for ever.
pub(crate) const PATIENCE: i64 = 120;
/// How long the hooks inside of a container may take that another monitor made.
pub(crate) const UNKNOWN_TIME: Duration = Duration::from_secs(600);
/// Most of what is heard from a runner.
const SAID_MAX: usize = 16 * 1024;

/// What becomes of it when they have run.
pub(crate) enum After {
    /// The child of this serial goes on, or fails.
    Create(u64),
    /// `Start` is answered.
    Started(Asked),
    /// These are answered.
    Stopped(Vec<(Asked, Result<(), Failure>)>),
}

/// Hooks that run.
pub(crate) struct Runner {
    after: After,
    container: String,
    /// Its end of file is the runner's end.
    line: OwnedFd,
    said: Vec<u8>,
}

impl Runner {
    /// For the event loop.
    pub(crate) fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Gives each hook that has none a timeout.
pub(crate) fn bound(hooks: &mut oci::Hooks) {
    let oci::Hooks { prestart, create_runtime, create_container, start_container, poststart, poststop } = hooks;
    for list in [prestart, create_runtime, create_container, start_container, poststart, poststop] {
        list.iter_mut().for_each(|hook| {
            hook.timeout.get_or_insert(PATIENCE);
        });
    }
}

/// How long those may take that the container's child runs, which have timeouts: a part of its way to execve.
pub(crate) fn time_inside(spec: &oci::Spec) -> Duration {
    let sum = |hooks: &[oci::Hook]| {
        let seconds = hooks.iter().map(|hook| hook.timeout.unwrap_or(PATIENCE).unsigned_abs());
        seconds.fold(0u64, u64::saturating_add).min(24 * 3600)
    };
    let longest = spec.hooks.as_ref().map_or(0, |hooks| sum(&hooks.create_container).max(sum(&hooks.start_container)));
    Duration::from_secs(longest)
}

/// Whether there are any for this moment.
fn wanted(hooks: Option<&HeldHooks>, moment: Moment) -> Option<(Hooks, &oci::State)> {
    let held = hooks?;
    // They were checked when the container was made.
    let hooks = Hooks::parse(&held.hooks).ok()?;
    hooks.has(moment).then_some((hooks, &held.state))
}

impl Monitor {
    /// Runs those of a moment; gives `after` back where there are none, or no runner.
    pub(crate) fn run_hooks(
        &mut self,
        hooks: Option<&HeldHooks>,
        moment: Moment,
        pid: i32,
        after: After,
    ) -> Result<(), (After, Option<Failure>)> {
        let Some((hooks, state)) = wanted(hooks, moment) else { return Err((after, None)) };
        let state = oci::State { pid, ..state.clone() };
        let what = format!("run hooks of container {}", state.id);
        let line = match self.send_runner(&hooks, moment, &state) {
            Ok(line) => line,
            Err(error) => return Err((after, Some(system(what, error)))),
        };
        let serial = self.next_serial();
        self.runners.insert(serial, Runner { after, container: state.id, line, said: Vec::new() });
        self.watch(serial);
        Ok(())
    }

    fn send_runner(&self, hooks: &Hooks, moment: Moment, state: &oci::State) -> std::io::Result<OwnedFd> {
        let Some(node) = &self.node_mounts else {
            return Err(std::io::Error::other("this monitor has no way to the node's files; restart it"));
        };
        let flags = SocketFlags::CLOEXEC;
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::io::ioctl_fionbio(&line, true)?;
        let cloned = Clone3::default().fork(|| {
            let mut kept = [0, 1, 2, node.as_raw_fd(), theirs.as_raw_fd()];
            let entered = syscall::descriptors::close_all_but(&mut kept).and_then(|()| {
                syscall::signals::reset_for_exec();
                Ok(move_into_thread_name_spaces(node.as_fd(), ThreadNameSpaceType::MOUNT)?)
            });
            let failed = match entered {
                Ok(()) => hooks.run(moment, state, theirs.as_fd()).err().unwrap_or_default(),
                Err(error) => return say(theirs, &format!("enter the node's mount namespace: {error}")),
            };
            let words: Vec<String> = failed.iter().map(ToString::to_string).collect();
            say(theirs, &words.join("; "))
        });
        self.terminals.cloned();
        cloned?;
        Ok(line)
    }

    /// A runner may have said something, or ended.
    pub(crate) fn advance_runner(&mut self, serial: u64) {
        let Some(runner) = self.runners.get_mut(&serial) else { return };
        let mut part = [0u8; 1024];
        loop {
            match rustix::io::read(&runner.line, &mut part) {
                Ok(0) => break,
                Ok(count) => {
                    let room = SAID_MAX.saturating_sub(runner.said.len());
                    runner.said.extend_from_slice(&part[..count.min(room)]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => break,
            }
        }
        if let Some(runner) = self.runners.remove(&serial) {
            self.epoll.forget(&runner.line);
            self.hooks_ran(runner);
        }
    }

    fn hooks_ran(&mut self, runner: Runner) {
        let Runner { after, container, said, .. } = runner;
        let said = String::from_utf8_lossy(&said).into_owned();
        let failed = (!said.is_empty()).then_some(said);
        if let (Some(why), After::Stopped(_)) = (&failed, &after) {
            // The specification wants a warning of it, and that the life goes on.
            eprintln!("pinmon: container {container}: {why}");
        }
        match after {
            After::Create(serial) => self.created_with_hooks(serial, failed),
            After::Started(asked) => {
                let answer = match failed {
                    None => Ok((Reply::Done, Attachments::new())),
                    Some(why) => {
                        self.stop_started(&container);
                        Err(of_container(&format!("start container {container}"), &failure(&container, &why)))
                    }
                };
                self.reply(asked, answer);
            }
            After::Stopped(answers) => self.answer_all(answers),
        }
    }

    /// Hooks at the end of a container, then the answers.
    pub(crate) fn stop_with_hooks(&mut self, hooks: Option<&HeldHooks>, answers: Vec<(Asked, Result<(), Failure>)>) {
        if let Err((After::Stopped(answers), failure)) =
            self.run_hooks(hooks, Moment::Stopped, 0, After::Stopped(answers))
        {
            if let Some(failure) = failure {
                eprintln!("pinmon: {}", failure.message);
            }
            self.answer_all(answers);
        }
    }

    fn answer_all(&mut self, answers: Vec<(Asked, Result<(), Failure>)>) {
        for (asked, answer) in answers {
            self.reply(asked, answer.map(|()| (Reply::Done, Attachments::new())));
        }
    }

    /// Whether hooks of a container's creation run now.
    pub(crate) fn hooks_run_for(&self, of: u64) -> bool {
        self.runners.values().any(|runner| matches!(runner.after, After::Create(serial) if serial == of))
    }

    /// A container that is not made any more needs its hooks no more: what runs is killed.
    pub(crate) fn give_up_hooks(&mut self, of: u64) {
        let runs =
            |(serial, runner): (&u64, &Runner)| matches!(runner.after, After::Create(c) if c == of).then_some(*serial);
        if let Some(runner) = self.runners.iter().find_map(runs).and_then(|serial| self.runners.remove(&serial)) {
            self.epoll.forget(&runner.line);
        }
    }
}

/// In the runner: its last words.
fn say(line: OwnedFd, words: &str) -> i32 {
    let mut file = std::fs::File::from(line);
    let _ = file.write_all(words.as_bytes());
    i32::from(!words.is_empty())
}

/// Of hooks that failed.
pub(crate) fn failure(container: &str, why: &str) -> container::Error {
    container::Error { kind: container::ErrorKind::System, message: format!("hooks of container {container}: {why}") }
}
