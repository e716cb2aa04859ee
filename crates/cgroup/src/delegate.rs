//! Controllers of the v2 tree: enabled from the root down to the group's parent.

use rustix::io::Errno;

use crate::{
    Error, GroupPath, Hierarchies, Limits, apply,
    controller::{Controller, Controllers},
    tree::Tree,
};

/// How many controllers a group gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All that are of use, because stats need them too.
    Useful,
    /// Those that limits ask for: the rest is systemd's to give.
    Needed,
}

/// Enables what the group needs. Where the v2 tree has the controllers, all that are of use, because stats need them
/// too; beside v1 trees only what the limits ask for and v1 does not have.
pub(crate) fn enable(
    trees: &Hierarchies,
    tree: &Tree,
    path: &GroupPath,
    limits: &Limits,
    extent: Extent,
) -> Result<(), Error> {
    let (mut wanted, mut needed) = (Controllers::default(), Controllers::default());
    for controller in apply::ORDER {
        let here = trees.with(controller).is_some_and(|with| std::ptr::eq(with, tree));
        if here && apply::field_of(limits, controller, true).is_some() {
            // What only might be written is tried for, and not missed.
            let set = if apply::is_required(limits, controller, true) { &mut needed } else { &mut wanted };
            set.add(controller);
        }
        if here && extent == Extent::Useful && trees.layout() == crate::Layout::V2 {
            wanted.add(controller);
        }
    }
    for (controller, file, _) in &limits.unified {
        if !tree.controllers.has(*controller) {
            let reason = "the v2 tree does not have it; set the limit by its own field".to_owned();
            return Err(unavailable(path, format!("unified.{file}"), *controller, reason));
        }
        needed.add(*controller);
    }
    let wanted = needed.iter().fold(wanted, |mut set, controller| {
        set.add(controller);
        set
    });
    if wanted.is_empty() || wanted.without(offered(tree, path.relative())?).is_empty() {
        return Ok(());
    }
    let mut failures = Vec::new();
    open_way(tree, path, wanted, &mut failures)?;
    let missing = needed.without(offered(tree, path.relative())?);
    match missing.iter().next() {
        None => Ok(()),
        Some(controller) => {
            let field = apply::field_of(limits, controller, true).unwrap_or("a limit").to_owned();
            let cause = failures.into_iter().find(|(of, _)| *of == controller).map(|(_, cause)| cause);
            let reason = cause.unwrap_or_else(|| "it is not enabled at the tree's root".into());
            Err(unavailable(path, field, controller, reason))
        }
    }
}

fn unavailable(path: &GroupPath, field: String, controller: Controller, reason: String) -> Error {
    let name = controller.v2_name().unwrap_or(controller.v1_name());
    Error::Unavailable { path: path.to_string(), field, controller: name, reason }
}

/// What a group may use: what its parent enabled for it.
fn offered(tree: &Tree, path: &str) -> Result<Controllers, Error> {
    Ok(Controllers::of_v2_list(&tree.read(&format!("{path}/cgroup.controllers"))?))
}

/// Writes `+controller` into every ancestor's `cgroup.subtree_control`, one at a time: one that cannot be had must not
/// stop the others.
fn open_way(
    tree: &Tree,
    path: &GroupPath,
    wanted: Controllers,
    failures: &mut Vec<(Controller, String)>,
) -> Result<(), Error> {
    let parents = path.ancestry().filter(|group| group != path).map(|group| format!("{}/", group.relative()));
    for parent in std::iter::once(String::new()).chain(parents) {
        let file = format!("{parent}cgroup.subtree_control");
        let enabled = Controllers::of_v2_list(&tree.read(&file)?);
        let lacking = wanted.without(enabled);
        // The kernel would let some of them be enabled beside processes, and make the groups below unusable by that
        // ("domain invalid"). Only the root may have both.
        let busy = !lacking.is_empty() && !parent.is_empty() && has_process(tree, &parent);
        for controller in lacking.iter() {
            let Some(name) = controller.v2_name() else { continue };
            let enabled = if busy { Err(Errno::BUSY) } else { tree.try_write(&file, &format!("+{name}")) };
            if let Err(errno) = enabled {
                failures.push((controller, explain(tree, &file, &parent, errno)));
            }
        }
    }
    Ok(())
}

fn has_process(tree: &Tree, group: &str) -> bool {
    tree.try_read(&format!("{group}cgroup.procs")).is_ok_and(|list| !list.is_empty())
}

fn explain(tree: &Tree, file: &str, parent: &str, errno: Errno) -> String {
    let file = tree.describe(file);
    match errno {
        Errno::BUSY => {
            let pid = tree.try_read(&format!("{parent}cgroup.procs")).ok();
            let pid = pid.as_deref().and_then(|list| list.lines().next()).unwrap_or("a process").to_owned();
            format!("{file} cannot be changed while a process ({pid}) is in that group; move it to a child group")
        }
        Errno::NOENT => format!("{file}: the group above does not offer it"),
        Errno::OPNOTSUPP => format!("{file}: that group is threaded; choose another parent"),
        errno => format!("{file}: {errno}"),
    }
}
