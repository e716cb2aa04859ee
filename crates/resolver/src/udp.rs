//! Queries over UDP.

use std::{sync::Arc, time::Duration};

use tokio::{net::UdpSocket, task::JoinSet, time::sleep};

use crate::{
    answer::{Answer, answer},
    forward::{Transport, forward},
    state::{QUERY_MAX, State},
};

/// Pause after an error of the socket, which may repeat.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves queries until the task is aborted, which ends the forwarded ones, too: a socket keeps its namespace alive.
pub(crate) async fn serve(socket: Arc<UdpSocket>, state: Arc<State>) {
    // A longer message is cut off at one byte more than is permitted.
    let mut buffer = vec![0; QUERY_MAX + 1];
    let mut forwarded = JoinSet::new();
    loop {
        while forwarded.try_join_next().is_some() {}
        state.pace.wait().await;
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        if length > QUERY_MAX {
            continue;
        }
        // A response that does not fit into the buffer is dropped: this task must not wait for a client.
        match answer(&*state.names, &buffer[..length]) {
            Answer::Ignore => {}
            Answer::Response(response) => drop(socket.try_send_to(&response, client)),
            Answer::Forward(query) => {
                let Some(permit) = state.permit() else { continue };
                let (socket, state, message) = (Arc::clone(&socket), Arc::clone(&state), buffer[..length].to_vec());
                forwarded.spawn(async move {
                    let _permit = permit;
                    let servers = state.servers().await;
                    let response = forward(&query, &message, &servers, Transport::Udp).await;
                    drop(socket.try_send_to(&response, client));
                });
            }
        }
    }
}
