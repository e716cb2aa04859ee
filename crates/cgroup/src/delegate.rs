//! Enables controllers of the v2 tree, from the root down to the group's parent.

use rustix::io::Errno;

use crate::{
    Error, GroupPath, Hierarchies, Limits, apply,
    controller::{Controller, Controllers},
    tree::Tree,
};

/// Attempts to enable controllers: systemd disables those in a slice that no unit below it needs, also while a group is
/// created there that it does not know yet.
const RACES_MAX: u32 = 16;

/// Which controllers a group gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerSet {
    /// All supported ones, because statistics need them, too.
    All,
    /// Those that limits need; systemd enables the others.
    Limited,
}

/// Enables the controllers that the group needs. In a pure v2 layout these are all supported controllers, because
/// statistics need them, too; next to v1 trees only those that the limits need and v1 does not have.
pub(crate) fn enable(
    trees: &Hierarchies,
    tree: &Tree,
    path: &GroupPath,
    limits: &Limits,
    set: ControllerSet,
) -> Result<(), Error> {
    let (mut useful, mut required) = (Controllers::default(), Controllers::default());
    for controller in apply::ORDER {
        let here = trees.with(controller).is_some_and(|with| std::ptr::eq(with, tree));
        if here && apply::first_field(limits, controller, true).is_some() {
            // A controller of optional settings is enabled if possible, and its absence is not an error.
            let controllers = if apply::is_required(limits, controller, true) { &mut required } else { &mut useful };
            controllers.add(controller);
        }
        if here && set == ControllerSet::All && trees.layout() == crate::Layout::V2 {
            useful.add(controller);
        }
    }
    for (controller, file, _) in &limits.unified {
        if !tree.controllers.has(*controller) {
            let reason = "the v2 hierarchy does not have it; set the limit by its own field".to_owned();
            return Err(unavailable(path, format!("unified.{file}"), *controller, reason));
        }
        required.add(*controller);
    }
    let useful = required.iter().fold(useful, |mut set, controller| {
        set.add(controller);
        set
    });
    if useful.is_empty() || useful.without(available(tree, path.relative())?).is_empty() {
        return Ok(());
    }
    let (mut failures, mut missing) = (Vec::new(), required);
    for _ in 0..RACES_MAX {
        failures.clear();
        enable_in_ancestors(tree, path, useful, &mut failures)?;
        missing = required.without(available(tree, path.relative())?);
        if missing.is_empty() {
            break;
        }
    }
    match missing.iter().next() {
        None => Ok(()),
        Some(controller) => {
            let field = apply::first_field(limits, controller, true).unwrap_or("a limit").to_owned();
            let cause = failures.into_iter().find(|(failed, _)| *failed == controller).map(|(_, cause)| cause);
            let reason = cause.unwrap_or_else(|| "it is not enabled in the root cgroup".into());
            Err(unavailable(path, field, controller, reason))
        }
    }
}

fn unavailable(path: &GroupPath, field: String, controller: Controller, reason: String) -> Error {
    let name = controller.v2_name().unwrap_or(controller.v1_name());
    Error::Unavailable { path: path.to_string(), field, controller: name, reason }
}

/// Returns the controllers that are available to a group: those that its parent enabled.
fn available(tree: &Tree, path: &str) -> Result<Controllers, Error> {
    Ok(Controllers::from_v2_list(&tree.read(&format!("{path}/cgroup.controllers"))?))
}

/// Writes `+controller` to `cgroup.subtree_control` of every ancestor, one controller per write, so that one that
/// cannot be enabled does not prevent the others.
fn enable_in_ancestors(
    tree: &Tree,
    path: &GroupPath,
    useful: Controllers,
    failures: &mut Vec<(Controller, String)>,
) -> Result<(), Error> {
    let parents = path.prefixes().filter(|group| group != path).map(|group| format!("{}/", group.relative()));
    for parent in std::iter::once(String::new()).chain(parents) {
        let file = format!("{parent}cgroup.subtree_control");
        let enabled = Controllers::from_v2_list(&tree.read(&file)?);
        let missing = useful.without(enabled);
        // The kernel would allow to enable some controllers in a group with processes, but the groups below would
        // become unusable ("domain invalid"). Only the root may have both.
        let busy = !missing.is_empty() && !parent.is_empty() && has_process(tree, &parent);
        for controller in missing.iter() {
            let Some(name) = controller.v2_name() else { continue };
            let enabled = if busy { Err(Errno::BUSY) } else { tree.try_write(&file, &format!("+{name}")) };
            if let Err(errno) = enabled {
                failures.push((controller, failure_reason(tree, &file, &parent, errno)));
            }
        }
    }
    Ok(())
}

fn has_process(tree: &Tree, group: &str) -> bool {
    tree.try_read(&format!("{group}cgroup.procs")).is_ok_and(|list| !list.is_empty())
}

fn failure_reason(tree: &Tree, file: &str, parent: &str, errno: Errno) -> String {
    let file = tree.describe(file);
    match errno {
        Errno::BUSY => {
            let pid = tree.try_read(&format!("{parent}cgroup.procs")).ok();
            let pid = pid.as_deref().and_then(|list| list.lines().next()).unwrap_or("a process").to_owned();
            format!("{file}: the cgroup contains processes ({pid}); move them to a child cgroup")
        }
        Errno::NOENT => format!("{file}: the parent cgroup has not enabled it"),
        Errno::OPNOTSUPP => format!("{file}: the cgroup is threaded; choose another parent"),
        errno => format!("{file}: {errno}"),
    }
}
