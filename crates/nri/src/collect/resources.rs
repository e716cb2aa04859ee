//! Resources: each limit is a field of its own, which one plugin may set.

use crate::{
    messages::{Cpu, Memory, Resources},
    owners::{Conflict, Field},
};

/// Claims a field, or an entry of one, for the plugin whose response is merged.
pub(super) type Claim<'a> = dyn FnMut(Field, Option<&str>) -> Result<(), Conflict> + 'a;

/// Merges what a plugin sets with what was set before.
pub(super) fn merge(new: &Resources, target: &mut Resources, claim: &mut Claim<'_>) -> Result<(), Conflict> {
    if let Some(new) = &new.memory {
        memory(new, target.memory.get_or_insert_default(), claim)?;
    }
    if let Some(new) = &new.cpu {
        cpu(new, target.cpu.get_or_insert_default(), claim)?;
    }
    for limit in &new.hugepage_limits {
        claim(Field::HugepageLimits, Some(&limit.page_size))?;
        target.hugepage_limits.retain(|known| known.page_size != limit.page_size);
        target.hugepage_limits.push(limit.clone());
    }
    for (file, value) in &new.unified {
        claim(Field::Unified, Some(file))?;
        target.unified.insert(file.clone(), value.clone());
    }
    set(&new.pids, &mut target.pids, Field::Pids, claim)?;
    set(&new.blockio_class, &mut target.blockio_class, Field::BlockIoClass, claim)?;
    set(&new.rdt_class, &mut target.rdt_class, Field::RdtClass, claim)
}

fn set<T: Clone>(new: &Option<T>, target: &mut Option<T>, field: Field, claim: &mut Claim<'_>) -> Result<(), Conflict> {
    if new.is_some() {
        claim(field, None)?;
        target.clone_from(new);
    }
    Ok(())
}

fn memory(new: &Memory, target: &mut Memory, claim: &mut Claim<'_>) -> Result<(), Conflict> {
    set(&new.limit, &mut target.limit, Field::MemoryLimit, claim)?;
    set(&new.reservation, &mut target.reservation, Field::MemoryReservation, claim)?;
    set(&new.swap, &mut target.swap, Field::MemorySwap, claim)?;
    set(&new.kernel, &mut target.kernel, Field::MemoryKernel, claim)?;
    set(&new.kernel_tcp, &mut target.kernel_tcp, Field::MemoryTcp, claim)?;
    set(&new.swappiness, &mut target.swappiness, Field::MemorySwappiness, claim)?;
    set(&new.disable_oom_killer, &mut target.disable_oom_killer, Field::DisableOomKiller, claim)?;
    set(&new.use_hierarchy, &mut target.use_hierarchy, Field::UseHierarchy, claim)
}

fn cpu(new: &Cpu, target: &mut Cpu, claim: &mut Claim<'_>) -> Result<(), Conflict> {
    set(&new.shares, &mut target.shares, Field::CpuShares, claim)?;
    set(&new.quota, &mut target.quota, Field::CpuQuota, claim)?;
    set(&new.period, &mut target.period, Field::CpuPeriod, claim)?;
    set(&new.realtime_runtime, &mut target.realtime_runtime, Field::CpuRealtimeRuntime, claim)?;
    set(&new.realtime_period, &mut target.realtime_period, Field::CpuRealtimePeriod, claim)?;
    for (new, target, field) in [(&new.cpus, &mut target.cpus, Field::Cpus), (&new.mems, &mut target.mems, Field::Mems)]
    {
        if !new.is_empty() {
            claim(field, None)?;
            target.clone_from(new);
        }
    }
    Ok(())
}
