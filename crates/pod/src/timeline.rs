//! What became of a pod or container, step by step, with times: kept in its record, so that it outlives the daemon.

use serde::{Deserialize, Serialize};

use crate::clock;

/// No more stages are kept: of a longer life the first and the last ones.
const MOST: usize = 64;
/// As many of the first ones stay.
const FIRST: usize = 24;
/// A stage tells no more than this of a failure.
const WORDS: usize = 1024;

/// One stage. Times are nanoseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// What is (or was) done, or the state that was reached.
    pub name: String,
    /// When it began.
    pub began: u64,
    /// When it failed, or the next one began; 0: it is the present one.
    pub ended: u64,
    /// Whether it was a part of the stage before it in the list (a plugin of the network, a pull), not a stage of its
    /// own.
    pub part: bool,
    /// Why it failed; empty where it did not.
    #[serde(default)]
    pub failure: String,
}

/// Stages, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timeline(Vec<Stage>);

impl Timeline {
    /// The present stage ends, another begins. The same one again continues, also after it failed: what is tried again
    /// and again does not push the beginning out.
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

    /// A part of the present stage that is over.
    pub(crate) fn part(&mut self, name: String, began: u64, ended: u64, failure: &str) {
        let failure = failure.chars().take(WORDS).collect();
        self.push(Stage { name, began, ended: ended.max(1), part: true, failure });
    }

    /// The present stage failed, and ends with that.
    pub(crate) fn fail(&mut self, why: &str) {
        if let Some(now) = self.0.iter_mut().rev().find(|stage| !stage.part) {
            now.failure = why.chars().take(WORDS).collect();
            now.ended = clock::now();
        }
    }

    /// All of them.
    pub(crate) fn stages(&self) -> &[Stage] {
        &self.0
    }

    fn push(&mut self, stage: Stage) {
        if self.0.len() >= MOST {
            self.0.remove(FIRST);
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
    fn a_stage_that_failed_takes_no_more_time() {
        let mut timeline = Timeline::default();
        timeline.enter("stop");
        timeline.fail("no");
        assert!(timeline.stages()[0].ended >= timeline.stages()[0].began && timeline.stages()[0].ended != 0);
        timeline.enter("stop");
        assert_eq!((timeline.stages().len(), timeline.stages()[0].ended), (1, 0), "another try continues it");
        timeline.fail("no");
        timeline.enter("stopped");
        assert!(timeline.stages().len() == 2 && timeline.stages()[0].ended != 0);
    }

    #[test]
    fn a_long_life_keeps_its_beginning_and_its_end() {
        let mut timeline = Timeline::default();
        for n in 0..200 {
            timeline.enter(&n.to_string());
        }
        let stages = timeline.stages();
        assert_eq!((stages.len(), stages[0].name.as_str(), stages[MOST - 1].name.as_str()), (MOST, "0", "199"));
    }
}
