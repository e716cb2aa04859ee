//! Creation and deletion of many namespaces, and their memory.

use std::{
    thread,
    time::{Duration, Instant},
};

use netns::{Memory, Namespace, WeakNamespace};

use super::{
    plan::{name, pins},
    report::Burst,
};
use crate::engine::Failure;

/// Longest time that the kernel may take to destroy the namespaces.
const GONE: Duration = Duration::from_secs(120);

/// Creates and deletes namespaces in each way.
pub(super) fn measure(namespaces: usize) -> Result<Burst, Failure> {
    eprintln!("{namespaces} namespaces: creation and deletion");
    let begin = Instant::now();
    for _ in 0..namespaces {
        drop(Namespace::create()?);
    }
    let create_and_drop_ms = milliseconds(begin);
    settle();
    let before = Memory::now()?;
    let begin = Instant::now();
    let many = Namespace::create_many(namespaces, 0)?.collect::<Result<Vec<Namespace>, _>>()?;
    let create_many_ms = milliseconds(begin);
    let kib_per_namespace = Memory::now()?.per_namespace(&before, namespaces) as f64 / 1024.0;
    let group = pins()?;
    let begin = Instant::now();
    for (number, namespace) in many.iter().enumerate() {
        group.pins().pin(&name(number), namespace)?;
    }
    let pin_ms = milliseconds(begin);
    let begin = Instant::now();
    for number in 0..namespaces {
        group.pins().unpin(&name(number))?;
    }
    let unpin_ms = milliseconds(begin);
    for (number, namespace) in many.iter().enumerate() {
        group.pins().pin(&name(number), namespace)?;
    }
    let references: Vec<WeakNamespace> = many.iter().filter_map(|namespace| namespace.downgrade().ok()).collect();
    drop(many);
    let begin = Instant::now();
    group.delete()?;
    let delete_group_ms = milliseconds(begin);
    let gone_ms = gone(&references, begin);
    settle();
    Ok(Burst {
        namespaces,
        create_and_drop_ms,
        create_many_ms,
        kib_per_namespace,
        pin_ms,
        unpin_ms,
        delete_group_ms,
        gone_ms,
    })
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1000.0
}

/// Returns the time until no namespace can be entered; `None` without weak references (before Linux 6.18).
fn gone(references: &[WeakNamespace], begin: Instant) -> Option<f64> {
    while !references.is_empty() && begin.elapsed() < GONE {
        if references.iter().all(|reference| reference.upgrade().is_err()) {
            return Some(milliseconds(begin));
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Waits until the kernel has destroyed what was deleted, so that it does not delay what follows: a new namespace waits
/// for the destruction that is in progress.
fn settle() {
    thread::sleep(Duration::from_millis(500));
}
