//! Hooks: what follows them.

use container::hooks::HookPoint;
use monitor_api::{Attachments, Failure, PendingHooks, Reply};

use super::Monitor;
use crate::{
    failure::of_container,
    hooks::{self, AfterHooks, HooksEnd},
    link::RequestId,
};

impl Monitor {
    /// Handles errors and the exit of a runner.
    pub(crate) fn advance_hooks(&mut self, serial: u64) {
        let Some(HooksEnd { after, container, failed }) = self.hooks.advance(serial, &self.services.epoll) else {
            return;
        };
        match after {
            AfterHooks::Create(serial) => self.create_hooks_done(serial, failed),
            AfterHooks::Started(request_id) => {
                let answer = match failed {
                    None => Ok((Reply::Done, Attachments::new())),
                    Some(why) => {
                        self.kill_container(&container);
                        let error = hooks::failure(&container, &why);
                        Err(of_container(&format!("start container {container}"), &error))
                    }
                };
                self.services.reply(request_id, answer);
            }
            AfterHooks::Stopped(answers) => self.answer_all(answers),
        }
    }

    /// Runs the hooks after the exit of a container, and then sends the answers.
    pub(super) fn stop_with_hooks(
        &mut self,
        hooks: Option<&PendingHooks>,
        answers: Vec<(RequestId, Result<(), Failure>)>,
    ) {
        let after = AfterHooks::Stopped(answers);
        let run = self.hooks.run(hooks, HookPoint::Poststop, 0, after, &mut self.services);
        if let Err((AfterHooks::Stopped(answers), failure)) = run {
            if let Some(failure) = failure {
                eprintln!("pinmon: {}", failure.message);
            }
            self.answer_all(answers);
        }
    }

    /// Kills a container whose poststart hook failed (runtime.md, "Lifecycle", step 9). Its exit is reported as usual.
    fn kill_container(&self, id: &str) {
        if let Some((_, container)) = self.containers.find(id) {
            container.kill();
        }
    }

    fn answer_all(&mut self, answers: Vec<(RequestId, Result<(), Failure>)>) {
        for (request_id, answer) in answers {
            self.services.reply(request_id, answer.map(|()| (Reply::Done, Attachments::new())));
        }
    }
}
