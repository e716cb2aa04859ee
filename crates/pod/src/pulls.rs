//! How long pulls of images took, for the timelines of the containers made of them.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// No more are kept.
const MOST: usize = 256;

/// The last ones: image id, begin and end in nanoseconds since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<VecDeque<(String, u64, u64)>>);

impl Pulls {
    pub(crate) fn note(&self, image: String, began: u64, ended: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(id, ..)| *id != image);
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back((image, began, ended));
    }

    /// When the image was pulled last, by this daemon.
    pub(crate) fn of(&self, image: &str) -> Option<(u64, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(id, ..)| id == image).map(|(_, began, ended)| (*began, *ended))
    }
}
