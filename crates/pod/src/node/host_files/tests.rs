use std::{sync::mpsc, thread};

use super::*;

/// Returns work that hangs until the gate is opened, and counts the threads that it was started on.
fn hang(
    gate: &Arc<Mutex<mpsc::Receiver<()>>>,
    started: &Arc<AtomicUsize>,
) -> impl FnOnce(&Progress) -> Result<(), Error> + Send + 'static {
    let (gate, started) = (Arc::clone(gate), Arc::clone(started));
    move |progress| {
        started.fetch_add(1, Ordering::Relaxed);
        progress.at(0)?;
        let _ = gate.lock().expect("gate").recv();
        progress.at(1)
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_occupies_few_threads_and_delays_no_other() {
    let files = HostFiles::default();
    let (go, gate) = mpsc::channel::<()>();
    let (gate, started) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let limit = Duration::from_secs(2);
    let paths = || vec![PathBuf::from("/hangs/volume"), PathBuf::from("/next")];
    let hanging = (0..3 * PERMITS).map(|_| files.visit(paths(), limit, hang(&gate, &started)));
    let hanging = futures_util::future::join_all(hanging);
    let other = async {
        while started.load(Ordering::Relaxed) < SOURCE_MAX {
            tokio::task::yield_now().await;
        }
        let others = files.visit(vec!["/other".into()], Duration::from_secs(60), |_| Ok(7));
        let outcome = others.await.expect("another file system");
        // Work that shares a path with the hanging work waits only until it is known where that hangs.
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
    assert_eq!(started.load(Ordering::Relaxed), SOURCE_MAX);
    assert_eq!(files.0.lock().stuck.get("/hangs/volume"), Some(&SOURCE_MAX));
    // No more work is started there, whether its caller would wait or not.
    for outcome in [
        files.visit(paths(), Duration::from_millis(50), |_| Ok(())).await,
        files.try_visit(paths(), limit, |_| Ok(())).await,
    ] {
        assert_eq!(outcome.expect_err("closed").kind, ErrorKind::DeadlineExceeded);
    }
    // When the file system responds again everything is as before, and work that was given up does not continue.
    drop(go);
    files.visit(paths(), Duration::from_secs(60), |_| Ok(())).await.expect("the file system responds");
    while !files.0.lock().stuck.is_empty() || !files.0.lock().working.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.0.permits.available_permits(), PERMITS);
}

/// Work that waits for a permit is not admitted to a file system that started to hang in the meantime.
#[tokio::test]
async fn work_that_waited_for_a_permit_checks_its_file_systems_again() {
    let files = HostFiles::default();
    let (go, gate) = mpsc::channel::<()>();
    let (gate, started) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let permits = Arc::clone(&files.0.permits).acquire_many_owned(PERMITS as u32).await.expect("all permits");
    let limit = Duration::from_secs(1);
    let waiting = (0..PERMITS).map(|_| files.visit(vec!["/hangs".into()], limit, hang(&gate, &started)));
    let release = async {
        tokio::task::yield_now().await;
        drop(permits);
    };
    tokio::join!(futures_util::future::join_all(waiting), release);
    assert_eq!(started.load(Ordering::Relaxed), SOURCE_MAX);
    drop(go);
}

/// A busy file system admits all work, a few pieces at a time.
#[tokio::test]
async fn a_busy_file_system_admits_all_work() {
    let files = HostFiles::default();
    let many = (0..3 * PERMITS).map(|_| {
        let work = |_: &Progress| {
            thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        files.visit(vec!["/busy".into()], Duration::from_secs(60), work)
    });
    for outcome in futures_util::future::join_all(many).await {
        outcome.expect("admitted");
    }
    // A thread is counted until shortly after its result was sent.
    while !files.0.lock().working.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.0.permits.available_permits(), PERMITS);
}
