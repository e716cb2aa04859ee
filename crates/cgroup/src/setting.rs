//! Writes values to kernel files.

use rustix::io::Errno;

use crate::{Error, GroupPath, controller::Controller, tree::Tree};

/// The value of one field of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The field of `linux.resources`, for error messages.
    pub(crate) field: &'static str,
    /// Files and values, in the order in which they are tried if the kernel does not have a file.
    pub(crate) choices: Vec<(String, String)>,
    /// Whether the setting is skipped if the kernel does not have any of the files.
    pub(crate) optional: bool,
}

impl Setting {
    pub(crate) fn new(field: &'static str, file: impl Into<String>, value: impl ToString) -> Self {
        Self { field, choices: vec![(file.into(), value.to_string())], optional: false }
    }

    pub(crate) fn or(mut self, file: impl Into<String>, value: impl ToString) -> Self {
        self.choices.push((file.into(), value.to_string()));
        self
    }

    pub(crate) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Writes the value. Returns `Ok(None)` if it was written, or if it is optional and the file does not exist;
    /// `Ok(Some)` for EINVAL, which the kernel may not return after another setting was written.
    fn write(&self, tree: &Tree, group: &GroupPath, controller: Controller) -> Result<Option<Error>, Error> {
        for (file, value) in &self.choices {
            let path = format!("{}/{file}", group.relative());
            match tree.try_write(&path, value) {
                Ok(()) => return Ok(None),
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL) => return Ok(Some(tree.write_failed(&path, value, Errno::INVAL))),
                Err(errno) => return Err(tree.write_failed(&path, value, errno)),
            }
        }
        if self.optional {
            return Ok(None);
        }
        let files: Vec<_> = self.choices.iter().map(|(file, _)| file.as_str()).collect();
        Err(Error::Unavailable {
            path: group.to_string(),
            field: self.field.into(),
            controller: controller.v1_name(),
            reason: format!("this kernel has no {}", files.join(" or ")),
        })
    }
}

/// Writes the settings of one controller. Some constrain each other (memory ≤ memory + swap, burst ≤ quota, runtime ≤
/// period), and the required order depends on the current values: settings that are refused with EINVAL are tried again
/// after the others, as long as that makes progress.
pub(crate) fn write_all(
    tree: &Tree,
    group: &GroupPath,
    controller: Controller,
    settings: &[Setting],
) -> Result<(), Error> {
    let mut pending: Vec<&Setting> = settings.iter().collect();
    loop {
        let (before, mut first) = (pending.len(), None);
        let mut refused = Vec::new();
        for setting in pending {
            if let Some(error) = setting.write(tree, group, controller)? {
                refused.push(setting);
                first.get_or_insert(error);
            }
        }
        match first {
            None => return Ok(()),
            Some(error) if refused.len() == before => return Err(error),
            Some(_) => pending = refused,
        }
    }
}
