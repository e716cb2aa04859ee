//! The responses to cAdvisor's requests.

use std::time::Duration;

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
};
use pod::Engine;
use serde::Serialize;
use tokio::net::UnixListener;

use super::{INFO, find};
use crate::daemon::http::{serve, text, with_type};

/// How long cAdvisor may take to send the header of a request, the time between two requests included.
const HEADER_TIME: Duration = Duration::from_secs(30);

pub(super) async fn accept(listener: UnixListener, engine: Engine) {
    let respond = move |request: Request<Incoming>| std::future::ready(respond(&engine, &request));
    serve(listener, "cAdvisor", HEADER_TIME, respond).await;
}

fn respond(engine: &Engine, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n");
    }
    let path = request.uri().path();
    match path.strip_prefix("/containers/") {
        Some(id) => match find(engine, id) {
            Some(container) => json(&container),
            None => text(StatusCode::NOT_FOUND, "no container or pod has this id\n"),
        },
        None if path == "/info" => json(&INFO),
        None => text(StatusCode::NOT_FOUND, "not found; use /info or /containers/ID\n"),
    }
}

fn json(body: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(body) {
        Ok(body) => with_type(StatusCode::OK, body, "application/json"),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
