//! `process.oomScoreAdj`: the process's OOM score adjustment.

use crate::{Error, error::During, procfs::Procfs};

/// The value to write; `None`: the caller's is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OomScoreAdj(Option<i32>);

impl OomScoreAdj {
    /// Parses the value. Without `CAP_SYS_RESOURCE` (`may_lower`), a value below the caller's is raised to it, with a
    /// warning.
    pub(crate) fn parse(value: Option<i32>, may_lower: bool, warnings: &mut Vec<String>) -> Result<Self, Error> {
        let Some(requested) = value else { return Ok(Self(None)) };
        if !(-1000..=1000).contains(&requested) {
            return Err(Error::invalid(format!("process.oomScoreAdj: {requested} is not between -1000 and 1000")));
        }
        if may_lower || requested >= 0 && callers_value()? <= 0 {
            return Ok(Self(Some(requested)));
        }
        let minimum = callers_value()?;
        if requested < minimum {
            warnings.push(format!(
                "process.oomScoreAdj: {requested} raised to {minimum}, the minimum that this host grants"
            ));
        }
        Ok(Self(Some(requested.max(minimum))))
    }

    /// Writes the value. Runs in the child.
    pub(crate) fn apply(self, proc: &Procfs) -> Result<(), Error> {
        match self.0 {
            Some(value) => {
                proc.write("self/oom_score_adj", &value.to_string()).during(|| format!("set oom_score_adj to {value}"))
            }
            None => Ok(()),
        }
    }
}

fn callers_value() -> Result<i32, Error> {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").during(|| "read /proc/self/oom_score_adj")?;
    Ok(text.trim().parse().unwrap_or(0))
}
