//! The lowest memory limit at which `true` runs.

use std::io;

use super::{
    Contestant,
    bundle::{self, Bundle, Shape},
};

const STEP_KIB: u64 = 4;
const MOST_KIB: u64 = 32 << 10;
/// So often it must run.
const TIMES: usize = 10;

/// KiB, by contestant.
pub(crate) fn lowest(contestants: &mut [Contestant], base: &Bundle) -> io::Result<Vec<Option<u64>>> {
    contestants.iter_mut().map(|contestant| lowest_of(contestant, base)).collect()
}

fn lowest_of(contestant: &mut Contestant, base: &Bundle) -> io::Result<Option<u64>> {
    if !contestant.runtime.is_whole() {
        return Ok(None);
    }
    let bundle = base.sibling(&format!("{}-memory", contestant.runtime.name))?;
    let (mut fails, mut runs) = (0, MOST_KIB);
    while runs - fails > STEP_KIB {
        let middle = (fails + runs) / 2 / STEP_KIB * STEP_KIB;
        let group = format!("{}-memory", contestant.group);
        let shape = Shape { args: &["true"], group: &group, memory: middle << 10, seccomp: true };
        bundle.write(&bundle::spec(&shape, &base.rootfs()))?;
        let mut good = true;
        for number in 0..TIMES {
            let id = format!("bench-memory-{middle}-{number}");
            let words = contestant.runtime.run(&bundle.directory, &group, &id);
            if contestant.runner.run(words, 0)?.code != 0 {
                good = false;
                // Some leave their state behind when the kernel kills them.
                let _ = contestant.runner.run(contestant.runtime.words(&["delete", "--force", &id]), 0)?;
                break;
            }
        }
        if good { runs = middle } else { fails = middle }
    }
    Ok(Some(runs))
}
