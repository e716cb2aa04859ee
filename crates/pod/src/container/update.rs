//! `UpdateContainerResources`: all of it or nothing.

use std::sync::Arc;

use cgroup::{Group, Limits};

use super::ContainerPhase;
use crate::{
    Error,
    engine::{Inner, blocking},
    error::failed,
    process,
};

/// Refuses what would kill, changes the group, puts back what was when that fails half-way, and remembers it.
pub(crate) async fn update(
    engine: &Arc<Inner>,
    id: &str,
    resources: oci::Resources,
    oom_score_adj: Option<i32>,
) -> Result<(), Error> {
    let container = engine.container(id)?;
    let told = |e: Error| e.during(format_args!("update container {}", container.id()));
    let _alone = container.busy.lock().await;
    if matches!(container.record().phase, ContainerPhase::Creating | ContainerPhase::Exited) {
        return Err(told(Error::state("it does not run")));
    }
    let record = container.record();
    let before = record.resources.as_ref().unwrap_or(&container.config().resources).clone();
    let now = merged(&before, resources.clone());
    let change = Change { before, now: now.clone(), update: resources, pid: record.pid };
    let (of_engine, of) = (Arc::clone(engine), Arc::clone(&container));
    blocking(move || {
        change.apply(of.group(&of_engine)?)?;
        match oom_score_adj {
            Some(score) => set_oom_scores(of.group(&of_engine)?, score),
            None => Ok(()),
        }
    })
    .await
    .map_err(told)?;
    container.update(&engine.records, |record| {
        record.resources = Some(now);
        record.oom_score_adj = oom_score_adj.or(record.oom_score_adj);
        true
    })
}

/// An update and what holds before and after it.
struct Change {
    before: oci::Resources,
    now: oci::Resources,
    update: oci::Resources,
    pid: u32,
}

impl Change {
    fn apply(&self, group: &Group) -> Result<(), Error> {
        let limits = parse(&with_partners(&self.update, &self.now))?;
        self.check_memory(group)?;
        let places = [allowed(self.pid, "Cpus_allowed_list"), allowed(self.pid, "Mems_allowed_list")];
        let Err(error) = group.update(&limits) else { return Ok(()) };
        let kind = match error {
            cgroup::Error::Invalid { .. } | cgroup::Error::Unavailable { .. } => Error::invalid(error.to_string()),
            error => Error::internal(error.to_string()),
        };
        // Whatever was changed before the kernel refused.
        let back = parse(&back(&self.update, &self.before, places)).map(|limits| group.update(&limits));
        match back {
            Ok(Ok(())) => Err(kind),
            Ok(Err(also)) => Err(Error { message: format!("{}; and taking it back: {also}", kind.message), ..kind }),
            Err(also) => Err(Error { message: format!("{}; and taking it back: {also}", kind.message), ..kind }),
        }
    }

    /// The kernel would kill (v2), or try and say no more than EBUSY (v1).
    fn check_memory(&self, group: &Group) -> Result<(), Error> {
        let Some(limit) = self.update.memory.as_ref().and_then(|memory| memory.limit).filter(|limit| *limit > 0) else {
            return Ok(());
        };
        let used = group.stats().map_err(failed("measure it"))?.memory_working_set;
        if used <= limit.unsigned_abs() {
            return Ok(());
        }
        Err(Error::state(format!(
            "linux.memory_limit_in_bytes: {limit} is below the {used} bytes that are in use and cannot be reclaimed; \
             nothing was changed"
        )))
    }
}

fn parse(resources: &oci::Resources) -> Result<Limits, Error> {
    Limits::from_spec(resources).map_err(|e| Error::invalid(e.to_string()))
}

