use std::{sync::mpsc, thread};

use super::*;

/// Work that hangs until it is let go, and counts the threads that it was begun on.
fn hang(
    gate: &Arc<Mutex<mpsc::Receiver<()>>>,
    begun: &Arc<AtomicUsize>,
) -> impl FnOnce(&Progress) -> Result<(), Error> + Send + 'static {
    let (gate, begun) = (Arc::clone(gate), Arc::clone(begun));
    move |progress| {
        begun.fetch_add(1, Ordering::Relaxed);
        progress.at(0)?;
        let _ = gate.lock().expect("gate").recv();
        progress.at(1)
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_takes_few_threads_and_holds_up_no_other() {
    let files = HostFiles::default();
    let (go, gate) = mpsc::channel::<()>();
    let (gate, begun) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let limit = Duration::from_secs(2);
    let paths = || vec![PathBuf::from("/hangs/volume"), PathBuf::from("/next")];
    let hanging = (0..3 * PLACES).map(|_| files.visit(paths(), limit, hang(&gate, &begun)));
    let hanging = futures_util::future::join_all(hanging);
    let other = async {
        while begun.load(Ordering::Relaxed) < SOURCE_MAX {
            tokio::task::yield_now().await;
        }
        let others = files.visit(vec!["/other".into()], Duration::from_secs(60), |_| Ok(7));
        let outcome = others.await.expect("another file system");
        // One that has a path in common with what hangs waits for no longer than it takes to see where that hangs.
        files.visit(vec!["/next".into()], Duration::from_secs(1), |_| Ok(())).await.expect("next");
        outcome
    };
    let (outcomes, other) = tokio::join!(hanging, other);
    assert_eq!(other, 7);
    for outcome in outcomes {
        let error = outcome.expect_err("it hangs");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        assert!(error.message.starts_with("/hangs/volume: no answer from the file system on /"), "{error}");
    }
    assert_eq!(begun.load(Ordering::Relaxed), SOURCE_MAX);
    assert_eq!(files.0.lock().stuck.get("/hangs/volume"), Some(&SOURCE_MAX));
    // No more is begun there, neither by who would wait nor by who would not.
    for outcome in [
        files.visit(paths(), Duration::from_millis(50), |_| Ok(())).await,
        files.try_visit(paths(), limit, |_| Ok(())).await,
    ] {
        assert_eq!(outcome.expect_err("closed").kind, ErrorKind::DeadlineExceeded);
    }
    // When it answers again all is as before, and work that was given up goes no further.
    drop(go);
    files.visit(paths(), Duration::from_secs(60), |_| Ok(())).await.expect("it answers");
    while !files.0.lock().stuck.is_empty() || !files.0.lock().working.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.0.places.available_permits(), PLACES);
}

/// Requests that wait for a place are not admitted to a file system that came to hang in the meantime.
#[tokio::test]
async fn who_waited_for_a_place_looks_again() {
    let files = HostFiles::default();
    let (go, gate) = mpsc::channel::<()>();
    let (gate, begun) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let places = Arc::clone(&files.0.places).acquire_many_owned(PLACES as u32).await.expect("all places");
    let limit = Duration::from_secs(1);
    let waiting = (0..PLACES).map(|_| files.visit(vec!["/hangs".into()], limit, hang(&gate, &begun)));
    let release = async {
        tokio::task::yield_now().await;
        drop(places);
    };
    tokio::join!(futures_util::future::join_all(waiting), release);
    assert_eq!(begun.load(Ordering::Relaxed), SOURCE_MAX);
    drop(go);
}

/// A file system that answers lets many through, a few at a time.
#[tokio::test]
async fn a_busy_file_system_lets_all_through() {
    let files = HostFiles::default();
    let many = (0..3 * PLACES).map(|_| {
        let work = |_: &Progress| {
            thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        files.visit(vec!["/busy".into()], Duration::from_secs(60), work)
    });
    for outcome in futures_util::future::join_all(many).await {
        outcome.expect("let through");
    }
    // A thread is counted until just after its answer.
    while !files.0.lock().working.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.0.places.available_permits(), PLACES);
}
