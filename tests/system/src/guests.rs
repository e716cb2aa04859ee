use std::env;

use crate::{Node, Options};

/// Starts a node with the runtime handler `vm`, which has these keys in addition, and the image of the tests. Guests are emulated if
/// this machine cannot run them. PINION_VM_IMAGE is the directory of their image (`pinion vm image`).
///
/// # Panics
/// Panics without that image.
pub fn node_with_guests(keys: &str) -> Node {
    let image = env::var("PINION_VM_IMAGE").expect("PINION_VM_IMAGE is the directory of an image");
    let config = format!(
        "[handlers.vm]\nkind = \"vm\"\nallow_emulation = true\nboot_timeout = \"60s\"\nimage = \"{image}\"\n{keys}\n"
    );
    let node = Node::with(Options { config, ..Options::default() });
    node.load_image();
    node
}