/// The groups of values that an update touches, whole: quota and period are one file on v2, and swap is told together
/// with memory.
fn with_partners(update: &oci::Resources, whole: &oci::Resources) -> oci::Resources {
    let mut change = update.clone();
    if let (Some(cpu), Some(of)) = (&mut change.cpu, &whole.cpu) {
        if cpu.quota.is_some() || cpu.period.is_some() {
            (cpu.quota, cpu.period) = (of.quota, of.period);
        }
        cpu.shares = cpu.shares.and(of.shares);
        cpu.cpus = cpu.cpus.take().and(of.cpus.clone());
        cpu.mems = cpu.mems.take().and(of.mems.clone());
    }
    if let (Some(memory), Some(of)) = (&mut change.memory, &whole.memory) {
        (memory.limit, memory.swap) = (of.limit, of.swap);
    }
    change
}

/// What takes an update back: what was, or where nothing was said, what the kernel begins with. Files of `unified` that
/// were not named before are not known well enough.
fn back(update: &oci::Resources, before: &oci::Resources, [cpus, mems]: [Option<String>; 2]) -> oci::Resources {
    let mut whole = before.clone();
    let cpu = whole.cpu.get_or_insert_default();
    cpu.shares = cpu.shares.or(Some(1024));
    cpu.quota = cpu.quota.or(Some(-1));
    cpu.period = cpu.period.or(Some(100_000));
    cpu.cpus = cpu.cpus.take().or(cpus);
    cpu.mems = cpu.mems.take().or(mems);
    let memory = whole.memory.get_or_insert_default();
    memory.limit = memory.limit.or(Some(-1));
    memory.swap = memory.swap.or(Some(-1));
    let mut change = with_partners(update, &whole);
    for huge in &mut change.hugepage_limits {
        let known = before.hugepage_limits.iter().find(|known| known.page_size == huge.page_size);
        huge.limit = known.map_or(HUGE_UNLIMITED, |known| known.limit);
    }
    change.unified.retain(|file, _| before.unified.contains_key(file));
    change.unified.iter_mut().for_each(|(file, value)| value.clone_from(&before.unified[file]));
    change
}

/// As much as the kernel takes for "no limit" in whole pages of any size.
const HUGE_UNLIMITED: u64 = 1 << 62;

/// The CPUs or nodes that a process may use now, as a list.
fn allowed(pid: u32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Of every process, as the first one had it when it was made. One that ended meanwhile needs none.
fn set_oom_scores(group: &Group, score: i32) -> Result<(), Error> {
    for pid in group.pids().map_err(failed("list its processes"))? {
        match process::set_oom_score_adj(pid.unsigned_abs(), score) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound) => {}
            // A lower score than before needs CAP_SYS_RESOURCE; creation clamps it, too.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                tracing::info!(pid, "oom_score_adj {score}: {error}; it stays as it is");
            }
            Err(error) if error.raw_os_error() == Some(3) => {}
            result => result.map_err(failed(format_args!("set oom_score_adj of process {pid} to {score}")))?,
        }
    }
    Ok(())
}

/// What holds after an update: it says only what it changes.
fn merged(before: &oci::Resources, update: oci::Resources) -> oci::Resources {
    let mut now = before.clone();
    if let Some(new) = update.memory {
        let memory = now.memory.get_or_insert_default();
        memory.swap = new.swap.or_else(|| swap_beside(memory, new.limit));
        memory.limit = new.limit.or(memory.limit);
        memory.reservation = new.reservation.or(memory.reservation);
    }
    if let Some(new) = update.cpu {
        let cpu = now.cpu.get_or_insert_default();
        cpu.shares = new.shares.or(cpu.shares);
        cpu.quota = new.quota.or(cpu.quota);
        cpu.period = new.period.or(cpu.period);
        cpu.cpus = new.cpus.or(cpu.cpus.take());
        cpu.mems = new.mems.or(cpu.mems.take());
    }
    if let Some(new) = update.pids {
        now.pids = Some(new);
    }
    for new in update.hugepage_limits {
        now.hugepage_limits.retain(|old| old.page_size != new.page_size);
        now.hugepage_limits.push(new);
    }
    now.unified.extend(update.unified);
    now
}

