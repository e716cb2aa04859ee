//! Points of an operation where a power cut matters. Tests copy the disk there (feature `failpoint`); without the
//! feature nothing is compiled in.

#[cfg(feature = "failpoint")]
static OBSERVER: std::sync::OnceLock<Box<dyn Fn(&'static str) + Send + Sync>> = std::sync::OnceLock::new();

/// Calls `observer` with the name of each point that any store of this process reaches, on the thread that reaches it.
/// Only the first observer is used.
#[cfg(feature = "failpoint")]
pub fn observe(observer: impl Fn(&'static str) + Send + Sync + 'static) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// Reports that the calling thread reached `point`.
pub(crate) fn reached(point: &'static str) {
    #[cfg(feature = "failpoint")]
    if let Some(observer) = OBSERVER.get() {
        observer(point);
    }
    #[cfg(not(feature = "failpoint"))]
    let _ = point;
}
