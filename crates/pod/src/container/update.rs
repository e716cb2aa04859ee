//! `UpdateContainerResources`.

use std::sync::Arc;

use cgroup::Limits;

use super::ContainerPhase;
use crate::{
    Error,
    engine::{Inner, blocking},
};

pub(crate) async fn update(engine: &Arc<Inner>, id: &str, resources: oci::Resources) -> Result<(), Error> {
    let container = engine.container(id)?;
    let told = format!("update container {}", container.id());
    let limits = Limits::from_spec(&resources).map_err(|e| Error::invalid(format!("{told}: {e}")))?;
    let _alone = container.busy.lock().await;
    if matches!(container.record().phase, ContainerPhase::Creating | ContainerPhase::Exited) {
        return Err(Error::state(format!("{told}: it does not run")));
    }
    let (of_engine, of) = (Arc::clone(engine), Arc::clone(&container));
    blocking(move || of.group(&of_engine)?.update(&limits).map_err(|e| Error::internal(format!("{told}: {e}"))))
        .await?;
    container.update(&engine.records, |record| {
        let before = record.resources.as_ref().unwrap_or(&container.config().resources);
        record.resources = Some(merged(before, resources));
        true
    })
}

/// What holds after an update: it says only what it changes.
fn merged(before: &oci::Resources, update: oci::Resources) -> oci::Resources {
    let mut now = before.clone();
    if let Some(new) = update.memory {
        let memory = now.memory.get_or_insert_default();
        memory.limit = new.limit.or(memory.limit);
        memory.reservation = new.reservation.or(memory.reservation);
        memory.swap = new.swap.or(memory.swap);
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

#[cfg(test)]
mod tests {
    use oci::{Cpu, Memory, Resources};

    use super::merged;

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
}
