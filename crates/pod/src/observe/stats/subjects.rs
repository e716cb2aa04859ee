use std::sync::Arc;

use crate::{node::Node, store::Registry};

/// What is measured: the objects on record, on this node.
pub(crate) struct Subjects {
    pub(super) node: Arc<Node>,
    pub(super) registry: Arc<Registry>,
}
