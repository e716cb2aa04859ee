use std::sync::mpsc;

use super::*;

/// Work that hangs until it is let go.
fn hang(gate: &Arc<Mutex<mpsc::Receiver<()>>>) -> impl FnOnce(&Progress) -> Result<(), Error> + Send + 'static {
    let gate = Arc::clone(gate);
    move |progress| {
        progress.at(0)?;
        let _ = gate.lock().expect("gate").recv();
        progress.at(1)
    }
}

#[tokio::test]
async fn a_file_system_that_hangs_holds_up_no_other() {
    let files = HostFiles::default();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let limit = Duration::from_secs(2);
    let paths = || vec![PathBuf::from("/hangs/volume"), PathBuf::from("/next")];
    let hanging = (0..PLACES).map(|_| files.visit(paths(), limit, hang(&gate)));
    let hanging = futures_util::future::join_all(hanging);
    let other = async {
        // All places are taken, but not for long.
        while files.0.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        files.visit(vec!["/other".into()], Duration::from_secs(60), |_| Ok(7)).await.expect("another file system")
    };
    let (outcomes, other) = tokio::join!(hanging, other);
    assert_eq!(other, 7);
    for outcome in outcomes {
        let error = outcome.expect_err("it hangs");
        assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
        assert!(error.message.starts_with("/hangs/volume: no answer from the file system on /"), "{error}");
    }
    assert_eq!(files.0.lock().get("/hangs/volume"), Some(&PLACES));
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
    while !files.0.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(files.0.places.available_permits(), PLACES);
}
