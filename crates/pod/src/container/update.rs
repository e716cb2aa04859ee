//! `UpdateContainerResources`: applies the whole update or none of it.

use std::sync::Arc;

use cgroup::{Group, Limits};
use tokio::sync::OwnedMutexGuard;

use super::driver;
use crate::{
    Error,
    error::failed,
    operation::blocking,
    parts::Parts,
    process,
    store::{Container, ContainerPhase},
};

/// Changes the limits of a container and records them. Refuses a memory limit below the memory in use, and rolls the
/// cgroup back if a change fails halfway.
pub(crate) async fn update_locked(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    resources: oci::Resources,
    oom_score_adj: Option<i32>,
    _busy: OwnedMutexGuard<()>,
) -> Result<(), Error> {
    let with_context = |e: Error| e.during(format_args!("update container {}", container.id()));
    if matches!(container.record().phase, ContainerPhase::Creating | ContainerPhase::Exited) {
        return Err(with_context(Error::state("the container is not running")));
    }
    let record = container.record();
    let before = record.resources.as_ref().unwrap_or(&container.config().resources).clone();
    let after = merged(&before, resources.clone());
    let change = Change { before: before.clone(), after: after.clone(), update: resources, pid: record.pid };
    let pending = driver::update(parts, container, &after).await.map_err(with_context)?;
    let work = {
        let (parts, container) = (Arc::clone(parts), Arc::clone(container));
        move || {
            change.apply(container.group(&parts.node.trees)?)?;
            match oom_score_adj {
                Some(score) => set_oom_scores(container.group(&parts.node.trees)?, score),
                None => Ok(()),
            }
        }
    };
    let changed = blocking(work).await.map_err(with_context);
    let effective = if changed.is_ok() { &after } else { &before };
    parts.node.update_scope(&container.metadata.cgroup, effective.clone());
    let recorded = changed.and_then(|()| {
        parts.registry.update_container(container, |record| {
            record.resources = Some(after);
            record.oom_score_adj = oom_score_adj.or(record.oom_score_adj);
            true
        })
    });
    match &recorded {
        Ok(()) => pending.settle(parts, container).await,
        Err(_) => pending.revert(parts, container, &before).await,
    }
    recorded
}

/// An update, and the effective resources before and after it.
struct Change {
    before: oci::Resources,
    after: oci::Resources,
    update: oci::Resources,
    pid: u32,
}

impl Change {
    fn apply(&self, group: &Group) -> Result<(), Error> {
        let limits = parse(&with_partners(&self.update, &self.after))?;
        self.check_memory(group)?;
        let placement = [allowed(self.pid, "Cpus_allowed_list"), allowed(self.pid, "Mems_allowed_list")];
        let Err(error) = group.update(&limits) else { return Ok(()) };
        let kind = match error {
            cgroup::Error::Invalid { .. } | cgroup::Error::Unavailable { .. } => Error::invalid(error.to_string()),
            error => Error::internal(error.to_string()),
        };
        // Restores the values that were changed before the kernel refused one.
        let reverted = parse(&revert(&self.update, &self.before, placement)).map(|limits| group.update(&limits));
        match reverted {
            Ok(Ok(())) => Err(kind),
            Ok(Err(also)) => {
                Err(Error { message: format!("{}; and undoing the changes: {also}", kind.message), ..kind })
            }
            Err(also) => Err(Error { message: format!("{}; and undoing the changes: {also}", kind.message), ..kind }),
        }
    }

