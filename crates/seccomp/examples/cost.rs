//! What the default profile costs: to write down, compile, find in the cache, and load (medians). As root.

use std::time::{Duration, Instant};

const TIMES: usize = 501;

fn median(mut work: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..TIMES).map(|_| work()).collect();
    times.sort_unstable();
    times[TIMES / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    let result = work();
    let took = begun.elapsed();
    drop(result);
    took
}

fn main() -> Result<(), seccomp::Error> {
    let capabilities = ["CAP_NET_BIND_SERVICE".to_owned()];
    let profile = seccomp::default_profile(&capabilities);
    let first = timed(|| seccomp::compile(&profile));
    let program = seccomp::compile(&profile)?;
    let cache = seccomp::Cache::default();
    cache.compile(&profile)?;
    println!("{} instructions", program.instructions());
    println!("write down  {:?}", median(|| timed(|| seccomp::default_profile(&capabilities))));
    println!("compile     {:?} (the first time {first:?})", median(|| timed(|| seccomp::compile(&profile))));
    println!("from cache  {:?}", median(|| timed(|| cache.compile(&profile))));
    // A thread each: what is loaded stays.
    let load = || timed(|| syscall::seccomp::load_filter(&program.filter, program.flags).expect("loaded; run as root"));
    println!(
        "load        {:?}",
        median(|| std::thread::scope(|scope| scope.spawn(load).join().expect("the thread ends")))
    );
    Ok(())
}
