//! One request to all plugins, in the order of their indices.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    Error, Restrictions,
    collect::Collector,
    event::Event,
    eviction::PendingEviction,
    messages::{
        Adjustment, Container, ContainerEvent, ContainerUpdate, CreateResponse, Eviction, Pod, PodEvent, PodUpdate,
        Resources, ResourcesEvent, UpdateResponse,
    },
    plugin::{Failure, Plugin},
    validate::{check_restrictions, consult_validators},
};

/// The plugins that a request goes to. Fixed when the request begins.
pub struct Round {
    pub(crate) plugins: Vec<Arc<Plugin>>,
    pub(crate) timeout: Duration,
    pub(crate) restrictions: Restrictions,
}

/// What plugins request for other containers than the one that an event is about.
#[derive(Debug, Default)]
pub struct Changes {
    /// Updates, at most one for each container.
    pub updates: Vec<ContainerUpdate>,
    /// Containers that are to be stopped.
    pub evictions: Vec<PendingEviction>,
}

impl Round {
    /// Fails if one of the required plugins is not among these.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn check(&self, required: &[String]) -> Result<(), Error> {
        let usable = self.plugins.iter().filter(|plugin| plugin.is_usable());
        check_present(required, &usable.map(|plugin| plugin.base.as_str()).collect())
    }

    /// Sends an event of a pod before it takes effect.
    ///
    /// # Errors
    /// If a plugin refuses it, or fails and its policy is that the request fails.
    pub async fn pod_event(&self, event: Event, pod: &Pod, required: &[String]) -> Result<(), Error> {
        let request = PodEvent { pod: Some(pod.clone()) };
        for plugin in &self.plugins {
            let sent = plugin.notify(event, &request, (Some(pod), None), self.timeout).await;
            judge(plugin, sent, required)?;
        }
        Ok(())
    }

    /// Sends an event of a container before it takes effect.
    ///
    /// # Errors
    /// If a plugin refuses it, or fails and its policy is that the request fails.
    pub async fn container_event(&self, event: Event, pod: Option<&Pod>, container: &Container) -> Result<(), Error> {
        let request = ContainerEvent { pod: pod.cloned(), container: Some(container.clone()) };
        for plugin in &self.plugins {
            let sent = plugin.notify(event, &request, (pod, Some(container)), self.timeout).await;
            judge(plugin, sent, &[])?;
        }
        Ok(())
    }

    /// Sends an event of a pod that has happened. It reaches every plugin, whatever the others respond.
    pub async fn announce_pod(&self, event: Event, pod: &Pod) {
        let request = PodEvent { pod: Some(pod.clone()) };
        for plugin in &self.plugins {
            log_failure(plugin, event, plugin.notify(event, &request, (Some(pod), None), self.timeout).await);
        }
    }

    /// Sends an event of a container that has happened. It reaches every plugin, whatever the others respond.
    pub async fn announce_container(&self, event: Event, pod: Option<&Pod>, container: &Container) {
        let request = ContainerEvent { pod: pod.cloned(), container: Some(container.clone()) };
        for plugin in &self.plugins {
            log_failure(plugin, event, plugin.notify(event, &request, (pod, Some(container)), self.timeout).await);
        }
    }

    /// Sends the update of a pod.
    ///
    /// # Errors
    /// If a plugin refuses it, or fails and its policy is that the request fails.
    pub async fn update_pod(
        &self,
        pod: &Pod,
        overhead: Option<Resources>,
        resources: Option<Resources>,
    ) -> Result<(), Error> {
        let request = PodUpdate { pod: Some(pod.clone()), overhead, resources };
        for plugin in &self.plugins {
            let sent = plugin.notify(Event::UpdatePodSandbox, &request, (Some(pod), None), self.timeout).await;
            judge(plugin, sent, &[])?;
        }
        Ok(())
    }

    /// Has the plugins adjust a container that is about to be created.
    ///
    /// # Errors
    /// `Unavailable` if one of the `required` plugins is absent or fails; `Refused` if a plugin refuses the container,
    /// plugins contradict each other, or the result is not permitted. The container must not be created then.
    pub async fn create_container(
        &self,
        pod: &Pod,
        container: Container,
        required: &[String],
    ) -> Result<(Adjustment, Changes), Error> {
        let mut collector = Collector::of_creation(container.clone());
        let (mut consulted, mut evictions) = (Vec::with_capacity(self.plugins.len()), Vec::new());
        for plugin in &self.plugins {
            let request = ContainerEvent { pod: Some(pod.clone()), container: Some(collector.container.clone()) };
            let answer = plugin.request::<CreateResponse>(Event::CreateContainer, &request, self.timeout).await;
            let failed = answer.is_err();
            if let Some(mut answer) = judge(plugin, answer, required)?.flatten() {
                evictions.extend(accept(plugin, std::mem::take(&mut answer.evict))?);
                collector.add_creation(&plugin.name, answer).map_err(|e| Error::refused(e.to_string()))?;
            }
            if !failed && plugin.is_usable() {
                consulted.push(Arc::clone(plugin));
            }
        }
        check_present(required, &consulted.iter().map(|plugin| plugin.base.as_str()).collect())?;
        check_restrictions(&self.restrictions, &container, &collector)?;
        consult_validators(&self.plugins, &consulted, (pod, &container), &collector, self.timeout).await?;
        let changes = Changes { updates: collector.updates.into_values().collect(), evictions };
        Ok((collector.adjust, changes))
    }

    /// Has the plugins change the update of a container. Returns the resources to set.
    ///
    /// # Errors
    /// As [`Self::create_container`].
    pub async fn update_container(
        &self,
        pod: Option<&Pod>,
        container: Container,
        resources: Resources,
    ) -> Result<(Resources, Changes), Error> {
        let id = container.id.clone();
        let (mut collector, mut evictions) = (Collector::of_update(container, resources), Vec::new());
        for plugin in &self.plugins {
            let request = ResourcesEvent {
                pod: pod.cloned(),
                container: Some(collector.container.clone()),
                resources: collector.requested.clone(),
            };
            let answer = plugin.request::<UpdateResponse>(Event::UpdateContainer, &request, self.timeout).await;
            if let Some(mut answer) = judge(plugin, answer, &[])?.flatten() {
                evictions.extend(accept(plugin, std::mem::take(&mut answer.evict))?);
                collector.add_update(&plugin.name, answer).map_err(|e| Error::refused(e.to_string()))?;
            }
        }
        let updates = collector.updates.into_values().filter(|update| update.container_id != id).collect();
        Ok((collector.requested.unwrap_or_default(), Changes { updates, evictions }))
    }

    /// Sends to every plugin that a container stopped, and returns what the plugins request for others. A response that
    /// cannot be used is logged and has no effect.
    pub async fn stop_container(&self, pod: Option<&Pod>, container: Container) -> Changes {
        let request = ContainerEvent { pod: pod.cloned(), container: Some(container.clone()) };
        let (mut collector, mut evictions) = (Collector::of_stop(container), Vec::new());
        for plugin in &self.plugins {
            let answer = plugin.request::<UpdateResponse>(Event::StopContainer, &request, self.timeout).await;
            let Some(mut answer) = log_failure(plugin, Event::StopContainer, answer).flatten() else { continue };
            let used = accept(plugin, std::mem::take(&mut answer.evict)).and_then(|accepted| {
                collector.add_update(&plugin.name, answer).map_err(|e| Error::refused(e.to_string()))?;
                Ok(accepted)
            });
            match used {
                Ok(accepted) => evictions.extend(accepted),
                Err(error) => tracing::warn!(%error, "what an NRI plugin requested at a stop has no effect"),
            }
        }
        Changes { updates: collector.updates.into_values().collect(), evictions }
    }
}

