//! Each check on made-up nodes: files below a temporary root, and results of probes as data.

use std::{collections::BTreeSet, fs, path::PathBuf};

use syscall::clock_state::ClockState;

use super::*;
use crate::{CgroupDriver, DaemonState, Host, Options, Outcome, Probes, Settings, Severity, probe::Space};

/// A node that a test changes before the checks run.
struct Setup {
    dir: tempfile::TempDir,
    settings: Settings,
    daemon: DaemonState,
    probes: Probes,
    rules: Option<String>,
    space: Option<Space>,
}

impl Setup {
    /// A healthy node of cgroup v2 with a kubelet that uses Pinion.
    fn healthy() -> Self {
        let works = || Outcome::Works;
        let setup = Self {
            // On a tmpfs: the nodes of all cases have some thousand files.
            dir: tempfile::tempdir_in("/dev/shm").expect("a directory"),
            settings: Settings {
                socket: "/run/pinion/pinion.sock".into(),
                state_dir: "/run/pinion".into(),
                data_dir: "/var/lib/pinion".into(),
                cni_conf_dir: "/etc/cni/net.d".into(),
                cni_bin_dirs: vec!["/opt/cni/bin".into()],
                bridge: "pinion0".into(),
                subnets: vec![("10.85.0.0".parse().expect("an address"), 16)],
                listeners: vec![("metrics.address", "127.0.0.1:9470".parse().expect("an address"))],
                cadvisor_socket: None,
                cgroup_driver: CgroupDriver::Cgroupfs,
                error: None,
                monitor: Ok("/usr/libexec/pinion/pinmon".into()),
            },
            daemon: DaemonState::Running { version: "0.1.0".into(), expected: "0.1.0".into(), not_ready: vec![] },
            probes: Probes {
                clock: Some(ClockState { is_synchronized: true, estimated_error: 3 }),
                open_files: Some(Some(1 << 20)),
                pidfd: works(),
                clone3: works(),
                seccomp: works(),
                user_namespace: works(),
                overlay: works(),
                id_map: works(),
                file_types: works(),
                nftables: works(),
                veth: works(),
                bridge: works(),
                bpf: works(),
            },
            rules: None,
            space: None,
        };
        for (path, text) in HEALTHY {
            setup.write(path, text);
        }
        setup
    }

    fn write(&self, path: &str, text: &str) {
        Host::at(self.dir.path()).write(path, text);
    }

    fn process(&self, pid: u32, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let name: String = words[0].rsplit('/').next().unwrap_or_default().chars().take(15).collect();
        self.write(&format!("/proc/{pid}/comm"), &format!("{name}\n"));
        self.write(&format!("/proc/{pid}/cmdline"), &(words.join("\0") + "\0"));
    }

    fn report(self) -> Report {
        let options = Options {
            host: Host::at(self.dir.path()),
            settings: self.settings,
            daemon: self.daemon,
            probes: self.probes,
            kubelet_config: None,
        };
        let mut node = Node::collect(options);
        node.rules = self.rules;
        // The space of the machine that runs the test is not the subject.
        let space = Space { path: "/var/lib/pinion".into(), bytes: 100, bytes_free: 50, inodes: 0, inodes_free: 0 };
        node.space = vec![self.space.unwrap_or(space)];
        examine(&node)
    }
}

