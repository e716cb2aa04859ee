use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One probe of a victim.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Time at which it was sent.
    pub(crate) sent: Instant,
    /// Time until the response.
    pub(crate) duration: Duration,
}

/// All probes and faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Record {
    samples: Mutex<Vec<Sample>>,
    faults: Mutex<Vec<String>>,
    longest_log_gap: Mutex<Duration>,
}

/// Maximum number of faults that are printed when they occur: a killed daemon causes hundreds.
const PRINTED_MAX: usize = 20;

impl Record {
    /// Adds a probe.
    pub(crate) fn sample(&self, sample: Sample) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }

    /// Adds a fault.
    pub(crate) fn fault(&self, fault: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(fault);
        if faults.len() <= PRINTED_MAX {
            println!("  fault: {}", faults[faults.len() - 1]);
        }
    }

    /// Adds the time since the log of a victim has grown.
    pub(crate) fn log_gap(&self, gap: Duration) {
        let mut longest = self.longest_log_gap.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = gap.max(*longest);
    }

    /// Returns the longest time in which the log of a victim did not grow, since the previous call.
    pub(crate) fn take_longest_log_gap(&self) -> Duration {
        std::mem::take(&mut *self.longest_log_gap.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of faults so far.
    pub(crate) fn fault_count(&self) -> usize {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the faults from this number on.
    pub(crate) fn faults_from(&self, first: usize) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)[first..].to_vec()
    }

    /// Returns a summary of the probes sent in a time window.
    pub(crate) fn between(&self, begin: Instant, end: Instant) -> Summary {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let window = samples.iter().filter(|sample| sample.sent >= begin && sample.sent < end);
        Summary::of(window.map(|sample| sample.duration).collect())
    }
}

/// Sorted durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(Vec<Duration>);

impl Summary {
    /// Creates a summary of durations.
    pub(crate) fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a quantile, given in per mille; zero if there are no durations.
    pub(crate) fn per_mille(&self, part: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get((self.0.len() * part / 1000).min(last)).copied().unwrap_or_default()
    }

    /// Returns the longest duration.
    pub(crate) fn max(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// Returns the number of durations over a bound.
    pub(crate) fn over(&self, bound: Duration) -> usize {
        self.0.len() - self.0.partition_point(|&duration| duration <= bound)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let (median, p99) = (ms(self.per_mille(500)), ms(self.per_mille(990)));
        write!(f, "n {:>5}  p50 {median:>6.1}  p99 {p99:>7.1}  max {:>8.1} ms", self.count(), ms(self.max()))
    }
}
