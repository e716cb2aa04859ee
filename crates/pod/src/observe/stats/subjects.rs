use std::sync::Arc;

use crate::{
    node::Node,
    store::{Container, Registry, Sandbox},
};

/// What is measured: the objects on record, on this node.
pub(crate) struct Subjects {
    pub(super) node: Arc<Node>,
    pub(super) registry: Arc<Registry>,
}

/// The objects that a request is about.
pub(super) struct Targets {
    pub(super) containers: Vec<Arc<Container>>,
    pub(super) sandboxes: Vec<Arc<Sandbox>>,
}
