//! Deadlines that clients set for their requests (`grpc-timeout`).
//!
//! tonic enforces them too, but then responds with `Cancelled`. A client whose own timer fires slightly later would
//! report that code, although gRPC specifies `DeadlineExceeded`. This layer is inside tonic's, and its timer starts
//! earlier and is polled first, so its response is the one that is sent.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tonic::{
    Status,
    body::Body,
    codegen::{
        Service,
        http::{Request, Response},
    },
    metadata::MetadataMap,
};

/// A layer that enforces the deadline of each request.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for Deadlines<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = request.headers().get("grpc-timeout").and_then(|value| parse(value.to_str().ok()?));
        let sleep = limit.map(tokio::time::sleep);
        let response = self.0.call(request);
        Box::pin(async move {
            let Some(sleep) = sleep else { return response.await };
            tokio::select! {
                biased;
                response = response => response,
                () = sleep => Ok(Status::deadline_exceeded("the deadline of the request is exceeded").into_http()),
            }
        })
    }
}

/// Time limit of the work of a request without a deadline, if the work has one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);
/// Most time before a deadline in which work is undone.
const UNDO: Duration = Duration::from_secs(10);

/// Returns the time limit of work that has to be undone before the deadline of its request.
pub(crate) fn limit(metadata: &MetadataMap) -> Duration {
    let deadline = metadata.get("grpc-timeout").and_then(|value| parse(value.to_str().ok()?));
    deadline.map_or(DEFAULT_LIMIT, |deadline| deadline - UNDO.min(deadline / 4))
}

/// Parses up to eight digits and a unit. `None` for anything else, which is then not treated as a deadline.
fn parse(value: &str) -> Option<Duration> {
    let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if number.is_empty() || number.len() > 8 || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use tower::service_fn;

    use super::*;

    #[test]
    fn units_are_those_of_grpc() {
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse("15m"), Some(Duration::from_millis(15)));
        for wrong in ["", "S", "1", "123456789S", "-1S", "1ß", "+1S"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn work_ends_before_the_deadline() {
        let mut metadata = MetadataMap::new();
        assert_eq!(limit(&metadata), DEFAULT_LIMIT);
        for (deadline, expected) in [("60S", 50_000), ("4S", 3_000), ("0S", 0)] {
            metadata.insert("grpc-timeout", deadline.parse().expect("a value"));
            assert_eq!(limit(&metadata), Duration::from_millis(expected));
        }
    }

    #[tokio::test]
    async fn a_slow_request_ends_with_deadline_exceeded() {
        let mut stuck = Deadlines(service_fn(|_| pending::<Result<Response<Body>, Infallible>>()));
        let request = Request::builder().header("grpc-timeout", "1m").body(()).expect("a request");
        let response = stuck.call(request).await.expect("a response");
        assert_eq!(response.headers()["grpc-status"], "4");
        let mut quick = Deadlines(service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::empty())) }));
        let request = Request::builder().header("grpc-timeout", "0n").body(()).expect("a request");
        assert!(!quick.call(request).await.expect("a response").headers().contains_key("grpc-status"));
    }
}
