//! What can be seen of the engine from outside: health, statistics, metrics, failures, explanations. It observes
//! objects and changes none.

mod condition;
mod failures;
pub(crate) mod health;
mod metrics;
mod object_state;
mod stats;
pub(crate) mod why;

pub use condition::{Condition, Feature};
pub(crate) use failures::Failures;
pub(crate) use health::Health;
pub use health::{HealthInfo, Silence, StuckLog};
pub use metrics::{EXIT_REASONS, MONITOR_CONTRACT, Metrics, MonitorIdentity, ObjectCounts};
pub use object_state::{ObjectKind, ObjectState, Wait};
pub(crate) use stats::Statistics;
pub use stats::{
    ContainerStats, ExpensiveStats, Generation, HugePages, SandboxSample, SandboxStats, StatsList, Validity,
};
pub use why::{ContainerExit, Denial, DeniedBy, Explanation, OomKill, OomLimit};
