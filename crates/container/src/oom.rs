//! `process.oomScoreAdj`.

use crate::{Error, error::During, procfs::Procfs};

/// The value to write; `None`: the caller's stays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OomScoreAdj(Option<i32>);

impl OomScoreAdj {
    /// Parses; without `CAP_SYS_RESOURCE` a value below the own one is raised to it.
    pub(crate) fn parse(value: Option<i32>, may_lower: bool, warnings: &mut Vec<String>) -> Result<Self, Error> {
        let Some(wanted) = value else { return Ok(Self(None)) };
        if !(-1000..=1000).contains(&wanted) {
            return Err(Error::invalid(format!("process.oomScoreAdj: {wanted} is not between -1000 and 1000")));
        }
        if may_lower || wanted >= 0 && own()? <= 0 {
            return Ok(Self(Some(wanted)));
        }
        let own = own()?;
        if wanted < own {
            warnings.push(format!("process.oomScoreAdj: {wanted} raised to {own}, the least this host grants"));
        }
        Ok(Self(Some(wanted.max(own))))
    }

    /// In the child.
    pub(crate) fn apply(self, proc: &Procfs) -> Result<(), Error> {
        match self.0 {
            Some(value) => {
                proc.write("self/oom_score_adj", &value.to_string()).during(|| format!("set oom_score_adj to {value}"))
            }
            None => Ok(()),
        }
    }
}

fn own() -> Result<i32, Error> {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").during(|| "read /proc/self/oom_score_adj")?;
    Ok(text.trim().parse().unwrap_or(0))
}
