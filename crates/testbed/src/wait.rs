use std::{
    thread,
    time::{Duration, Instant},
};

/// How often a condition is checked.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds, for changes by other processes that send no notification. Panics with its description
/// when the time limit has passed.
///
/// It blocks its thread: a test whose runtime has a single thread uses [`wait_until_with`].
#[track_caller]
pub fn wait_until(description: &str, limit: Duration, condition: impl FnMut() -> bool) {
    assert!(holds_within(limit, condition), "timed out after {limit:?}: {description}");
}

/// Waits until a condition holds, and returns whether it did within the time limit.
pub fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(INTERVAL);
    }
    true
}

/// Like [`wait_until`], with the sleep function of an async runtime.
///
/// # Panics
/// When the time limit has passed.
pub async fn wait_until_with(
    sleep: impl AsyncFn(Duration),
    description: &str,
    limit: Duration,
    mut condition: impl FnMut() -> bool,
) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "timed out after {limit:?}: {description}");
        sleep(INTERVAL).await;
    }
}
