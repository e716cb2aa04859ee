//! The events that plugins subscribe to, by their numbers in the protocol.

/// An event in the life of a pod or a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Event {
    RunPodSandbox = 1,
    StopPodSandbox = 2,
    RemovePodSandbox = 3,
    CreateContainer = 4,
    PostCreateContainer = 5,
    StartContainer = 6,
    PostStartContainer = 7,
    UpdateContainer = 8,
    PostUpdateContainer = 9,
    StopContainer = 10,
    RemoveContainer = 11,
    UpdatePodSandbox = 12,
    PostUpdatePodSandbox = 13,
    ValidateContainerAdjustment = 14,
}

/// Number of events.
const EVENTS: u32 = 14;
/// A subscription to all events.
pub(crate) const ALL: i32 = (1 << EVENTS) - 1;

impl Event {
    /// The method of the service `Plugin` that delivers it.
    pub(crate) fn method(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn is_in(self, subscription: i32) -> bool {
        subscription & (1 << (self as i32 - 1)) != 0
    }

    /// Whether older plugins get it by `StateChange`.
    pub(crate) fn has_old_form(self) -> bool {
        !matches!(
            self,
            Self::CreateContainer | Self::UpdateContainer | Self::StopContainer | Self::ValidateContainerAdjustment
        )
    }
}