/// Accepts the evictions of a response within the bound of the plugin.
fn accept(plugin: &Plugin, evictions: Vec<Eviction>) -> Result<Vec<PendingEviction>, Error> {
    let accepted = plugin.evictions.accept(evictions);
    accepted.map_err(|reason| Error::refused(format!("plugin {}: {reason}", plugin.name)))
}

/// Logs the failure of a plugin to handle an event that has happened.
fn log_failure<T>(plugin: &Plugin, event: Event, answer: Result<T, Failure>) -> Option<T> {
    let logged = answer.inspect_err(|failure| {
        let (plugin, error) = (plugin.name.as_str(), failure.message.as_str());
        tracing::warn!(plugin, ?event, error, "an NRI plugin did not handle what has happened already");
    });
    logged.ok()
}

/// Decides whether a failure of a plugin fails the request. Otherwise the request proceeds without the plugin.
fn judge<T>(plugin: &Plugin, answer: Result<T, Failure>, required: &[String]) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.refused => Err(Error::refused(failure.message)),
        Err(failure) if failure.fails_request || required.contains(&plugin.base) => {
            Err(Error::unavailable(failure.message))
        }
        Err(failure) => {
            tracing::warn!(plugin = plugin.name, "{}; the request proceeds without it", failure.message);
            Ok(None)
        }
    }
}

/// Fails if a required plugin is not among those present.
pub(crate) fn check_present(required: &[String], present: &BTreeSet<&str>) -> Result<(), Error> {
    let missing: Vec<&str> = required.iter().map(String::as_str).filter(|name| !present.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "NRI plugin {} is required and not running; start it: the request is retried until then",
        missing.join(", ")
    )))
}
