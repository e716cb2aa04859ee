//! Resources, in the specification and in messages.

use nri::messages::{self, Bool, Int, UInt64};

fn int(value: Option<i64>) -> Option<Int> {
    value.map(|value| Int { value })
}

fn unsigned(value: Option<u64>) -> Option<UInt64> {
    value.map(|value| UInt64 { value })
}

fn boolean(value: Option<bool>) -> Option<Bool> {
    value.map(|value| Bool { value })
}

/// Converts resources of the specification.
pub(crate) fn to_message(resources: &oci::Resources) -> messages::Resources {
    let memory = resources.memory.as_ref().map(|memory| messages::Memory {
        limit: int(memory.limit),
        reservation: int(memory.reservation),
        swap: int(memory.swap),
        kernel: int(memory.kernel),
        kernel_tcp: int(memory.kernel_tcp),
        swappiness: unsigned(memory.swappiness),
        disable_oom_killer: boolean(memory.disable_oom_killer),
        use_hierarchy: boolean(memory.use_hierarchy),
    });
    let cpu = resources.cpu.as_ref().map(|cpu| messages::Cpu {
        shares: unsigned(cpu.shares),
        quota: int(cpu.quota),
        period: unsigned(cpu.period),
        realtime_runtime: int(cpu.realtime_runtime),
        realtime_period: unsigned(cpu.realtime_period),
        cpus: cpu.cpus.clone().unwrap_or_default(),
        mems: cpu.mems.clone().unwrap_or_default(),
    });
    let huge =
        |limit: &oci::HugepageLimit| messages::HugepageLimit { page_size: limit.page_size.clone(), limit: limit.limit };
    let rule = |rule: &oci::DeviceRule| messages::DeviceRule {
        allow: rule.allow,
        r#type: rule.kind.clone().unwrap_or_default(),
        major: int(rule.major),
        minor: int(rule.minor),
        access: rule.access.clone().unwrap_or_default(),
    };
    messages::Resources {
        memory,
        cpu,
        hugepage_limits: resources.hugepage_limits.iter().map(huge).collect(),
        blockio_class: None,
        rdt_class: None,
        unified: resources.unified.clone(),
        devices: resources.devices.iter().map(rule).collect(),
        pids: resources.pids.as_ref().and_then(|pids| pids.limit).map(|limit| messages::Pids { limit }),
    }
}

/// Sets the values of a message in resources of the specification; values that it does not have stay.
pub(crate) fn set(message: &messages::Resources, resources: &mut oci::Resources) {
    if let Some(new) = &message.memory {
        set_memory(new, resources.memory.get_or_insert_default());
    }
    if let Some(new) = &message.cpu {
        set_cpu(new, resources.cpu.get_or_insert_default());
    }
    for new in &message.hugepage_limits {
        resources.hugepage_limits.retain(|known| known.page_size != new.page_size);
        resources.hugepage_limits.push(oci::HugepageLimit { page_size: new.page_size.clone(), limit: new.limit });
    }
    for (file, value) in &message.unified {
        resources.unified.insert(file.clone(), value.clone());
    }
    if let Some(pids) = &message.pids {
        resources.pids = Some(oci::Pids { limit: Some(pids.limit) });
    }
}

fn replace<T: Copy>(target: &mut Option<T>, new: Option<T>) {
    *target = new.or(*target);
}

fn set_memory(new: &messages::Memory, memory: &mut oci::Memory) {
    let value = |int: &Option<Int>| int.as_ref().map(|int| int.value);
    replace(&mut memory.limit, value(&new.limit));
    replace(&mut memory.reservation, value(&new.reservation));
    replace(&mut memory.swap, value(&new.swap));
    replace(&mut memory.kernel, value(&new.kernel));
    replace(&mut memory.kernel_tcp, value(&new.kernel_tcp));
    replace(&mut memory.swappiness, new.swappiness.as_ref().map(|new| new.value));
    replace(&mut memory.disable_oom_killer, new.disable_oom_killer.as_ref().map(|new| new.value));
    replace(&mut memory.use_hierarchy, new.use_hierarchy.as_ref().map(|new| new.value));
}

fn set_cpu(new: &messages::Cpu, cpu: &mut oci::Cpu) {
    replace(&mut cpu.shares, new.shares.as_ref().map(|new| new.value));
    replace(&mut cpu.quota, new.quota.as_ref().map(|new| new.value));
    replace(&mut cpu.period, new.period.as_ref().map(|new| new.value));
    replace(&mut cpu.realtime_runtime, new.realtime_runtime.as_ref().map(|new| new.value));
    replace(&mut cpu.realtime_period, new.realtime_period.as_ref().map(|new| new.value));
    for (new, target) in [(&new.cpus, &mut cpu.cpus), (&new.mems, &mut cpu.mems)] {
        if !new.is_empty() {
            *target = Some(new.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_survive_the_way_to_a_plugin_and_back() {
        let resources = oci::Resources {
            memory: Some(oci::Memory { limit: Some(1 << 30), swap: Some(-1), ..oci::Memory::default() }),
            cpu: Some(oci::Cpu { shares: Some(2), quota: Some(-1), cpus: Some("0-1".into()), ..oci::Cpu::default() }),
            pids: Some(oci::Pids { limit: Some(9) }),
            unified: [("memory.high".to_owned(), "max".to_owned())].into(),
            ..oci::Resources::default()
        };
        let mut returned = oci::Resources::default();
        set(&to_message(&resources), &mut returned);
        assert_eq!(returned, resources);
    }

    #[test]
    fn values_that_a_plugin_does_not_name_stay() {
        let mut resources = oci::Resources {
            cpu: Some(oci::Cpu { shares: Some(2), idle: Some(1), ..oci::Cpu::default() }),
            ..oci::Resources::default()
        };
        let cpu = messages::Cpu { shares: unsigned(Some(5)), ..messages::Cpu::default() };
        set(&messages::Resources { cpu: Some(cpu), ..messages::Resources::default() }, &mut resources);
        assert_eq!(resources.cpu, Some(oci::Cpu { shares: Some(5), idle: Some(1), ..oci::Cpu::default() }));
    }
}
