//! `uidMappings` and `gidMappings`, of the container and of mounts.

use std::fmt::Write;

use rustix::fs::{Gid, Uid};

use crate::Error;

/// Maximum number of lines in a map (user_namespaces(7), since Linux 4.15).
const LINES_MAX: usize = 340;

/// The checked uid and gid maps of a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdMappings {
    pub(crate) uids: Vec<oci::IdMapping>,
    pub(crate) gids: Vec<oci::IdMapping>,
}

impl IdMappings {
    /// Checks the maps; neither may be empty. Errors begin with `field`: `linux`, or a mount.
    pub(crate) fn parse(field: &str, uids: &[oci::IdMapping], gids: &[oci::IdMapping]) -> Result<Self, Error> {
        check(&format!("{field}.uidMappings"), uids)?;
        check(&format!("{field}.gidMappings"), gids)?;
        Ok(Self { uids: uids.to_vec(), gids: gids.to_vec() })
    }

    /// Checks that id 0 is mapped: the setup of a container runs as its root.
    pub(crate) fn with_root(self) -> Result<Self, Error> {
        for (field, map) in [("uidMappings", &self.uids), ("gidMappings", &self.gids)] {
            if to_outer(map, 0).is_none() {
                let reason = "the setup of the container runs as its root";
                return Err(Error::invalid(format!("linux.{field}: 0 is not mapped; {reason}")));
            }
        }
        Ok(self)
    }

    /// Returns the id that a user of the container has outside.
    pub(crate) fn outer_uid(&self, uid: Uid) -> Option<Uid> {
        to_outer(&self.uids, uid.as_raw()).map(Uid::from_raw)
    }

    /// Returns the id that a group of the container has outside.
    pub(crate) fn outer_gid(&self, gid: Gid) -> Option<Gid> {
        to_outer(&self.gids, gid.as_raw()).map(Gid::from_raw)
    }
}

/// Formats a map as the kernel expects it in `uid_map` and `gid_map`.
pub(crate) fn lines(map: &[oci::IdMapping]) -> String {
    map.iter().fold(String::new(), |mut text, line| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {} {}", line.container_id, line.host_id, line.size);
        text
    })
}

/// Parses `/proc/<pid>/uid_map`; malformed lines are skipped.
pub(crate) fn parse_lines(text: &str) -> Vec<oci::IdMapping> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (Some(Ok(container_id)), Some(Ok(host_id)), Some(Ok(size))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return None;
        };
        Some(oci::IdMapping { container_id, host_id, size })
    };
    text.lines().filter_map(line).collect()
}

/// Translates an id inside to the id outside.
pub(crate) fn to_outer(map: &[oci::IdMapping], id: u32) -> Option<u32> {
    map.iter().find_map(|line| line.to_host(id))
}

fn check(field: &str, map: &[oci::IdMapping]) -> Result<(), Error> {
    let invalid = |reason: String| Err(Error::invalid(format!("{field}: {reason}")));
    if map.is_empty() {
        return invalid("is missing; a user namespace needs both maps".to_owned());
    }
    if map.len() > LINES_MAX {
        return invalid(format!("{} entries; the kernel accepts at most {LINES_MAX}", map.len()));
    }
    for line in map {
        let shown = format!("{}:{}:{}", line.container_id, line.host_id, line.size);
        if line.size == 0 {
            return invalid(format!("{shown} has no size"));
        }
        // 4294967295 is not a valid id.
        let last = |first: u32| u64::from(first) + u64::from(line.size) - 1;
        if last(line.container_id).max(last(line.host_id)) >= u64::from(u32::MAX) {
            return invalid(format!("{shown} goes beyond the last id, 4294967294"));
        }
    }
    for (side, first) in
        [("inside", (|line| line.container_id) as fn(&oci::IdMapping) -> u32), ("outside", |line| line.host_id)]
    {
        let mut ranges: Vec<(u32, u32)> = map.iter().map(|line| (first(line), line.size)).collect();
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[1].0 - pair[0].0 < pair[0].1) {
            return invalid(format!("the ids from {} and from {} {side} overlap", pair[0].0, pair[1].0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(u32, u32, u32)]) -> Vec<oci::IdMapping> {
        let line = |&(container_id, host_id, size): &_| oci::IdMapping { container_id, host_id, size };
        lines.iter().map(line).collect()
    }

    #[test]
    fn ids_are_found_outside() {
        let both = map(&[(0, 1000, 1), (1, 100_000, 65535)]);
        let mappings = IdMappings::parse("linux", &both, &both).unwrap();
        assert_eq!(mappings.outer_uid(Uid::from_raw(0)), Some(Uid::from_raw(1000)));
        assert_eq!(mappings.outer_gid(Gid::from_raw(65535)), Some(Gid::from_raw(165_534)));
        assert_eq!(mappings.outer_uid(Uid::from_raw(65536)), None);
        assert_eq!(lines(&both), "0 1000 1\n1 100000 65535\n");
        assert_eq!(parse_lines("         0       1000          1\n         1     100000      65535\n"), both);
    }

    #[test]
    fn bad_maps_are_named() {
        let good = map(&[(0, 0, 1)]);
        for (bad, expected) in [
            (map(&[]), "linux.uidMappings: is missing"),
            (map(&[(0, 0, 0)]), "linux.uidMappings: 0:0:0 has no size"),
            (map(&[(0, u32::MAX, 1)]), "goes beyond the last id"),
            (map(&[(0, 1, u32::MAX)]), "goes beyond the last id"),
            (map(&[(0, 10, 5), (4, 20, 5)]), "the ids from 0 and from 4 inside overlap"),
            (map(&[(0, 10, 5), (5, 14, 5)]), "the ids from 10 and from 14 outside overlap"),
            (map(&(0..341).map(|n| (n, n, 1)).collect::<Vec<_>>()), "341 entries"),
        ] {
            let error = IdMappings::parse("linux", &bad, &good).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        }
        let error = IdMappings::parse("mount /x", &good, &[]).unwrap_err();
        assert!(error.message().starts_with("mount /x.gidMappings: is missing"), "{error}");
    }
}
