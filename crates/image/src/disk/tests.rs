use std::{sync::mpsc::channel, time::Duration};

use super::{Disk, THREADS_MAX, WAITING_MAX};
use crate::{Error, ErrorKind};

/// Keeps every thread for short work busy until the returned senders are dropped.
fn hang(disk: &Disk) -> Vec<std::sync::mpsc::Sender<()>> {
    let mut holding = Vec::new();
    for _ in 0..THREADS_MAX {
        let (sender, receiver) = channel::<()>();
        let disk = disk.clone();
        tokio::spawn(async move {
            disk.run(move || -> Result<(), Error> {
                let _ = receiver.recv();
                Ok(())
            })
            .await
        });
        holding.push(sender);
    }
    holding
}

/// Whether every thread is blocked in its work.
fn is_busy(disk: &Disk) -> bool {
    let state = disk.short.lock();
    state.threads == THREADS_MAX && state.idle == 0 && state.jobs.is_empty()
}

#[tokio::test]
async fn a_disk_that_hangs_refuses_requests_and_then_continues() {
    let disk = Disk::new("/data".as_ref());
    let holding = hang(&disk);
    while !is_busy(&disk) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Long work and streams have their own threads.
    assert_eq!(disk.run_long(|| Ok::<_, Error>(1)).await.unwrap(), 1);
    assert_eq!(disk.thread("t", || Ok(2)).await.unwrap(), 2);
    let waiting: Vec<_> = (0..WAITING_MAX).map(|at| disk.submit(&disk.short, move || Ok::<_, Error>(at))).collect();
    assert!(waiting.iter().all(Result::is_ok));
    let error = disk.run(|| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.starts_with("disk of /data: 1024 requests wait"), "{error}");
    drop(holding);
    for (at, result) in waiting.into_iter().enumerate() {
        assert_eq!(result.unwrap().await.unwrap().unwrap(), at);
    }
    assert!(disk.short.lock().threads <= THREADS_MAX);
}

#[tokio::test]
async fn a_disk_that_does_not_respond_is_an_error_after_the_timeout() {
    let disk = Disk { answer_timeout: Duration::from_millis(300), ..Disk::new("/data".as_ref()) };
    let _holding = hang(&disk);
    while !is_busy(&disk) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = disk.run(|| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(error.message, "disk of /data has not answered for 0 s; check the disk");
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_caller_only() {
    let disk = Disk::new("/data".as_ref());
    let error = disk.run(|| -> Result<(), Error> { panic!("on purpose") }).await.unwrap_err();
    assert!(error.message.contains("panicked"), "{error}");
    assert_eq!(disk.run(|| Ok::<_, Error>(3)).await.unwrap(), 3);
}
