//! Validation of what the plugins adjusted: by the configuration, then by the plugins that subscribe to it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    Error, Restrictions,
    collect::Collector,
    event::Event,
    messages::{Container, PluginInstance, Pod, Validate, Verdict},
    owners::Field,
    plugin::Plugin,
};

/// Fails if the configuration does not permit an adjustment.
pub(crate) fn check_restrictions(
    restrictions: &Restrictions,
    pristine: &Container,
    collector: &Collector,
) -> Result<(), Error> {
    let seccomp = pristine.linux.as_ref().and_then(|linux| linux.seccomp_profile.as_ref());
    let seccomp_restricted = match seccomp.map_or(1, |profile| profile.profile_type) {
        0 => restrictions.default_seccomp,
        1 => restrictions.unconfined_seccomp,
        _ => restrictions.custom_seccomp,
    };
    let checks = [
        (restrictions.hooks, Field::Hooks),
        (seccomp_restricted, Field::Seccomp),
        (restrictions.namespaces, Field::Namespaces),
        (restrictions.sysctls, Field::Sysctl),
    ];
    for (restricted, field) in checks {
        let owners = collector.owners.of(&pristine.id, field);
        if let (true, Some((_, owner))) = (restricted, owners.first()) {
            return Err(Error::refused(format!("plugin {owner} adjusts {field:?}, which this node does not permit")));
        }
    }
    Ok(())
}

/// Has every plugin that subscribes to it validate the adjustments. One that does not answer rejects them.
pub(crate) async fn consult_validators(
    plugins: &[Arc<Plugin>],
    consulted: &[Arc<Plugin>],
    (pod, pristine): (&Pod, &Container),
    collector: &Collector,
    timeout: Duration,
) -> Result<(), Error> {
    let event = Event::ValidateContainerAdjustment;
    // One that is gone does not subscribe to anything; pods that rely on it require it.
    let validators: Vec<&Arc<Plugin>> =
        plugins.iter().filter(|plugin| plugin.subscribes(event) && plugin.is_usable()).collect();
    if validators.is_empty() {
        return Ok(());
    }
    let instance = |plugin: &Arc<Plugin>| PluginInstance { name: plugin.base.clone(), index: plugin.index.clone() };
    let request = Validate {
        pod: Some(pod.clone()),
        container: Some(pristine.clone()),
        adjust: Some(collector.adjust.clone()),
        update: collector.updates.values().cloned().collect(),
        owners: Some(collector.owners.to_message()),
        plugins: consulted.iter().map(instance).collect(),
    };
    let verdicts = join_all(validators.iter().map(|plugin| plugin.request::<Verdict>(event, &request, timeout))).await;
    for (plugin, verdict) in validators.iter().zip(verdicts) {
        match verdict {
            Err(failure) => return Err(Error::unavailable(failure.message)),
            Ok(Some(Verdict { reject: true, reason })) => {
                return Err(Error::refused(format!("plugin {} rejects the adjustments: {reason}", plugin.name)));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
