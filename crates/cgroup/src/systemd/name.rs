//! Names of units, and the paths of their cgroups.

use crate::{Error, GroupPath};

/// The longest name of a unit, in bytes (`UNIT_NAME_MAX`).
const NAME_MAX: usize = 255;

/// Returns the cgroup of a slice: `/a.slice/a-b.slice` for `a-b.slice`.
///
/// # Errors
/// The name is not that of a slice, or is that of the root slice, `-.slice`.
pub fn expand_slice(slice: &str) -> Result<GroupPath, Error> {
    let wrong = |reason| Error::Path { path: slice.chars().take(256).collect(), reason };
    GroupPath::parse(&slice_path(slice).map_err(wrong)?)
}

/// Checks the name of a unit (`VALID_CHARS` of systemd).
pub(super) fn check_unit_name(name: &str) -> Result<(), &'static str> {
    if name.len() > NAME_MAX {
        return Err("the unit name is longer than 255 bytes");
    }
    if name.is_empty() || name.starts_with('.') {
        return Err("the unit name is empty or begins with a dot");
    }
    match name.chars().all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)) {
        true => Ok(()),
        false => Err("the unit name contains other characters than letters, digits and :-_.\\@"),
    }
}

/// Returns the path of a slice: `/a.slice/a-b.slice` for `a-b.slice`; the root for `-.slice`.
pub(super) fn slice_path(slice: &str) -> Result<String, &'static str> {
    let stem = slice.strip_suffix(".slice").filter(|stem| !stem.is_empty());
    let stem = stem.ok_or("the slice does not end with .slice")?;
    check_unit_name(slice)?;
    if stem == "-" {
        return Ok(String::new());
    }
    // Slices are not instances of templates (`slice_name_is_valid` of systemd).
    if stem.contains('@') {
        return Err("the slice contains an @");
    }
    if stem.starts_with('-') || stem.ends_with('-') || stem.contains("--") {
        return Err("the slice contains a dash without a name before or after it");
    }
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    Ok(ends.map(|end| format!("/{}.slice", &stem[..end])).collect())
}
