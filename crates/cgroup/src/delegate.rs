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
    let required = required(trees, tree, path, limits)?;
    let mut useful = required;
    for controller in apply::ORDER.into_iter().filter(|controller| is_in(trees, *controller, tree)) {
        // A controller of optional settings is enabled if possible, and its absence is not an error.
        let is_limited = apply::first_field(limits, controller, true).is_some();
        if is_limited || set == ControllerSet::All && trees.layout() == crate::Layout::V2 {
            useful.add(controller);
        }
    }
    if useful.is_empty() || useful.without(available(tree, path.relative())?).is_empty() {
        return Ok(());
    }
    let (mut failures, mut missing) = (Vec::new(), required);
    for _ in 0..RACES_MAX {
        failures.clear();
        enable_in(tree, path.prefixes().filter(|group| group != path), useful, &mut failures)?;
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

/// Reports whether the controllers that the limits cannot do without are enabled for the group.
pub(crate) fn is_enabled(trees: &Hierarchies, tree: &Tree, path: &GroupPath, limits: &Limits) -> Result<bool, Error> {
    let required = required(trees, tree, path, limits)?;
    Ok(required.is_empty() || required.without(available(tree, path.relative())?).is_empty())
}

/// Enables all supported controllers of the tree in a group, for children of it, and in all groups above it. One that
/// cannot be enabled is left out.
pub(crate) fn enable_below(trees: &Hierarchies, tree: &Tree, path: &GroupPath) -> Result<(), Error> {
    let mut useful = Controllers::default();
    for controller in apply::ORDER.into_iter().filter(|controller| is_in(trees, *controller, tree)) {
        useful.add(controller);
    }
    for _ in 0..RACES_MAX {
        enable_in(tree, path.prefixes(), useful, &mut Vec::new())?;
        let enabled = Controllers::from_v2_list(&tree.read(&format!("{}/cgroup.subtree_control", path.relative()))?);
        if useful.without(enabled).is_empty() {
            break;
        }
    }
    Ok(())
}

/// Returns the controllers without which the limits cannot be applied.
fn required(trees: &Hierarchies, tree: &Tree, path: &GroupPath, limits: &Limits) -> Result<Controllers, Error> {
    let mut required = Controllers::default();
    for controller in apply::ORDER.into_iter().filter(|controller| is_in(trees, *controller, tree)) {
        if apply::is_required(limits, controller, true) {
            required.add(controller);
        }
    }
    for (controller, file, _) in &limits.unified {
        if !tree.controllers.has(*controller) {
            let reason = "the v2 hierarchy does not have it; set the limit by its own field".to_owned();
            return Err(unavailable(path, format!("unified.{file}"), *controller, reason));
        }
        required.add(*controller);
    }
    Ok(required)
}

fn is_in(trees: &Hierarchies, controller: Controller, tree: &Tree) -> bool {
    trees.with(controller).is_some_and(|with| std::ptr::eq(with, tree))
}

fn unavailable(path: &GroupPath, field: String, controller: Controller, reason: String) -> Error {
    let name = controller.v2_name().unwrap_or(controller.v1_name());
    Error::Unavailable { path: path.to_string(), field, controller: name, reason }
}

/// Returns the controllers that are available to a group: those that its parent enabled.
fn available(tree: &Tree, path: &str) -> Result<Controllers, Error> {
    Ok(Controllers::from_v2_list(&tree.read(&format!("{path}/cgroup.controllers"))?))
}

/// Writes `+controller` to `cgroup.subtree_control` of the root and of these groups, parents first: all controllers in one
/// write, and if that fails, one controller per write, so that one that cannot be enabled does not prevent the others.
fn enable_in(
    tree: &Tree,
    groups: impl Iterator<Item = GroupPath>,
    useful: Controllers,
    failures: &mut Vec<(Controller, String)>,
) -> Result<(), Error> {
    let parents = groups.map(|group| format!("{}/", group.relative()));
    for parent in std::iter::once(String::new()).chain(parents) {
        let file = format!("{parent}cgroup.subtree_control");
        let enabled = Controllers::from_v2_list(&tree.read(&file)?);
        let missing = useful.without(enabled);
        // The kernel would allow to enable some controllers in a group with processes, but the groups below would
        // become unusable ("domain invalid"). Only the root may have both.
        let busy = !missing.is_empty() && !parent.is_empty() && has_process(tree, &parent);
        let words: Vec<String> = missing.iter().filter_map(|c| Some(format!("+{}", c.v2_name()?))).collect();
        if words.is_empty() || !busy && tree.try_write(&file, &words.join(" ")).is_ok() {
            continue;
        }
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
