//! Which sockets of an event loop are of which namespace, and the order in which their events are returned.

use std::collections::HashMap;

use crate::NsId;

/// The end of a chain of events.
const END: u32 = u32::MAX;

/// The sockets of each namespace, by their slots.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Numbers of the groups, which are small, unlike ids.
    numbers: HashMap<NsId, u32>,
    groups: Vec<Group>,
    free: Vec<u32>,
    chains: Chains,
}

/// The sockets of one namespace.
#[derive(Debug)]
struct Group {
    slots: Vec<u32>,
    /// The wait that this group last had an event of, and the first and last of these events.
    wait: u64,
    first: u32,
    last: u32,
}

/// The events of one wait, chained by namespace.
#[derive(Debug, Default)]
struct Chains {
    /// Number of the wait.
    wait: u64,
    /// Groups in the order of their first events.
    order: Vec<u32>,
    /// For each event, the next one of the same group.
    next: Vec<u32>,
}

impl Members {
    /// Adds a socket; returns the number of its group and its position there.
    pub(super) fn join(&mut self, namespace: NsId, slot: u32) -> (u32, usize) {
        let number = *self.numbers.entry(namespace).or_insert_with(|| {
            let empty = Group { slots: Vec::new(), wait: 0, first: END, last: END };
            match self.free.pop() {
                Some(number) => {
                    self.groups[number as usize] = empty;
                    number
                }
                None => {
                    self.groups.push(empty);
                    // There are at most as many groups as sockets, which have numbers of 32 bits.
                    u32::try_from(self.groups.len() - 1).unwrap_or(END)
                }
            }
        });
        let slots = &mut self.groups[number as usize].slots;
        slots.push(slot);
        (number, slots.len() - 1)
    }

    /// Removes a socket; returns the slot of the one that has its position now.
    pub(super) fn leave(&mut self, namespace: NsId, group: u32, position: usize) -> Option<u32> {
        let slots = &mut self.groups[group as usize].slots;
        slots.swap_remove(position);
        let moved = slots.get(position).copied();
        if slots.is_empty() {
            self.numbers.remove(&namespace);
            self.free.push(group);
        }
        moved
    }

    /// Removes all sockets of a namespace; returns their slots.
    pub(super) fn dissolve(&mut self, namespace: NsId) -> Vec<u32> {
        let Some(number) = self.numbers.remove(&namespace) else { return Vec::new() };
        self.free.push(number);
        std::mem::take(&mut self.groups[number as usize].slots)
    }

    /// Returns the slots of a namespace.
    pub(super) fn of(&self, namespace: NsId) -> &[u32] {
        self.numbers.get(&namespace).map_or(&[], |number| &self.groups[*number as usize].slots)
    }

    /// Begins to order the events of a wait.
    pub(super) fn begin(&mut self) {
        self.chains.wait += 1;
        self.chains.order.clear();
        self.chains.next.clear();
    }

    /// Adds the next event, of a socket of this group; `None` for one that is not to be returned.
    pub(super) fn add_event(&mut self, group: Option<u32>) {
        let Chains { wait, order, next } = &mut self.chains;
        let event = u32::try_from(next.len()).unwrap_or(END);
        next.push(END);
        let Some(number) = group else { return };
        let group = &mut self.groups[number as usize];
        if group.wait == *wait {
            next[group.last as usize] = event;
        } else {
            (group.wait, group.first) = (*wait, event);
            order.push(number);
        }
        group.last = event;
    }

    /// Returns the events, those of one namespace after those of another.
    pub(super) fn in_order(&self) -> impl Iterator<Item = usize> {
        self.chains.order.iter().flat_map(|number| {
            let first = self.groups[*number as usize].first;
            std::iter::successors(Some(first), |event| {
                Some(self.chains.next[*event as usize]).filter(|next| *next != END)
            })
            .map(|event| event as usize)
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_namespace_follow_each_other() {
        let mut members = Members::default();
        let groups: Vec<u32> = [7, 9, 7, 8].map(|id| members.join(NsId(id), 0).0).to_vec();
        assert_eq!(groups, [0, 1, 0, 2]);
        for _ in 0..2 {
            members.begin();
            for group in [Some(1), Some(0), None, Some(2), Some(0), Some(1), Some(1)] {
                members.add_event(group);
            }
            assert_eq!(members.in_order().collect::<Vec<_>>(), [0, 5, 6, 1, 4, 3]);
        }
        members.begin();
        assert_eq!(members.in_order().count(), 0);
        // The number of a namespace that is gone is used again.
        members.leave(NsId(9), 1, 0);
        assert_eq!((members.join(NsId(10), 5), members.of(NsId(10)), members.of(NsId(9)).len()), ((1, 0), &[5][..], 0));
    }
}
