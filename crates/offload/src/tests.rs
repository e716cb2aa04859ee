use std::{
    io::{Read, Write},
    os::unix::net::UnixStream as Stream,
    sync::mpsc,
    time::{Duration, Instant},
};

use tokio::{io::AsyncReadExt, net::UnixStream, sync::oneshot, time::timeout};

use super::*;

/// Timeout that only ends tests that hang; it measures nothing.
const LONG: Duration = Duration::from_secs(10);

/// Spawns four tasks that each wake another task and then block until that task has ended.
async fn block_with_woken_tasks<T: Send + 'static>(
    block: impl Fn(oneshot::Sender<()>, mpsc::Receiver<()>) -> JoinHandle<T>,
) {
    let (mut blocked, mut woken) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (wake, waiting) = oneshot::channel::<()>();
        let (release, released) = mpsc::channel::<()>();
        woken.push(tokio::spawn(async move { waiting.await.expect("woken") }));
        blocked.push((block(wake, released), release));
    }
    for task in woken {
        timeout(LONG / 2, task).await.expect("not delayed").expect("no panic");
    }
    for (task, release) in blocked {
        release.send(()).expect("the task is blocked");
        task.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_tasks_delay_neither_tasks_they_woke_nor_others() {
    block_with_woken_tasks(|wake, released| {
        spawn(async move {
            wake.send(()).expect("the woken task is waiting");
            released.recv_timeout(LONG).expect("released");
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn blocking_calls_delay_neither_tasks_woken_before_nor_others() {
    block_with_woken_tasks(|wake, released| {
        tokio::spawn(async move {
            wake.send(()).expect("the woken task is waiting");
            in_place(|| released.recv_timeout(LONG)).expect("released");
        })
    })
    .await;
}

/// The worker that polled the I/O driver runs the task that it woke, while all other workers sleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_call_does_not_block_the_io_driver() {
    for round in 0..20 {
        if round == 10 {
            // The timer has expired by now.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (mut first, mut other) = (Stream::pair().expect("pair"), Stream::pair().expect("pair"));
        let (release, released) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let blocks = tokio::spawn(async move {
            let mut stream = asynchronous(first.1);
            stream.read_u8().await.expect("a byte");
            in_place(|| {
                began.send(()).expect("the other thread is waiting");
                released.recv_timeout(LONG)
            })
            .expect("released");
        });
        let replies = tokio::spawn(async move {
            let mut stream = asynchronous(other.1);
            let byte = stream.read_u8().await.expect("a byte");
            tokio::io::AsyncWriteExt::write_u8(&mut stream, byte).await.expect("write the byte");
        });
        let outside = std::thread::spawn(move || {
            // Wait until both tasks are waiting and all workers are asleep.
            std::thread::sleep(Duration::from_millis(20));
            first.0.write_all(&[1]).expect("write");
            begun.recv_timeout(LONG).expect("the call has started");
            let start = Instant::now();
            other.0.set_read_timeout(Some(LONG / 2)).expect("timeout");
            other.0.write_all(&[2]).expect("write");
            other.0.read_exact(&mut [0]).expect("a reply while the call blocks");
            release.send(()).expect("the call is blocked");
            start.elapsed()
        });
        // This await does not wake a worker.
        blocks.await.expect("no panic");
        replies.await.expect("no panic");
        let took = outside.join().expect("no panic");
        assert!(took < LONG / 2, "{took:?}");
    }
}

fn asynchronous(stream: Stream) -> UnixStream {
    stream.set_nonblocking(true).expect("a descriptor");
    UnixStream::from_std(stream).expect("registered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_worker_hands_its_tasks_over() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let blocked: Vec<_> = (0..8)
        .map(|_| {
            let released = std::sync::Arc::clone(&released);
            tokio::spawn(async move {
                in_place(|| released.lock().expect("no panic").recv_timeout(LONG)).expect("released")
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    timeout(LONG / 2, tokio::spawn(async {})).await.expect("not delayed").expect("no panic");
    (0..8).for_each(|_| release.send(()).expect("the calls are blocked"));
    for task in blocked {
        task.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_resets_permission_and_count() {
    for _ in 0..4 {
        let panicked = tokio::spawn(async { in_place(|| panic!("caused by the test")) }).await;
        assert!(panicked.is_err());
        tokio::spawn(async { assert!(!MAY_BLOCK.get()) }).await.expect("not permitted");
    }
    let registration = Blocking::begin(&Handle::current());
    assert!(registration.is_some(), "one of two workers may be blocked");
}

#[tokio::test]
async fn a_single_threaded_runtime_is_supported() {
    assert_eq!(spawn(async { in_place(|| 7) }).await.expect("no panic"), 7);
    assert_eq!(blocking(|| in_place(|| 7)).await.expect("no panic"), 7);
}

/// Returns the number of armed timers of this process (proc_pid_fdinfo(5)).
fn armed_timers() -> usize {
    let entries = std::fs::read_dir("/proc/self/fdinfo").expect("fdinfo");
    let texts = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts.filter(|text| text.contains("it_value:") && !text.contains("it_value: (0, 0)")).count()
}

/// Runs in a separate process, because the timer is shared by the whole process.
#[test]
fn the_timer_is_disarmed_while_nothing_blocks() {
    const INSIDE: &str = "OFFLOAD_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("this program");
        let run = std::process::Command::new(this)
            .args(["tests::the_timer_is_disarmed_while_nothing_blocks", "--exact"])
            .env(INSIDE, "1")
            .output()
            .expect("run the test");
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        tokio::spawn(async {
            for _ in 0..3 {
                assert_eq!(in_place(armed_timers), 1);
                assert_eq!(armed_timers(), 0);
            }
        })
        .await
        .expect("no panic");
    });
}
