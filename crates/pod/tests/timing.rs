//! Repeats the lifecycle of a pod: no descriptor leaks, and the duration of each stage is printed (`--nocapture`), not
//! asserted.

mod node;

use std::time::{Duration, Instant};

use node::{TIMEOUT, output_on_a_node, script};
use testbed::wait_until;

/// Returns the number of open descriptors. The pool of network namespaces may have another size, and layers are deleted
/// in the background, so a few more for a moment are not a leak.
fn open_descriptors() -> usize {
    testbed::descriptors("/proc/self")
}

#[test]
fn repeated_lifecycles_leak_no_descriptors() {
    let output = output_on_a_node(|node| async move {
        let engine = node.open_with_image().await;
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        let mut descriptors = 0;
        for round in 0..30 {
            if round == 10 {
                descriptors = open_descriptors();
            }
            let mut stages = Vec::new();
            let mut last = Instant::now();
            let mut lap = |stages: &mut Vec<f64>| {
                stages.push(last.elapsed().as_secs_f64() * 1e3);
                last = Instant::now();
            };
            let pod = engine.run_sandbox(node.sandbox(&format!("p{round}"))).await.expect("run");
            lap(&mut stages);
            let id = engine.create_container(&pod, script("c", "exec sleep 1000")).await.expect("create");
            lap(&mut stages);
            engine.start_container(&id).await.expect("start");
            lap(&mut stages);
            engine.exec_sync(&id, vec!["true".into()], TIMEOUT).await.expect("exec");
            lap(&mut stages);
            engine.stop_container(&id, Duration::ZERO).await.expect("stop");
            lap(&mut stages);
            engine.remove_container(&id).await.expect("remove");
            lap(&mut stages);
            engine.stop_sandbox(&pod).await.expect("stop pod");
            lap(&mut stages);
            engine.remove_sandbox(&pod).await.expect("remove pod");
            lap(&mut stages);
            stages.push(stages.iter().sum());
            rounds.push(stages);
        }
        wait_until("all descriptors of earlier rounds are closed", TIMEOUT, || open_descriptors() <= descriptors + 4);
        let names = ["run", "create", "start", "exec", "stop", "remove", "stop pod", "remove pod", "total"];
        println!("     stage   median [minimum]");
        for (at, name) in names.iter().enumerate() {
            let mut times: Vec<f64> = rounds.iter().map(|stages| stages[at]).collect();
            times.sort_by(f64::total_cmp);
            println!("{name:>10} {:7.2} ms [{:.2}]", times[times.len() / 2], times[0]);
        }
        node.assert_nothing_left(engine).await;
    });
    println!("{output}");
}
