//! Timeline of a pod or container: its stages with times. Stored in its record, so that it outlives the daemon.

use serde::{Deserialize, Serialize};

use crate::clock;

/// Maximum number of stages. Beyond that, stages in the middle are removed.
const STAGES_MAX: usize = 64;
/// Number of first stages that are always kept.
const FIRST_STAGES: usize = 24;
/// Maximum length of the failure of a stage, in characters.
const FAILURE_MAX: usize = 1024;

/// A stage of a timeline. Times are in nanoseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// What is (or was) done, or the state that was reached.
    pub name: String,
    /// When it began.
    pub began: u64,
    /// When it failed or the next stage began; 0 for the current stage.
    pub ended: u64,
    /// Whether it was a part of the preceding stage (a call of a network plugin, a pull), and not a stage of its own.
    pub part: bool,
    /// Why it failed; empty if it did not.
    #[serde(default)]
    pub failure: String,
}

/// Stages of a pod or container, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timeline(Vec<Stage>);

impl Timeline {
    /// Ends the current stage and begins another. If the name is that of the current stage, that stage continues, even
    /// after a failure: repeated attempts do not displace the first stages.
    pub(crate) fn enter(&mut self, name: &str) {
        if let Some(now) = self.0.iter_mut().rev().find(|stage| !stage.part)
            && now.name == name
            && (now.ended == 0 || !now.failure.is_empty())
        {
            now.ended = 0;
            return;
        }
        let now = clock::now();
        self.0.iter_mut().filter(|stage| stage.ended == 0).for_each(|stage| stage.ended = now);
        self.push(Stage { name: name.to_owned(), began: now, ended: 0, part: false, failure: String::new() });
    }

    /// Adds a completed part of the current stage.
    pub(crate) fn part(&mut self, name: String, began: u64, ended: u64, failure: &str) {
        let failure = failure.chars().take(FAILURE_MAX).collect();
        self.push(Stage { name, began, ended: ended.max(1), part: true, failure });
    }

    /// Ends the current stage with a failure.
    pub(crate) fn fail(&mut self, why: &str) {
        if let Some(now) = self.0.iter_mut().rev().find(|stage| !stage.part) {
            now.failure = why.chars().take(FAILURE_MAX).collect();
            now.ended = clock::now();
        }
    }

    /// Returns all stages.
    pub(crate) fn stages(&self) -> &[Stage] {
        &self.0
    }

    fn push(&mut self, stage: Stage) {
        if self.0.len() >= STAGES_MAX {
            self.0.remove(FIRST_STAGES);
        }
        self.0.push(stage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_ends_when_the_next_begins() {
        let mut timeline = Timeline::default();
        timeline.enter("one");
        timeline.part("plugin".into(), 1, 2, "");
        timeline.enter("one");
        timeline.enter("two");
        timeline.fail("no");
        let stages = timeline.stages();
        assert_eq!(stages.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["one", "plugin", "two"]);
        assert!(stages[0].ended >= stages[0].began && stages[1].ended == 2);
        assert_eq!(stages[2].failure, "no");
    }

    #[test]
    fn a_failed_stage_ends_at_its_failure() {
        let mut timeline = Timeline::default();
        timeline.enter("stop");
        timeline.fail("no");
        assert!(timeline.stages()[0].ended >= timeline.stages()[0].began && timeline.stages()[0].ended != 0);
        timeline.enter("stop");
        assert_eq!((timeline.stages().len(), timeline.stages()[0].ended), (1, 0), "another attempt continues it");
        timeline.fail("no");
        timeline.enter("stopped");
        assert!(timeline.stages().len() == 2 && timeline.stages()[0].ended != 0);
    }

    #[test]
    fn a_long_timeline_keeps_its_beginning_and_its_end() {
        let mut timeline = Timeline::default();
        for n in 0..200 {
            timeline.enter(&n.to_string());
        }
        let stages = timeline.stages();
        assert_eq!(
            (stages.len(), stages[0].name.as_str(), stages[STAGES_MAX - 1].name.as_str()),
            (STAGES_MAX, "0", "199")
        );
    }
}
