use crate::{
    failure::Failure,
    state::{Directory, Record},
};

impl Record {
    /// Determines from the kernel whether the container is created, running, paused or stopped.
    pub(crate) fn status(&self, directory: &Directory) -> Result<oci::Status, Failure> {
        if self.init()?.is_none() {
            return Ok(oci::Status::Stopped);
        }
        if self.is_frozen() {
            return Ok(oci::Status::Paused);
        }
        Ok(if directory.is_waiting()? { oci::Status::Created } else { oci::Status::Running })
    }
}
