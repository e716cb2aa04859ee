use cri_proto::v1;
use pod::oci;

use super::field;
use crate::Failure;

/// The resources of a container, and its OOM score, which the CRI puts into the same message.
pub(crate) struct Limits {
    pub(crate) resources: oci::Resources,
    pub(crate) oom_score_adj: i32,
}

/// Validates a `LinuxContainerResources`, in which 0 means "not set" for every number.
pub(crate) fn limits(at: &str, message: &v1::LinuxContainerResources) -> Result<Limits, Failure> {
    let oom_score_adj =
        i32::try_from(message.oom_score_adj).ok().filter(|score| (-1000..=1000).contains(score)).ok_or_else(|| {
            Failure::invalid(
                &format!("{at}.oom_score_adj"),
                format_args!("{} is not within -1000 to 1000", message.oom_score_adj),
            )
        })?;
    let resources = oci::Resources {
        cpu: cpu(at, message)?,
        memory: memory(at, message)?,
        hugepage_limits: message
            .hugepage_limits
            .iter()
            .map(|limit| oci::HugepageLimit { page_size: limit.page_size.clone(), limit: limit.limit })
            .collect(),
        unified: unified(at, message)?,
        ..oci::Resources::default()
    };
    Ok(Limits { resources, oom_score_adj })
}

fn cpu(at: &str, message: &v1::LinuxContainerResources) -> Result<Option<oci::Cpu>, Failure> {
    let quota = match message.cpu_quota {
        0 => None,
        quota if quota >= -1 => Some(quota),
        quota => {
            return Err(Failure::invalid(
                &format!("{at}.cpu_quota"),
                format_args!("{quota} is negative; only -1 (no limit) is allowed"),
            ));
        }
    };
    let cpu = oci::Cpu {
        shares: positive(&format!("{at}.cpu_shares"), message.cpu_shares)?,
        quota,
        period: positive(&format!("{at}.cpu_period"), message.cpu_period)?,
        cpus: cpu_list(&format!("{at}.cpuset_cpus"), &message.cpuset_cpus)?,
        mems: cpu_list(&format!("{at}.cpuset_mems"), &message.cpuset_mems)?,
        ..oci::Cpu::default()
    };
    Ok((cpu != oci::Cpu::default()).then_some(cpu))
}

fn memory(at: &str, message: &v1::LinuxContainerResources) -> Result<Option<oci::Memory>, Failure> {
    let memory = oci::Memory {
        limit: limit(&format!("{at}.memory_limit_in_bytes"), message.memory_limit_in_bytes)?,
        swap: limit(&format!("{at}.memory_swap_limit_in_bytes"), message.memory_swap_limit_in_bytes)?,
        ..oci::Memory::default()
    };
    if let (Some(limit), Some(swap)) = (memory.limit, memory.swap)
        && swap != -1
        && swap < limit
    {
        let at = format!("{at}.memory_swap_limit_in_bytes");
        return Err(Failure::invalid(
            &at,
            format_args!("{swap} is the limit of memory plus swap and must not be less than the memory limit {limit}"),
        ));
    }
    Ok((memory != oci::Memory::default()).then_some(memory))
}

/// Converts a limit: 0 means "not set", -1 "no limit".
fn limit(at: &str, value: i64) -> Result<Option<i64>, Failure> {
    match value {
        0 => Ok(None),
        -1.. => Ok(Some(value)),
        _ => Err(Failure::invalid(at, format_args!("{value} is negative; only -1 (no limit) is allowed"))),
    }
}

fn positive(at: &str, value: i64) -> Result<Option<u64>, Failure> {
    let value = u64::try_from(value).map_err(|_| Failure::invalid(at, format_args!("{value} is negative")))?;
    Ok((value != 0).then_some(value))
}

/// Validates a list of CPUs or memory nodes: `0-3,7`.
fn cpu_list(at: &str, value: &str) -> Result<Option<String>, Failure> {
    if value.is_empty() {
        return Ok(None);
    }
    let valid = value.split(',').all(|range| {
        let ends: Vec<Option<u32>> = range.splitn(2, '-').map(|end| end.trim().parse().ok()).collect();
        matches!(ends[..], [Some(_)]) || matches!(ends[..], [Some(first), Some(last)] if first <= last)
    });
    match valid {
        true => Ok(Some(value.to_owned())),
        false => Err(Failure::invalid(at, format_args!("{value:?} is not a list like 0-3,7"))),
    }
}

/// Validates the names of cgroup files: each is a single path component.
fn unified(
    at: &str,
    message: &v1::LinuxContainerResources,
) -> Result<std::collections::BTreeMap<String, String>, Failure> {
    for name in message.unified.keys() {
        field::name(&format!("{at}.unified"), name)?;
        if name.starts_with('.') {
            return Err(Failure::invalid(
                &format!("{at}.unified"),
                format_args!("{name:?} is not the name of a cgroup file"),
            ));
        }
    }
    Ok(message.unified.clone().into_iter().collect())
}