/// `swap` is memory and swap together: with another limit of memory the room for swap stays what it was.
fn swap_beside(before: &oci::Memory, limit: Option<i64>) -> Option<i64> {
    match (before.limit, before.swap, limit) {
        (Some(old @ 1..), Some(swap @ 1..), Some(new @ 1..)) => Some(new.saturating_add(swap.saturating_sub(old))),
        // Without a limit of memory there is none of both together.
        (_, Some(1..), Some(..=-1)) => Some(-1),
        (_, swap, _) => swap,
    }
}

#[cfg(test)]
mod tests {
    use oci::{Cpu, Memory, Resources};

    use super::{back, merged, with_partners};

    #[test]
    fn an_update_changes_what_it_says() {
        let memory = |limit| Some(Memory { limit, ..Memory::default() });
        let before = Resources {
            memory: memory(Some(1)),
            cpu: Some(Cpu { shares: Some(2), quota: Some(3), ..Cpu::default() }),
            ..Resources::default()
        };
        let update = Resources { cpu: Some(Cpu { quota: Some(9), ..Cpu::default() }), ..Resources::default() };
        let now = merged(&before, update);
        assert_eq!(now.memory, memory(Some(1)));
        assert_eq!(now.cpu.map(|cpu| (cpu.shares, cpu.quota)), Some((Some(2), Some(9))));
        let now = merged(&before, Resources { memory: memory(Some(5)), ..Resources::default() });
        assert_eq!(now.memory, memory(Some(5)));
    }

    #[test]
    fn the_room_for_swap_stays_when_memory_changes() {
        let memory = |limit, swap| Some(Memory { limit, swap, ..Memory::default() });
        let after = |before: Option<Memory>, update: Option<Memory>| {
            let update = Resources { memory: update, ..Resources::default() };
            let now = merged(&Resources { memory: before, ..Resources::default() }, update).memory.unwrap_or_default();
            (now.limit, now.swap)
        };
        assert_eq!(after(memory(Some(10), Some(10)), memory(Some(20), None)), (Some(20), Some(20)));
        assert_eq!(after(memory(Some(10), Some(15)), memory(Some(4), None)), (Some(4), Some(9)));
        assert_eq!(after(memory(Some(10), Some(15)), memory(Some(-1), None)), (Some(-1), Some(-1)));
        assert_eq!(after(memory(Some(10), Some(-1)), memory(Some(20), None)), (Some(20), Some(-1)));
        assert_eq!(after(memory(Some(10), None), memory(Some(20), Some(30))), (Some(20), Some(30)));
    }

    #[test]
    fn what_was_not_said_before_goes_back_to_what_the_kernel_begins_with() {
        let update = Resources {
            cpu: Some(Cpu { shares: Some(7), cpus: Some("1".into()), ..Cpu::default() }),
            hugepage_limits: vec![oci::HugepageLimit { page_size: "2MB".into(), limit: 0 }],
            unified: [("memory.high".to_owned(), "1".to_owned())].into(),
            ..Resources::default()
        };
        let told = back(&update, &Resources::default(), [Some("0-3".into()), None]);
        let cpu = told.cpu.unwrap_or_default();
        assert_eq!((cpu.shares, cpu.quota, cpu.cpus.as_deref(), cpu.mems), (Some(1024), None, Some("0-3"), None));
        assert_eq!((told.memory, told.hugepage_limits[0].limit, told.unified.len()), (None, 1 << 62, 0));
    }

    #[test]
    fn what_is_one_file_for_the_kernel_goes_together() {
        let before = Resources {
            cpu: Some(Cpu { shares: Some(2), quota: Some(3), period: Some(100), ..Cpu::default() }),
            ..Resources::default()
        };
        let update = Resources { cpu: Some(Cpu { period: Some(50), ..Cpu::default() }), ..Resources::default() };
        let told = with_partners(&update, &merged(&before, update.clone())).cpu.unwrap_or_default();
        assert_eq!((told.shares, told.quota, told.period), (None, Some(3), Some(50)));
    }
}
