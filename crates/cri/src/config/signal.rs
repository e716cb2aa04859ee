use cri_proto::v1;
use pod::Signal;

/// Returns the kernel's number of a signal; `None` for `SIGNAL_RUNTIME_DEFAULT`.
pub(crate) fn number(signal: v1::Signal) -> Option<i32> {
    let name = signal.as_str_name().strip_prefix("SIGNAL_SIG")?;
    Signal::parse(&name.replace("PLUS", "+").replace("MINUS", "-")).map(Signal::number)
}

/// Returns the enum value for a signal number of the kernel.
pub(crate) fn message(signal: i32) -> v1::Signal {
    (1..=65)
        .filter_map(|value| v1::Signal::try_from(value).ok())
        .find(|s| number(*s) == Some(signal))
        .unwrap_or_default()
}
