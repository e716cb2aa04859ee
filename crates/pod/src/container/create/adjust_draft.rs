//! The part of a creation in which NRI plugins adjust the specification.

use std::sync::Arc;

use nri::{
    Changes, Round,
    messages::{Adjustment, Container as ContainerMessage},
};

use crate::{
    Error,
    container::{adjust, plugin_changes, prepare::Draft},
    operation::blocking,
    parts::Parts,
    plugins,
    store::{Container, Sandbox},
};

/// Has the plugins adjust a draft. They are waited for without a permit: one that hangs delays no other container. What
/// they request for other containers happens only if everything that they adjust can be applied.
pub(super) async fn adjust_draft(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    (round, required): (Round, &[String]),
    draft: Draft,
) -> Result<Draft, Error> {
    container.stage("wait for NRI plugins");
    let message = plugins::describe_container(container, Some(&draft.spec));
    let (adjustment, changes) = match respond(parts, sandbox, (round, required), message).await {
        Ok(response) => response,
        Err(error) => {
            discard(draft).await;
            return Err(error);
        }
    };
    container.stage("apply what NRI plugins adjust");
    let draft = {
        let (parts, container) = (Arc::clone(parts), Arc::clone(container));
        blocking(move || {
            let mut draft = draft;
            adjust::apply(&parts, &mut draft, adjustment)?;
            record(&parts, &container, &draft).map(|()| draft)
        })
        .await?
    };
    match plugin_changes::apply(parts, changes).await {
        Ok(()) => Ok(draft),
        Err(error) => {
            discard(draft).await;
            Err(error)
        }
    }
}

async fn respond(
    parts: &Parts,
    sandbox: &Sandbox,
    (round, required): (Round, &[String]),
    message: ContainerMessage,
) -> Result<(Adjustment, Changes), Error> {
    let pod = plugins::describe_pod(parts, sandbox);
    Ok(round.create_container(&pod, message, required).await?)
}

/// Records what plugins changed of what the record or the request say otherwise.
fn record(parts: &Parts, container: &Container, draft: &Draft) -> Result<(), Error> {
    let linux = draft.spec.linux.as_ref();
    let path = linux.and_then(|linux| linux.cgroups_path.clone());
    let score = draft.spec.process.as_ref().and_then(|process| process.oom_score_adj);
    container.adjusted(linux.and_then(|linux| linux.resources.clone()), score);
    let Some(path) = path.filter(|path| *path != container.metadata.cgroup) else { return Ok(()) };
    let group = cgroup::GroupPath::parse(&path).map_err(|e| Error::invalid(format!("cgroup path: {e}")))?;
    let is_new = !parts.node.trees.contains(&group);
    // On record before it is created, so that it is removed in every case.
    parts.registry.update_container(container, |record| {
        (record.cgroup, record.owns_cgroup) = (Some(path), is_new);
        true
    })
}

/// Closes a draft that is not used: the last descriptor of a mount unmounts it, which may take long.
async fn discard(draft: Draft) {
    let closed = blocking(move || {
        drop(draft);
        Ok(())
    });
    let _ = closed.await;
}