    /// Refuses a memory limit below the usage: the kernel would kill processes (v2), or try to reclaim and fail with
    /// EBUSY (v1).
    fn check_memory(&self, group: &Group) -> Result<(), Error> {
        let Some(limit) = self.update.memory.as_ref().and_then(|memory| memory.limit).filter(|limit| *limit > 0) else {
            return Ok(());
        };
        let used = group.stats().map_err(failed("read its memory usage"))?.memory_working_set;
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

/// Returns the update with the values that the kernel sets together completed from `whole`: quota and period are one
/// file on v2, and swap is set together with memory.
fn with_partners(update: &oci::Resources, whole: &oci::Resources) -> oci::Resources {
    let mut change = update.clone();
    if let (Some(cpu), Some(whole)) = (&mut change.cpu, &whole.cpu) {
        if cpu.quota.is_some() || cpu.period.is_some() {
            (cpu.quota, cpu.period) = (whole.quota, whole.period);
        }
        cpu.shares = cpu.shares.and(whole.shares);
        cpu.cpus = cpu.cpus.take().and(whole.cpus.clone());
        cpu.mems = cpu.mems.take().and(whole.mems.clone());
    }
    if let (Some(memory), Some(whole)) = (&mut change.memory, &whole.memory) {
        (memory.limit, memory.swap) = (whole.limit, whole.swap);
    }
    change
}

/// Returns the resources that undo an update: the previous values, or the kernel's defaults if there were none. Files
/// of `unified` that were not set before are left out, because their defaults are not known.
fn revert(update: &oci::Resources, before: &oci::Resources, [cpus, mems]: [Option<String>; 2]) -> oci::Resources {
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

/// The largest limit that the kernel takes as "no limit", in whole pages of any size.
const HUGE_UNLIMITED: u64 = 1 << 62;

/// Returns the CPUs or memory nodes that a process may use now, as a list.
fn allowed(pid: u32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Sets the OOM score adjustment of every process of a container, as creation does for the first one. Processes that
/// exit in the meantime are skipped.
fn set_oom_scores(group: &Group, score: i32) -> Result<(), Error> {
    for pid in group.pids().map_err(failed("list its processes"))? {
        match process::set_oom_score_adj(pid.as_raw_pid().unsigned_abs(), score) {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound) => {}
            // Lowering the score needs CAP_SYS_RESOURCE; without it creation clamps the score, too.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                tracing::info!(pid = pid.as_raw_pid(), "set oom_score_adj to {score}: {error}; keeping the old value");
            }
            Err(error) if error.raw_os_error() == Some(3) => {}
            result => result.map_err(failed(format_args!("set oom_score_adj of process {pid} to {score}")))?,
        }
    }
    Ok(())
}

/// Returns the effective resources after an update, which contains only the values that it changes.
fn merged(before: &oci::Resources, update: oci::Resources) -> oci::Resources {
    let mut after = before.clone();
    if let Some(new) = update.memory {
        let memory = after.memory.get_or_insert_default();
        memory.swap = new.swap.or_else(|| swap_with_limit(memory, new.limit));
        memory.limit = new.limit.or(memory.limit);
        memory.reservation = new.reservation.or(memory.reservation);
    }
    if let Some(new) = update.cpu {
        let cpu = after.cpu.get_or_insert_default();
        cpu.shares = new.shares.or(cpu.shares);
        cpu.quota = new.quota.or(cpu.quota);
        cpu.period = new.period.or(cpu.period);
        cpu.cpus = new.cpus.or(cpu.cpus.take());
        cpu.mems = new.mems.or(cpu.mems.take());
    }
    if let Some(new) = update.pids {
        after.pids = Some(new);
    }
    for new in update.hugepage_limits {
        after.hugepage_limits.retain(|old| old.page_size != new.page_size);
        after.hugepage_limits.push(new);
    }
    after.unified.extend(update.unified);
    after
}

/// Returns the new value of `swap`, which is the limit of memory and swap together: the room for swap stays the same
/// when the memory limit changes.
fn swap_with_limit(before: &oci::Memory, limit: Option<i64>) -> Option<i64> {
    match (before.limit, before.swap, limit) {
        (Some(old @ 1..), Some(swap @ 1..), Some(new @ 1..)) => Some(new.saturating_add(swap.saturating_sub(old))),
        // If memory is unlimited, memory and swap together are unlimited, too.
        (_, Some(1..), Some(..=-1)) => Some(-1),
        (_, swap, _) => swap,
    }
}

#[cfg(test)]
mod tests {
    use oci::{Cpu, Memory, Resources};

    use super::{merged, revert, with_partners};

    #[test]
    fn an_update_changes_only_the_values_it_contains() {
        let memory = |limit| Some(Memory { limit, ..Memory::default() });
        let before = Resources {
            memory: memory(Some(1)),
            cpu: Some(Cpu { shares: Some(2), quota: Some(3), ..Cpu::default() }),
            ..Resources::default()
        };
        let update = Resources { cpu: Some(Cpu { quota: Some(9), ..Cpu::default() }), ..Resources::default() };
        let after = merged(&before, update);
        assert_eq!(after.memory, memory(Some(1)));
        assert_eq!(after.cpu.map(|cpu| (cpu.shares, cpu.quota)), Some((Some(2), Some(9))));
        let after = merged(&before, Resources { memory: memory(Some(5)), ..Resources::default() });
        assert_eq!(after.memory, memory(Some(5)));
    }

    #[test]
    fn the_room_for_swap_stays_when_memory_changes() {
        let memory = |limit, swap| Some(Memory { limit, swap, ..Memory::default() });
        let after = |before: Option<Memory>, update: Option<Memory>| {
            let update = Resources { memory: update, ..Resources::default() };
            let after =
                merged(&Resources { memory: before, ..Resources::default() }, update).memory.unwrap_or_default();
            (after.limit, after.swap)
        };
        assert_eq!(after(memory(Some(10), Some(10)), memory(Some(20), None)), (Some(20), Some(20)));
        assert_eq!(after(memory(Some(10), Some(15)), memory(Some(4), None)), (Some(4), Some(9)));
        assert_eq!(after(memory(Some(10), Some(15)), memory(Some(-1), None)), (Some(-1), Some(-1)));
        assert_eq!(after(memory(Some(10), Some(-1)), memory(Some(20), None)), (Some(20), Some(-1)));
        assert_eq!(after(memory(Some(10), None), memory(Some(20), Some(30))), (Some(20), Some(30)));
    }

    #[test]
    fn values_that_were_not_set_before_revert_to_the_kernels_defaults() {
        let update = Resources {
            cpu: Some(Cpu { shares: Some(7), cpus: Some("1".into()), ..Cpu::default() }),
            hugepage_limits: vec![oci::HugepageLimit { page_size: "2MB".into(), limit: 0 }],
            unified: [("memory.high".to_owned(), "1".to_owned())].into(),
            ..Resources::default()
        };
        let reverted = revert(&update, &Resources::default(), [Some("0-3".into()), None]);
        let cpu = reverted.cpu.unwrap_or_default();
        assert_eq!((cpu.shares, cpu.quota, cpu.cpus.as_deref(), cpu.mems), (Some(1024), None, Some("0-3"), None));
        assert_eq!((reverted.memory, reverted.hugepage_limits[0].limit, reverted.unified.len()), (None, 1 << 62, 0));
    }

    #[test]
    fn values_that_share_a_file_are_set_together() {
        let before = Resources {
            cpu: Some(Cpu { shares: Some(2), quota: Some(3), period: Some(100), ..Cpu::default() }),
            ..Resources::default()
        };
        let update = Resources { cpu: Some(Cpu { period: Some(50), ..Cpu::default() }), ..Resources::default() };
        let completed = with_partners(&update, &merged(&before, update.clone())).cpu.unwrap_or_default();
        assert_eq!((completed.shares, completed.quota, completed.period), (None, Some(3), Some(50)));
    }
}
