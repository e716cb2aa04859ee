//! What a pod or container is, in which state, and what it waits for, as [`crate::Engine::why`] reports it.

/// Kind of an object that [`crate::Engine::why`] explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A pod.
    Pod,
    /// A container.
    Container,
}

/// State of a pod or container, also of one that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Its creation is in progress.
    BeingCreated,
    /// It could not be created, and was removed.
    NotCreated,
    /// A container that could not be created, and has not been removed yet.
    RollbackPending,
    /// A pod in which containers can be created.
    Ready,
    /// A pod whose creation ended without success.
    NotReady,
    /// A stopped pod.
    Stopped,
    /// A container that was not started yet.
    Created,
    /// A container whose program is being started.
    Starting,
    /// A running container.
    Running,
    /// A container that exited.
    Exited,
    /// A container that could not be started, and was removed.
    NotStarted,
}

/// What a pod or container waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A stage of its creation.
    Stage(String),
    /// A network plugin that is running.
    NetworkPlugin {
        /// Name of the plugin.
        name: String,
        /// Command of the CNI, such as `ADD`.
        command: String,
    },
    /// The request to start it.
    Start,
    /// The execve of its program.
    Execve,
    /// The exit of its processes.
    Exit,
}
