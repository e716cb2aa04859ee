use container::ContainerSetup;
use monitor_api::{Adopt, Attachments, Holding, HoldingState, Reply, Role};
use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{Answer, create::output};
use crate::{
    child::{Child, Stage},
    failure::{invalid, system},
    hooks,
    log_writer::order::EndPhase,
    monitor::Monitor,
    pipe::Pipe,
    process::{in_user_namespace, start_time},
    programs::Filter,
};

impl Monitor {
    /// Takes over an object of a monitor that died.
    pub(super) fn adopt(&mut self, adopt: Adopt, attachments: &mut Attachments) -> Answer {
        let holding = adopt.holding;
        if holding.state == HoldingState::Kept {
            return self.keep(holding.id, std::mem::take(attachments));
        }
        self.check_new(&holding.id)?;
        let operation = format!("adopt container {}", holding.id);
        let close_queue = self.terminals.close_queue.for_pod(&holding.sandbox);
        let mut output = output(holding.log, attachments, &close_queue)
            .map_err(|e| system(format!("{operation}: prepare output"), e))?;
        if let Some(device) = self.journals.device_of(&holding.id) {
            // Its last batch must be recovered before any further output is written, and by the same log writer.
            output.place.device = device;
        }
        if output.is_open() {
            output.recover = self.journals.take(&holding.id);
        }
        if matches!(holding.state, HoldingState::Exited(_)) {
            output.end(EndPhase::Final);
        }
        let filter = match attachments.take(Role::Seccomp) {
            Some(file) => Filter::Known(Some(self.programs.read(&file)?)),
            None => Filter::Unknown,
        };
        let pidfd = attachments.take(Role::Pidfd).or_else(|| find_process(&holding));
        let group = cgroup::GroupPath::parse(&holding.cgroup)
            .and_then(|path| cgroup::Group::open(&self.trees, &path))
            .inspect_err(|error| {
                if !matches!(holding.state, HoldingState::Exited(_)) {
                    eprintln!("pinmon: {operation}: {error}");
                }
            })
            .ok();
        let (stage, pidfd, group) = stage(&holding, (pidfd, group), attachments.take(Role::Sync))?;
        let child = Child {
            pid: i32::try_from(holding.pid).map_err(|_| invalid(format!("{operation}: pid {}", holding.pid)))?,
            start_time: holding.start_time,
            pidfd,
            group,
            // The log may have been reopened since the record was written.
            log: monitor_api::LogOptions { awaited: output.awaits_log, ..holding.log },
            output,
            stdin: attachments.take(Role::StdinHold).map(|end| Pipe::new(end, &close_queue)),
            filter,
            hooks: holding.hooks.map(|mut held| {
                hooks::set_default_timeouts(&mut held.hooks);
                held
            }),
            pod_init: holding.state == HoldingState::PodInit,
            user_namespace: holding.user_namespace.unwrap_or_else(|| in_user_namespace(holding.pid)),
            hooks_time: hooks::UNKNOWN_TIME,
            adopted: true,
            stage,
            warnings: Vec::new(),
            deletes: Vec::new(),
            removing: false,
            id: holding.id,
            sandbox: holding.sandbox,
            cgroup: holding.cgroup,
        };
        self.insert_adopted(child);
        Ok(Some(Reply::Done))
    }

    fn insert_adopted(&mut self, child: Child) {
        let serial = self.next_serial();
        let (has_ended, process_is_gone) = (child.has_ended(), child.pidfd().is_none());
        self.containers.insert(serial, child);
        self.watch(serial);
        self.hand_over(serial);
        if !has_ended && process_is_gone {
            // No process has this pid and start time, so its exit status is unknown.
            self.process_ended(serial, crate::process::ProcessExit::UNKNOWN);
        } else {
            self.check_exit(serial, 0);
        }
    }
}

type Parts = (Option<OwnedFd>, Option<cgroup::Group>);

/// Returns the stage of an adopted container, and the pidfd and cgroup that the stage does not hold itself.
fn stage(
    holding: &Holding,
    (pidfd, group): Parts,
    sync: Option<OwnedFd>,
) -> Result<(Stage, Option<OwnedFd>, Option<cgroup::Group>), monitor_api::Failure> {
    match (&holding.state, pidfd, group, sync) {
        (HoldingState::Exited(status), pidfd, group, _) => Ok((Stage::Exited(status.clone()), pidfd, group)),
        (HoldingState::Created, Some(pidfd), Some(group), Some(sync)) => {
            let pid = i32::try_from(holding.pid).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| invalid(format!("adopt container {}: pid {}", holding.id, holding.pid)))?;
            Ok((Stage::Created(ContainerSetup::adopt(pid, pidfd, sync, group)), None, None))
        }
        (HoldingState::Created, Some(_), Some(_), None) => {
            Err(invalid(format!("adopt container {}: it is not started, but no Sync is attached", holding.id)))
        }
        (_, pidfd, group, _) => Ok((Stage::Running, pidfd, group)),
    }
}

/// Opens the process of the container, unless its pid was reused.
fn find_process(holding: &Holding) -> Option<OwnedFd> {
    let pid = i32::try_from(holding.pid).ok()?;
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (start_time(pid)? == holding.start_time).then_some(pidfd)
}
