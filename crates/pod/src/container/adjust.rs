//! Adjustments of NRI plugins to the specification of a container that is about to be created. Nothing was created from
//! the specification yet: if one adjustment cannot be applied, the container is not created.
//!
//! The crate `nri` bounds the number of entries. CDI devices come after everything else, because a plugin requests them by
//! names that the node's files explain.

mod linux;
mod mounts;
mod process;

use nri::messages::{self, Adjustment};
use oci::{Hooks, Spec};

use super::{
    prepare::{Draft, cdi_devices},
    spec::edits,
};
use crate::{Error, parts::Parts};

/// Applies adjustments to a draft. On an error the draft must not be used. Blocks.
pub(super) fn apply(parts: &Parts, draft: &mut Draft, adjustment: Adjustment) -> Result<(), Error> {
    try_apply(parts, draft, adjustment).map_err(|error| error.during("apply the adjustments of NRI plugins"))
}

fn try_apply(parts: &Parts, draft: &mut Draft, adjustment: Adjustment) -> Result<(), Error> {
    let Adjustment { annotations, mounts, env, hooks, linux, rlimits, cdi_devices, args } = adjustment;
    for (key, value) in annotations {
        match removed(&key) {
            Some(name) => _ = draft.spec.annotations.remove(name),
            None => _ = draft.spec.annotations.insert(key, value),
        }
    }
    add_hooks(&mut draft.spec, hooks.unwrap_or_default());
    process::apply(draft.spec.process.get_or_insert_default(), env, args, rlimits)?;
    linux::apply(draft, linux.unwrap_or_default())?;
    mounts::apply(draft, mounts)?;
    let names: Vec<String> = cdi_devices.into_iter().map(|device| device.name).collect();
    let edits = cdi_devices::edits(parts, &names)?;
    edits::apply(&mut draft.spec, &edits)?;
    mounts::add(draft, cdi_devices::mounts(&edits)?);
    Ok(())
}

/// Returns what a key names that requests a removal.
fn removed(key: &str) -> Option<&str> {
    key.strip_prefix('-')
}

fn add_hooks(spec: &mut Spec, new: messages::Hooks) {
    if new == messages::Hooks::default() {
        return;
    }
    let hook = |hook: messages::Hook| oci::Hook {
        path: hook.path,
        args: hook.args,
        env: hook.env,
        timeout: hook.timeout.map(|timeout| timeout.value),
    };
    let hooks = spec.hooks.get_or_insert_with(Hooks::default);
    hooks.prestart.extend(new.prestart.into_iter().map(hook));
    hooks.create_runtime.extend(new.create_runtime.into_iter().map(hook));
    hooks.create_container.extend(new.create_container.into_iter().map(hook));
    hooks.start_container.extend(new.start_container.into_iter().map(hook));
    hooks.poststart.extend(new.poststart.into_iter().map(hook));
    hooks.poststop.extend(new.poststop.into_iter().map(hook));
}
