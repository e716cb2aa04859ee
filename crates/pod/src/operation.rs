//! How an operation runs: to its end even without its callers ([`Completion`]), once for concurrent callers
//! ([`SingleFlight`]), within limits of concurrency, off the workers of the async runtime where it blocks, and undone
//! step by step where it fails.

mod blocking;
mod compilation_limit;
mod completion;
mod concurrency;
mod creation;
pub(crate) mod failpoint;
mod retry;
mod single_flight;
mod undo;

pub(crate) use blocking::blocking;
pub(crate) use compilation_limit::{CompilationLimit, PodCompilations};
pub(crate) use completion::to_completion;
pub use completion::{Completion, Panicked};
pub(crate) use concurrency::{ConcurrencyLimits, PodPrograms, with_timeout};
pub(crate) use creation::{CreationGuard, CreationState};
pub(crate) use retry::retry;
pub(crate) use single_flight::SingleFlight;
pub(crate) use undo::{Undo, with_undo};
