use super::*;
use crate::monitor::{custody, link::tests::hung_monitor};

fn status() -> ExitStatus {
    ExitStatus { code: Some(0), signal: None, oom_killed: false, at: 0 }
}

fn held(state: HoldingState, has_output: bool) -> HeldState {
    HeldState { holding: custody::HeldObject::initial_holding("web", "pod", "/pod/web", state), has_output }
}

#[test]
fn pending_output_is_reported_before_a_missed_exit() {
    let container = || "web".to_owned();
    let exited = || Event::Exited { container: container(), status: status() };
    let pending = || Event::OutputPending { container: container() };
    let drained = || Event::Drained { container: container() };
    let exited_state = |has_output| held(HoldingState::Exited(status()), has_output);
    assert_eq!(held(HoldingState::Running, true).missed(false, false), []);
    assert_eq!(exited_state(false).missed(false, false), [exited()]);
    assert_eq!(exited_state(true).missed(false, false), [pending(), exited()]);
    assert_eq!(exited_state(true).missed(true, true), []);
    assert_eq!(exited_state(false).missed(true, true), [drained()]);
    assert_eq!(exited_state(false).missed(false, true), [exited(), drained()]);
    assert_eq!(exited_state(false).missed(true, false), []);
    assert_eq!(missed_drains(&[exited_state(true)], &[container()]), []);
    assert_eq!(missed_drains(&[exited_state(false)], &[container()]), [drained()]);
    assert_eq!(missed_drains(&[], &[container()]), [drained()]);
}

#[test]
fn the_output_of_an_exited_container_stays_in_custody_while_it_is_pending() {
    let pipe = || rustix::pipe::pipe().expect("a pipe").0;
    let exited = || custody::HeldObject::initial_holding("web", "pod", "/pod/web", HoldingState::Exited(status()));
    let custody = Custody::default();
    let files = || Attachments::new().with(monitor_api::Role::StdoutRead, pipe());
    custody.take(vec![(exited(), files())]);
    custody.exited("web", &status());
    assert!(custody.file("web", monitor_api::Role::StdoutRead).expect("duplicated").is_some());
    custody.drained("web");
    assert!(custody.file("web", monitor_api::Role::StdoutRead).expect("not held").is_none());
}

#[tokio::test]
async fn welcome_waits_for_a_connection_that_is_being_restored() {
    let (events, _event_receiver) = mpsc::unbounded_channel();
    let inner = Inner::new("/nonexistent".into(), "/nonexistent".into(), events);
    let monitor = Monitor(Arc::new(inner));
    monitor.welcome_within(Duration::from_millis(20)).await.expect_err("nothing is connected");
    let (link, _theirs) = hung_monitor();
    let this = Pid::from_raw(std::process::id().try_into().expect("a pid")).expect("a pid");
    let pidfd = Arc::new(pidfd_open(this, PidfdFlags::empty()).expect("a pidfd"));
    let welcome = Welcome { major: 1, minor: 0, pid: std::process::id(), version: "restored".to_owned() };
    let restored = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        monitor.0.link.send_replace(Some(Connected { link, pidfd, welcome }));
    };
    let (welcome, ()) = tokio::join!(monitor.welcome_within(Duration::from_secs(60)), restored);
    assert_eq!(welcome.expect("restored in the meantime").version, "restored");
}
