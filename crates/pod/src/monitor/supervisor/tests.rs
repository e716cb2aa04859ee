use super::{
    super::{custody, link::tests::hung_monitor},
    *,
};

fn status() -> ExitStatus {
    ExitStatus { code: Some(0), signal: None, oom_killed: false, at: 0 }
}

fn held(state: HoldingState, has_output: bool) -> Held {
    Held { holding: custody::Held::nascent("web", "pod", "/pod/web", state), has_output }
}

#[test]
fn output_that_a_log_does_not_take_is_reported_before_a_missed_end() {
    let container = || "web".to_owned();
    let exited = || Event::Exited { container: container(), status: status() };
    let pending = || Event::OutputPending { container: container() };
    let drained = || Event::Drained { container: container() };
    let ended = |has_output| held(HoldingState::Exited(status()), has_output);
    assert_eq!(held(HoldingState::Running, true).missed(false, false), []);
    assert_eq!(ended(false).missed(false, false), [exited()]);
    assert_eq!(ended(true).missed(false, false), [pending(), exited()]);
    assert_eq!(ended(true).missed(true, true), []);
    assert_eq!(ended(false).missed(true, true), [drained()]);
    assert_eq!(ended(false).missed(false, true), [exited(), drained()]);
    assert_eq!(ended(false).missed(true, false), []);
    assert_eq!(missed_drains(&[ended(true)], &[container()]), []);
    assert_eq!(missed_drains(&[ended(false)], &[container()]), [drained()]);
    assert_eq!(missed_drains(&[], &[container()]), [drained()]);
}

#[test]
fn the_output_of_a_container_that_ended_stays_in_custody_while_it_is_pending() {
    let pipe = || rustix::pipe::pipe().expect("a pipe").0;
    let ended = || custody::Held::nascent("web", "pod", "/pod/web", HoldingState::Exited(status()));
    let custody = Custody::default();
    let files = || Attachments::new().with(monitor_api::Role::StdoutRead, pipe());
    custody.take(vec![(ended(), files())]);
    custody.exited("web", &status());
    assert!(custody.file("web", monitor_api::Role::StdoutRead).expect("duplicated").is_some());
    custody.drained("web");
    assert!(custody.file("web", monitor_api::Role::StdoutRead).expect("none").is_none());
}

#[tokio::test]
async fn who_asks_for_the_monitor_waits_for_a_connection_that_is_being_restored() {
    let (events, _heard) = mpsc::unbounded_channel();
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
    assert_eq!(welcome.expect("restored meanwhile").version, "restored");
}
