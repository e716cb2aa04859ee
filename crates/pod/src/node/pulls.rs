//! Pulls of images, and their durations for the timelines of the containers that use the images.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use image::{Credentials, Image, ProgressCallback};

use super::Node;
use crate::clock;

/// Number of pulls that are kept.
const PULLS_MAX: usize = 256;

/// The most recent pulls: image id, begin and end in nanoseconds since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<VecDeque<(String, u64, u64)>>);

impl Pulls {
    pub(crate) fn add(&self, image: String, began: u64, ended: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PULLS_MAX {
            all.pop_front();
        }
        all.push_back((image, began, ended));
    }

    /// Removes and returns the last pull of the image that began at `since` or later. It is reported in the timeline of
    /// one container only: the next container that uses the image did not wait for it.
    pub(crate) fn take(&self, image: &str, since: u64) -> Option<(u64, u64)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.iter().rposition(|(id, began, _)| id == image && *began >= since)?;
        all.remove(last).map(|(_, began, ended)| (began, ended))
    }
}

impl Node {
    /// Pulls an image, and keeps the duration of the pull.
    pub(crate) async fn pull(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        progress: Option<ProgressCallback>,
    ) -> Result<Image, image::Error> {
        let began = clock::now();
        let image = self.images.pull(reference, credentials, progress).await?;
        self.pulls.add(image.id.clone(), began, clock::now());
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_reported_for_one_container_and_an_older_one_for_none() {
        let pulls = Pulls::default();
        pulls.add("a".to_owned(), 10, 20);
        assert_eq!(pulls.take("a", 11), None, "it ended before the pod was created");
        assert_eq!((pulls.take("b", 0), pulls.take("a", 10)), (None, Some((10, 20))));
        assert_eq!(pulls.take("a", 0), None, "a second container did not wait for it");
        pulls.add("a".to_owned(), 30, 40);
        pulls.add("a".to_owned(), 35, 45);
        assert_eq!([pulls.take("a", 0), pulls.take("a", 0)], [Some((35, 45)), Some((30, 40))]);
    }
}
