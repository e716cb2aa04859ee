//! The sandbox container of a pod whose handler needs one: it is started before the first container of the pod, and when
//! it ends the pod is stopped.

use std::sync::Arc;

use super::after_exit;
use crate::{Error, container::create::sandbox_container, node::Handler, operation::to_completion, parts::Parts};

/// Starts the sandbox container of a pod if its handler needs one and it is not running. The start continues if the caller
/// stops waiting.
///
/// # Errors
/// `FailedPrecondition` if it has exited: the sandbox is gone, with all containers in it.
pub(crate) async fn ensure(parts: &Arc<Parts>, sandbox: &str) -> Result<(), Error> {
    let sandbox = parts.registry.sandbox(sandbox)?;
    match parts.node.handlers.get(&sandbox.config().runtime_handler) {
        Ok(Handler::Shim(handler)) if handler.sandbox_container => {}
        // A handler that is not configured anymore is refused with the container.
        _ => return Ok(()),
    }
    let parts = Arc::clone(parts);
    to_completion(async move {
        if let Some(id) = sandbox_container::start(&parts, &sandbox).await? {
            after_exit::container_started(&parts, &id);
        }
        Ok(())
    })
    .await
}
