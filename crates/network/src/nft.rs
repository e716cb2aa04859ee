//! Our nftables table and its elements.

mod element;
mod ruleset;

use std::{path::Path, sync::Arc};

pub(crate) use element::{
    Element, Mapping, add_elements, bridge_elements, delete_elements, dump, port_elements, same_bridge_elements,
    subnet_elements,
};
pub(crate) use rtnl::nft::{Family, Table, Transaction};
pub(crate) use ruleset::{create, delete_table};

/// Returns the table of the daemon with this state directory: `pinion` for `/run/pinion`, and for example
/// `pinion/srv/other` otherwise. Characters that nft does not accept in a name are replaced by `_`. Each daemon of a node
/// has a table of its own, because a table is always replaced as a whole.
pub(crate) fn table_of(state: &Path, family: Family) -> Table {
    const NAME_MAX: usize = 200;
    let text = state.to_string_lossy();
    let accepted = |c: char| if c.is_ascii_alphanumeric() || "/._-".contains(c) { c } else { '_' };
    let tail: String = text.chars().rev().take(NAME_MAX).map(accepted).collect();
    let path: String = tail.chars().rev().collect();
    let name = if state == Path::new("/run/pinion") { "pinion".into() } else { format!("pinion{path}") };
    Table { family, name: Arc::from(name) }
}
