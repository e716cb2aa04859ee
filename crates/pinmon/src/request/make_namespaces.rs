use container::PodNamespaceRequest;
use monitor_api::{Attachments, MakeNamespaces, Role};
use oci::NamespaceType;

use super::Answer;
use crate::{failure::of_container, link::RequestId, monitor::Monitor, namespaces::OPERATION};

/// Lets a child create namespaces that a user namespace owns. Answered when they exist.
pub(super) fn make_namespaces(
    monitor: &mut Monitor,
    request_id: RequestId,
    request: MakeNamespaces,
    attachments: &mut Attachments,
) -> Answer {
    let MakeNamespaces { user, network, ipc, hostname } = request;
    let joined = attachments.take(Role::Namespace(NamespaceType::User));
    let request = PodNamespaceRequest { uids: user.uids, gids: user.gids, user: joined, network, ipc, hostname };
    let setup = request.make();
    monitor.services.closers.cloned();
    let setup = setup.map_err(|error| of_container(OPERATION, &error))?;
    monitor.namespace_makers.add(request_id, setup, &mut monitor.services);
    Ok(None)
}
