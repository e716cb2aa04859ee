//! Containers without a process that the monitor knows: a shim or a virtual machine runs them. The monitor keeps their
//! cgroup, their output and their exit status, which the daemon states.

use monitor_api::{Attachments, Created, Failure, Reply};

use super::Monitor;
use crate::{
    containers::{Container, Stage},
    link::RequestId,
    output::Output,
};

impl Monitor {
    /// Creates a container whose output is moved to its log from now on.
    pub(crate) fn create_external(
        &mut self,
        request_id: RequestId,
        mut container: Container,
        output: Output,
    ) -> Result<(), Failure> {
        let serial = self.services.next_serial();
        // An existing cgroup with processes is refused: they would be killed with the container.
        container.group = Some(self.make_group(&container.description)?);
        container.stage = Stage::Waiting;
        self.oom_kills.add(&self.node.trees, serial, &container.description.cgroup);
        self.containers.insert(serial, container);
        self.outputs.map.insert(serial, output);
        self.outputs.hand_over(serial, &mut self.services);
        let created = Reply::Created(Created { pid: 0, start_time: 0, warnings: Vec::new() });
        self.services.reply(request_id, Ok((created, Attachments::new())));
        Ok(())
    }
}
