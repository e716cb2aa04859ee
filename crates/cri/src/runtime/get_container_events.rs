use std::sync::Arc;

use cri_proto::v1;
use futures_util::stream;
use pod::{Event, EventKind, EventStream};
use tonic::Status;

use crate::{
    handler::{Outcome, Shared, Streamed},
    status::{container_status, sandbox_status, time},
};

/// Streams the events of pods and containers from now on, until the client disconnects. The stream of a client that is
/// too slow ends with an error, and the client has to list again.
pub(super) async fn handle(state: Shared, _: v1::GetEventsRequest) -> Outcome<Streamed<v1::ContainerEventResponse>> {
    let events = state.engine.events();
    Ok(Box::pin(stream::unfold(Some((events, state)), |open| async {
        let (mut events, state) = open?;
        let next = next(&mut events, &state).await?;
        let open = next.is_ok().then_some((events, state));
        Some((next, open))
    })))
}

async fn next(events: &mut EventStream, state: &Shared) -> Option<Result<v1::ContainerEventResponse, Status>> {
    match events.next().await {
        Ok(event) => event.map(|event| Ok(message(&event, state))),
        Err(lagged) => Some(Err(Status::data_loss(format!("GetContainerEvents: {lagged}")))),
    }
}

fn message(event: &Arc<Event>, state: &Shared) -> v1::ContainerEventResponse {
    let kind = match event.kind {
        EventKind::Created => v1::ContainerEventType::ContainerCreatedEvent,
        EventKind::Started => v1::ContainerEventType::ContainerStartedEvent,
        EventKind::Stopped => v1::ContainerEventType::ContainerStoppedEvent,
        EventKind::Deleted => v1::ContainerEventType::ContainerDeletedEvent,
    };
    let image = |id: &str| state.engine.images().find(id).ok().flatten();
    v1::ContainerEventResponse {
        container_id: event.id.as_str().to_owned(),
        container_event_type: kind.into(),
        created_at: time(event.at),
        pod_sandbox_status: event.sandbox.as_ref().map(sandbox_status),
        containers_statuses: event
            .containers
            .iter()
            .map(|container| container_status(container, image(&container.image_id).as_ref()))
            .collect(),
    }
}
