//! Measures the default profile: building, compiling, looking it up in the cache, and loading (medians). Run as root.

use std::time::{Duration, Instant};

const TIMES: usize = 501;

fn median(mut work: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..TIMES).map(|_| work()).collect();
    times.sort_unstable();
    times[TIMES / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let result = work();
    let duration = start.elapsed();
    drop(result);
    duration
}

fn main() -> Result<(), seccomp::Error> {
    let capabilities = ["CAP_NET_BIND_SERVICE".to_owned()];
    let profile = seccomp::default_profile(&capabilities);
    let first = timed(|| seccomp::compile(&profile));
    let program = seccomp::compile(&profile)?;
    let cache = seccomp::Cache::default();
    cache.compile(&profile)?;
    println!("{} instructions", program.instructions());
    println!("build       {:?}", median(|| timed(|| seccomp::default_profile(&capabilities))));
    println!("compile     {:?} (the first time {first:?})", median(|| timed(|| seccomp::compile(&profile))));
    println!("from cache  {:?}", median(|| timed(|| cache.compile(&profile))));
    // One thread for each load, because a filter cannot be unloaded.
    let load = || {
        timed(|| {
            syscall::seccomp::load_filter(&program.filter, program.flags).expect("load the filter (are you root?)")
        })
    };
    println!(
        "load        {:?}",
        median(|| std::thread::scope(|scope| scope.spawn(load).join().expect("join the thread")))
    );
    Ok(())
}