const HEALTHY: [(&str, &str); 30] = [
    ("/proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
    ("/proc/sys/kernel/pid_max", "4194304\n"),
    ("/proc/sys/kernel/threads-max", "100000\n"),
    ("/proc/sys/kernel/seccomp/actions_avail", "kill_process errno user_notif allow\n"),
    ("/proc/sys/user/max_user_namespaces", "15000\n"),
    ("/proc/sys/net/ipv4/ip_forward", "1\n"),
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1\n"),
    ("/proc/sys/fs/inotify/max_user_instances", "8192\n"),
    ("/proc/sys/fs/inotify/max_user_watches", "524288\n"),
    ("/proc/sys/fs/file-max", "9223372036854775807\n"),
    (
        "/proc/self/mountinfo",
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /run rw - tmpfs tmpfs rw\n3 1 0:6 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    ),
    ("/proc/self/status", "Name:\tx\nCapBnd:\t000001ffffffffff\n"),
    ("/proc/swaps", "Filename Type Size Used Priority\n"),
    (
        "/proc/net/route",
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth0 00000000 0102A8C0 0003 0 0 0 00000000 0 0 0\npinion0 0000550A 00000000 0001 0 0 0 0000FFFF 0 0 0\n",
    ),
    ("/proc/net/tcp", "sl local_address rem_address st\n0: 0100007F:1F90 00000000:0000 0A\n"),
    ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
    ("/sys/module/overlay/refcnt", "0"),
    ("/sys/module/veth/refcnt", "0"),
    ("/sys/module/br_netfilter/refcnt", "0"),
    ("/sys/class/net/eth0/mtu", "1500"),
    ("/lib/modules/6.12.1-amd64/modules.builtin", "kernel/net/bridge/bridge.ko\nkernel/net/netfilter/nf_tables.ko\n"),
    ("/lib/modules/6.12.1-amd64/modules.dep", ""),
    ("/run/systemd/system/.keep", ""),
    ("/etc/systemd/system/multi-user.target.wants/pinion.service", ""),
    ("/usr/lib/systemd/system/pinion.service", "[Service]\nExecStart=/usr/bin/pinion serve\nKillMode=process\n"),
    (
        "/usr/lib/systemd/system/kubelet.service",
        "[Unit]\nWants=pinion.service\nAfter=pinion.service\n[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n",
    ),
    ("/var/lib/kubelet/config.yaml", KUBELET),
    ("/etc/crictl.yaml", "runtime-endpoint: unix:///run/pinion/pinion.sock\n"),
    (
        "/etc/cni/net.d/10-net.conflist",
        r#"{"name":"n","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap"}]}"#,
    ),
];

const KUBELET: &str = "containerRuntimeEndpoint: unix:///run/pinion/pinion.sock\ncgroupDriver: cgroupfs\nfeatureGates:\n  PodAndContainerStatsFromCRI: true\n";

#[test]
fn a_healthy_node_has_no_findings() {
    let report = Setup::healthy().report();
    let bad: Vec<_> = report.findings.iter().filter(|finding| finding.severity != Severity::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(report.exit_code(), 0);
    let ids: BTreeSet<_> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids.len(), CHECKS.len(), "every check has a result, and ids are unique");
}

#[test]
fn a_node_with_the_default_gates_and_a_socket_for_cadvisor_has_no_findings() {
    let mut setup = Setup::healthy();
    setup.settings.cadvisor_socket = Some("/var/run/crio/crio.sock".into());
    setup.write("/run/crio/crio.sock", "");
    setup.write("/var/lib/kubelet/config.yaml", KUBELET.split("featureGates").next().expect("the settings"));
    let report = setup.report();
    let bad: Vec<_> = report.findings.iter().filter(|finding| finding.severity != Severity::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A change of a healthy node, and what the check must find then.
struct Case {
    id: &'static str,
    severity: Severity,
    message: &'static str,
    change: fn(&mut Setup),
}

const fn case(id: &'static str, severity: Severity, message: &'static str, change: fn(&mut Setup)) -> Case {
    Case { id, severity, message, change }
}

fn fails() -> Outcome {
    Outcome::Fails("Operation not permitted".into())
}

use Severity::{Notice, Problem, Warning};

const V1: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n3 1 0:6 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

fn v1(setup: &mut Setup) {
    fs::remove_file(setup.dir.path().join("sys/fs/cgroup/cgroup.controllers")).expect("removed");
    setup.write("/proc/self/mountinfo", V1);
}

fn kubelet(setup: &mut Setup, text: &str) {
    setup.write("/var/lib/kubelet/config.yaml", &format!("{KUBELET}{text}\n"));
}

fn remove(setup: &Setup, path: &str) {
    let path = setup.dir.path().join(path);
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
}

const CASES: &[Case] = &[
    case("pinion.config", Problem, "network.subnet", |s| {
        s.settings.error = Some("c.toml:1: network.subnet: no".into())
    }),
    case("pinion.daemon", Problem, "does not respond: refused", |s| {
        s.daemon = DaemonState::Unreachable("refused".into())
    }),
    case("pinion.daemon", Warning, "version 0.0.9, this program 0.1.0", |s| {
        s.daemon = DaemonState::Running { version: "0.0.9".into(), expected: "0.1.0".into(), not_ready: vec![] };
    }),
    case("pinion.daemon", Problem, "NetworkNotReady", |s| {
        let not_ready = vec!["NetworkNotReady: no plugin".into()];
        s.daemon = DaemonState::Running { version: "1".into(), expected: "1".into(), not_ready };
    }),
    case("pinion.monitor", Problem, "not found", |s| s.settings.monitor = Err("pinmon: not found".into())),
    case("pinion.unit", Warning, "not installed", |s| remove(s, "usr/lib/systemd/system/pinion.service")),
    case("pinion.unit", Warning, "enabled", |s| remove(s, "etc/systemd/system/multi-user.target.wants")),
    case("pinion.unit", Problem, "KillMode", |s| {
        s.write("/etc/systemd/system/pinion.service.d/x.conf", "[Service]\nKillMode=mixed\n");
    }),
    case("pinion.unit", Notice, "systemd is not", |s| remove(s, "run/systemd")),
    case("kernel.version", Problem, "Linux 5.10.0-9 is older than 5.14", |s| {
        s.write("/proc/sys/kernel/osrelease", "5.10.0-9\n");
    }),
    case("kernel.version", Notice, "older than those", |s| s.write("/proc/sys/kernel/osrelease", "5.15.0\n")),
    case("kernel.version", Notice, "not known", |s| s.write("/proc/sys/kernel/osrelease", "x\n")),
    case("kernel.processes", Problem, "clone3", |s| s.probes.clone3 = fails()),
    case("kernel.overlay", Problem, "not permitted", |s| s.probes.overlay = fails()),
    case("kernel.overlay", Notice, "not tried: no root", |s| s.probes.overlay = Outcome::NotTried("no root".into())),
    case("kernel.id-mapped-mounts", Warning, "not permitted", |s| s.probes.id_map = fails()),
    case("kernel.user-namespaces", Warning, "max_user_namespaces is 0", |s| {
        s.write("/proc/sys/user/max_user_namespaces", "0\n");
    }),
    case("kernel.user-namespaces", Warning, "not permitted", |s| s.probes.user_namespace = fails()),
    case("kernel.seccomp", Problem, "not permitted", |s| s.probes.seccomp = fails()),
    case("kernel.seccomp", Warning, "user_notif", |s| {
        s.write("/proc/sys/kernel/seccomp/actions_avail", "errno allow\n");
    }),
    case("kernel.nftables", Problem, "not permitted", |s| s.probes.nftables = fails()),
    case("kernel.bpf-devices", Problem, "not permitted", |s| s.probes.bpf = fails()),
    case("kernel.modules", Warning, "br_netfilter is not loaded", |s| {
        remove(s, "sys/module/br_netfilter");
        s.write("/lib/modules/6.12.1-amd64/modules.dep", "kernel/net/bridge/br_netfilter.ko.xz: x\n");
    }),
    case("kernel.modules", Warning, "veth is neither loaded nor installed", |s| {
        s.probes.veth = fails();
        remove(s, "sys/module/veth");
    }),
    case("sysctl.ip-forward", Warning, "ip_forward is 0", |s| s.write("/proc/sys/net/ipv4/ip_forward", "0\n")),
    case("sysctl.bridge-netfilter", Warning, "ip6tables is 0", |s| {
        s.write("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0\n");
    }),
    case("sysctl.bridge-netfilter", Notice, "not loaded", |s| remove(s, "proc/sys/net/bridge")),
    case("sysctl.inotify", Notice, "is 128", |s| s.write("/proc/sys/fs/inotify/max_user_instances", "128\n")),
    case("sysctl.pid-max", Warning, "is 32768", |s| s.write("/proc/sys/kernel/pid_max", "32768\n")),
    case("sysctl.open-files", Warning, "is 1000", |s| s.write("/proc/sys/fs/file-max", "1000\n")),
    case("sysctl.kernel-defaults", Problem, "kernel.panic is 0, not 10", |s| {
        kubelet(s, "protectKernelDefaults: true");
        s.write("/proc/sys/kernel/panic", "0\n");
    }),
    case("cgroup.mode", Notice, "hybrid", v1),
    case("cgroup.mode", Problem, "no cgroup hierarchy", |s| {
        v1(s);
        s.write("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n");
    }),
    case("cgroup.controllers", Problem, "missing: memory", |s| {
        s.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n");
    }),
    case("cgroup.controllers", Problem, "missing: cpu, cpuset, pids", v1),
    case("cgroup.driver", Warning, "cgroupDriver is systemd", |s| {
        s.write("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n");
    }),
    case("cgroup.driver", Warning, "cgroupDriver is not set (cgroupfs), Pinion uses systemd", |s| {
        s.settings.cgroup_driver = CgroupDriver::Systemd;
        s.write("/var/lib/kubelet/config.yaml", "{}\n");
    }),
    case("cgroup.driver", Warning, "cgroupDriver is cgroupfs, Pinion uses systemd", |s| {
        s.settings.cgroup_driver = CgroupDriver::Auto;
    }),
    case("cgroup.driver", Warning, "cgroupDriver is systemd, Pinion uses cgroupfs", |s| {
        s.settings.cgroup_driver = CgroupDriver::Auto;
        s.write("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n");
        s.write("/proc/self/mountinfo", &format!("{V1}4 1 0:7 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"));
    }),
    case("cgroup.driver", Problem, "cgroup.driver is systemd, but cgroup v1 is in use", |s| {
        s.settings.cgroup_driver = CgroupDriver::Systemd;
        v1(s);
    }),
    case("cgroup.driver", Problem, "cgroup.driver is systemd, but systemd is not running", |s| {
        s.settings.cgroup_driver = CgroupDriver::Systemd;
        remove(s, "run/systemd");
    }),
    case("kubelet.config", Problem, "config.yaml: ", |s| kubelet(s, "a: [")),
    case("kubelet.config", Notice, "does not have a kubelet", |s| {
        remove(s, "usr/lib/systemd/system/kubelet.service");
        remove(s, "var/lib/kubelet/config.yaml");
    }),
    case("kubelet.endpoint", Warning, "unix:///run/crio/crio.sock, not Pinion", |s| {
        s.write("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n");
    }),
    case("kubelet.endpoint", Warning, "containerd.sock", |s| s.write("/var/lib/kubelet/config.yaml", "{}\n")),
    case("kubelet.image-endpoint", Problem, "unix:///x", |s| kubelet(s, "imageServiceEndpoint: unix:///x")),
    case("kubelet.unit", Problem, "requires containerd.service", |s| {
        s.write("/etc/systemd/system/kubelet.service.d/x.conf", "[Unit]\nRequires=containerd.service\n");
    }),
    case("kubelet.unit", Notice, "not ordered", |s| {
        s.write("/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n");
    }),
    case("kubelet.metrics", Warning, "PodAndContainerStatsFromCRI is off", |s| {
        s.write("/var/lib/kubelet/config.yaml", "featureGates: {PodAndContainerStatsFromCRI: false}\n");
    }),
    case("kubelet.metrics", Warning, "does not look for Pinion's containers at /run/pinion/cadvisor.sock", |s| {
        s.settings.cadvisor_socket = Some("/run/pinion/cadvisor.sock".into());
        s.write("/var/lib/kubelet/config.yaml", "{}\n");
    }),
    case("kubelet.cgroup-v1", Warning, "1.35", v1),
    case("kubelet.cgroup-v1", Problem, "refuses", |s| {
        v1(s);
        kubelet(s, "failCgroupV1: true");
    }),
    case("kubelet.swap", Problem, "refuses to start", |s| {
        s.write("/proc/swaps", "Filename\n/dev/sdb1 partition 1 0 -2\n");
    }),
    case("kubelet.flags", Warning, "--network-plugin was removed in 1.24", |s| {
        s.process(7, "/usr/bin/kubelet --network-plugin=cni --config=/var/lib/kubelet/config.yaml");
    }),
    case("kubelet.resource-managers", Problem, "cpuManagerPolicy is static, but", |s| {
        kubelet(s, "cpuManagerPolicy: static");
        s.write("/var/lib/kubelet/cpu_manager_state", r#"{"policyName":"none"}"#);
    }),
    case("kubelet.subordinate-ids", Problem, "/etc/subuid", |s| {
        s.write("/etc/subuid", "a:1:2\nkubelet:100000:65536\n")
    }),
    case("crictl.config", Notice, "uses unix:///run/crio/crio.sock", |s| {
        s.write(
            "/etc/crictl.yaml",
            "runtime-endpoint: \"unix:///var/run/../run/crio/crio.sock\"\n".replace("var/run/../", "").as_str(),
        );
    }),
    case("cni.config", Problem, "10-net.conflist", |s| s.write("/etc/cni/net.d/10-net.conflist", "{")),
    case("cni.config", Notice, "built-in network pinion0", |s| remove(s, "etc/cni")),
    case("cni.config", Notice, "from CRI-O", |s| {
        s.write("/etc/cni/net.d/01-crio.conf", r#"{"type":"bridge"}"#);
    }),
    case("cni.plugins", Problem, "the plugin calico is not in /opt/cni/bin", |s| {
        s.write("/etc/cni/net.d/01-calico.conflist", r#"{"plugins":[{"type":"calico"}]}"#);
    }),
    case("network.subnet", Problem, "overlaps with 10.85.4.0/24 on eth1", |s| {
        remove(s, "etc/cni");
        s.write("/proc/net/route", "Iface Destination\neth1 0004550A 0 1 0 0 0 00FFFFFF 0 0 0\n");
    }),
    case("network.forwarding-rules", Warning, "drops", |s| s.rules = Some(":FORWARD DROP [0:0]\n".into())),
    case("network.ports", Problem, "10250", |s| {
        s.write("/proc/net/tcp6", "sl\n0: 00000000000000000000000000000000:280A 0:0 0A\n");
    }),
    case("network.ports", Problem, "9470 (metrics.address)", |s| {
        s.daemon = DaemonState::Unreachable("refused".into());
        s.write("/proc/net/tcp", "sl\n0: 0100007F:24FE 0:0 0A\n");
    }),
    case("engine.containerd", Warning, "daemon running (pid 9), 2 processes of containers", |s| {
        s.process(9, "/usr/bin/containerd");
        s.process(10, "/usr/bin/containerd-shim-runc-v2 -id a");
        s.process(11, "/usr/bin/containerd-shim-runc-v2 -id b");
    }),
    case("engine.containerd", Notice, "the kubelet uses it", |s| {
        s.process(9, "/usr/bin/containerd");
        s.write("/var/lib/kubelet/config.yaml", "{}\n");
    }),
    case("engine.containerd", Notice, "Docker uses it", |s| {
        s.process(8, "/usr/bin/dockerd");
        s.process(9, "/usr/bin/containerd");
        s.process(10, "/usr/bin/containerd-shim-runc-v2 -id a");
    }),
    case("engine.crio", Notice, "crio.service enabled", |s| {
        s.write("/etc/systemd/system/multi-user.target.wants/crio.service", "");
    }),
    case("engine.docker", Notice, "images in /var/lib/docker", |s| s.write("/var/lib/docker/x", "")),
    case("engine.cri-dockerd", Notice, "socket /run/cri-dockerd.sock", |s| s.write("/run/cri-dockerd.sock", "")),
    case("engine.interfaces", Warning, "cni0", |s| s.write("/sys/class/net/cni0/mtu", "1500")),
    case("engine.namespaces", Warning, "1 network namespaces", |s| s.write("/run/netns/cni-1234", "")),
    case("engine.rules", Notice, "2 iptables chains of CNI plugins", |s| {
        s.rules = Some(":FORWARD ACCEPT\n:CNI-FORWARD - [0:0]\n:CNI-ADMIN - [0:0]\n".into());
    }),
    case("security.apparmor", Problem, "apparmor_parser is missing", |s| {
        s.write("/sys/module/apparmor/parameters/enabled", "Y\n");
        s.write("/sys/kernel/security/apparmor/profiles", "docker-default (enforce)\n");
    }),
    case("security.selinux", Warning, "not installed", |s| s.write("/sys/fs/selinux/enforce", "1")),
    case("security.capabilities", Problem, "CAP_SYS_ADMIN", |s| {
        s.write("/proc/self/status", "CapBnd:\t00000000a80425fb\n");
    }),
    case("security.capabilities", Notice, "CAP_SYS_RESOURCE", |s| {
        s.write("/proc/self/status", "CapBnd:\t000001fffeffffff\n");
    }),
    case("storage.file-system", Problem, "is on nfs4", |s| {
        s.write("/proc/self/mountinfo", "1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /var/lib rw - nfs4 x rw\n");
    }),
    case("storage.file-system", Problem, "ftype=0", |s| s.probes.file_types = fails()),
    case("storage.space", Warning, "14 % of the bytes", |s| {
        s.space = Some(Space { path: PathBuf::from("/x"), bytes: 100, bytes_free: 14, inodes: 0, inodes_free: 0 });
    }),
    case("storage.inodes", Problem, "4 % of the inodes for /x", |s| {
        s.space = Some(Space { path: PathBuf::from("/x"), bytes: 100, bytes_free: 90, inodes: 100, inodes_free: 4 });
    }),
    case("storage.permissions", Warning, "cannot traverse /var/lib", |s| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(s.dir.path().join("var/lib"), mode).expect("chmod");
    }),
    case("limits.open-files", Notice, "of this process is 1024", |s| s.probes.open_files = Some(Some(1024))),
    case("limits.open-files", Warning, "of the daemon is 4096", |s| {
        s.process(5, "/usr/bin/pinion serve");
        s.write("/proc/5/limits", "Max open files  1024  4096  files\n");
    }),
    case("clock.synchronized", Warning, "not synchronized", |s| {
        s.probes.clock = Some(ClockState { is_synchronized: false, estimated_error: 1 });
    }),
    case("boot.kernel", Warning, "not installed; installed: 6.12.2", |s| {
        remove(s, "lib/modules/6.12.1-amd64");
        s.write("/lib/modules/6.12.2-amd64/modules.dep", "");
    }),
    case("boot.kernel", Notice, "requires a reboot", |s| s.write("/run/reboot-required", "")),
];

#[test]
fn every_check_finds_what_it_is_for() {
    for case in CASES {
        let mut setup = Setup::healthy();
        (case.change)(&mut setup);
        let report = setup.report();
        let matches = |finding: &&Finding| {
            finding.id == case.id && finding.severity == case.severity && finding.message.contains(case.message)
        };
        let own: Vec<_> = report.findings.iter().filter(|finding| finding.id == case.id).collect();
        assert!(report.findings.iter().any(|finding| matches(&finding)), "{}: {}: {own:#?}", case.id, case.message);
        let expected = match report.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Problem) => 2,
            Some(Severity::Warning) => 1,
            _ => 0,
        };
        assert_eq!(report.exit_code(), expected);
    }
    // The state directory never needs a change: the daemon mounts a tmpfs.
    let tested: BTreeSet<_> = CASES.iter().map(|case| case.id).chain(["storage.state"]).collect();
    let untested: Vec<_> = CHECKS.iter().filter(|check| !tested.contains(check.id)).collect();
    assert!(untested.is_empty(), "checks without a case: {untested:?}");
}

#[test]
fn files_of_any_content_are_survived() {
    let setup = Setup::healthy();
    for path in ["/proc/self/mountinfo", "/proc/net/route", "/proc/net/tcp", "/proc/swaps", "/etc/crictl.yaml"] {
        setup.write(path, &"\u{0} - 9 : / x\n".repeat(1000));
    }
    setup.write("/var/lib/kubelet/config.yaml", &"{a: ".repeat(100_000));
    setup.write("/etc/cni/net.d/10-net.conflist", &"[".repeat(100_000));
    setup.process(3, "kubelet --config --config-dir --x");
    let report = setup.report();
    assert!(report.exit_code() == 2 && report.findings.len() >= CHECKS.len());
}
