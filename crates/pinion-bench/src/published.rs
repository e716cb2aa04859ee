//! Values that others have published, which reports show next to those of a run.
//!
//! Only texts that we read are in here: a value that is known from hearsay, or from a picture, is not.

/// A published comparison.
pub(crate) struct Publication {
    /// Scenario that repeats it.
    pub(crate) scenario: &'static str,
    /// Authors, title and date.
    pub(crate) source: &'static str,
    pub(crate) url: &'static str,
    /// Machine, versions and work, as far as they were published.
    pub(crate) setting: &'static str,
    /// What to know before the values are compared with those of a run.
    pub(crate) remark: &'static str,
    pub(crate) values: &'static [PublishedValue],
}

/// A published value.
pub(crate) struct PublishedValue {
    /// What was measured, and with what.
    pub(crate) name: &'static str,
    /// The value as it was published, with its unit.
    pub(crate) value: &'static str,
    /// What is closest to it in a run.
    pub(crate) counterpart: Option<Counterpart>,
}

/// Values of a run: those of a contestant in one or more rows, added.
pub(crate) struct Counterpart {
    pub(crate) contestant: &'static str,
    pub(crate) metrics: &'static [&'static str],
    pub(crate) statistic: Statistic,
}

/// A statistic of the values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// The mean of all values.
    Mean,
    /// The number of failures.
    Failures,
}

/// Returns what was published about the work of a scenario.
pub(crate) fn of(scenario: &str) -> impl Iterator<Item = &'static Publication> {
    PUBLICATIONS.iter().filter(move |publication| publication.scenario == scenario)
}

const fn mean(contestant: &'static str, metrics: &'static [&'static str]) -> Option<Counterpart> {
    Some(Counterpart { contestant, metrics, statistic: Statistic::Mean })
}

const fn failures(contestant: &'static str) -> Option<Counterpart> {
    Some(Counterpart { contestant, metrics: TRUE, statistic: Statistic::Failures })
}

const fn value(name: &'static str, value: &'static str, counterpart: Option<Counterpart>) -> PublishedValue {
    PublishedValue { name, value, counterpart }
}

const TRUE: &[&str] = &["container of true"];
const LIMIT: &[&str] = &["lowest memory limit"];
const RUN: &[&str] = &["run true"];
const CREATED: &[&str] = &["create", "start", "kill", "delete"];

const PUBLICATIONS: &[Publication] = &[
    Publication {
        scenario: "runtimes",
        source: "Henrik Gerdes, Benchmarking what actually drive our containers, 2024-07-01",
        url: "https://henrikgerdes.me/articles/2024-07-kubernetes-cri-bench",
        setting: "Hetzner CCX33 (8 vCPU, 32 GB), Debian 12, Linux 6.1; containerd 1.7.18, crun 1.15, runc 1.1.13, runsc 20240617, youki 0.3.3; 1000 times \
                  `nerdctl run --network=none --rm busybox true`, one after the other",
        remark: "The published times include nerdctl, and its means count a failure as 0 ms; here, a container of an engine is created, started, waited for and \
                 removed in a running pod through the CRI, and means are those of the successful runs. The published memory limit is the lowest one of \
                 those that were tried with which busybox started; here, five of five runs must succeed. gVisor's sandbox is in the pod's group, so that a limit \
                 of its container is not comparable. The failures of youki were a bug that its authors fixed afterwards (youki issue 2826).",
        values: &[
            value("crun, mean", "280 ms", mean("containerd+crun", TRUE)),
            value("runc, mean", "340 ms", mean("containerd+runc", TRUE)),
            value("runsc, mean", "620 ms", mean("containerd+runsc", TRUE)),
            value("youki, mean", "320 ms", mean("containerd+youki", TRUE)),
            value("crun, failures of 1000", "0", failures("containerd+crun")),
            value("runc, failures of 1000", "1", failures("containerd+runc")),
            value("runsc, failures of 1000", "0", failures("containerd+runsc")),
            value("youki, failures of 1000", "36", failures("containerd+youki")),
            value("crun, lowest memory limit", "160 kB", mean("containerd+crun", LIMIT)),
            value("runc, lowest memory limit", "8 MB", mean("containerd+runc", LIMIT)),
            value("runsc, lowest memory limit", "32 MB", None),
            value("youki, lowest memory limit", "2 MB", mean("containerd+youki", LIMIT)),
        ],
    },
    Publication {
        scenario: "oci",
        source: "Giuseppe Scrivano, README of crun, 2019-12-27",
        url: "https://github.com/containers/crun",
        setting: "100 containers of `/bin/true`, one after the other; machine and versions were not published",
        remark: "The published values are those of 100 containers, divided by 100.",
        values: &[value("crun", "16.9 ms", mean("crun", RUN)), value("runc", "33.4 ms", mean("runc", RUN))],
    },
    Publication {
        scenario: "oci",
        source: "Toru Komatsu, README of youki, 2024-06-27",
        url: "https://github.com/youki-dev/youki",
        setting: "16 cores, Ubuntu 22.04, Linux 6.5; youki 0.3.3, runc 1.1.7, crun 1.15; hyperfine: create, start and delete, each through sudo, at least 100 \
                  times",
        remark: "The page cache was dropped before each published run, sudo was started three times, and delete killed the container and waited for its end. \
                 Here, it is killed by a command of its own, whose time is in the sum; the time until its end is not.",
        values: &[
            value("youki", "111.5 ms", mean("youki", CREATED)),
            value("runc", "224.6 ms", mean("runc", CREATED)),
            value("crun", "47.3 ms", mean("crun", CREATED)),
        ],
    },
    Publication {
        scenario: "bucket",
        source: "Phil Estes, README of bucketbench, 2017-02-03",
        url: "https://github.com/estesp/bucketbench",
        setting: "An Alpine container of `date` is run, stopped and removed, with Docker 15 times and with runc 50 times for each thread; machine and versions were \
                  not published",
        remark: "There were no pods: Docker's and runc's command lines were called. Values are rates, for 1, 2 and 3 threads.",
        values: &[
            value("Docker", "1.40, 2.21, 2.81 per second", None),
            value("runc", "8.38, 15.85, 23.00 per second", None),
        ],
    },
    Publication {
        scenario: "burst",
        source: "Ulrich Giraud, Which CRI should I use to replace docker for my kubernetes cluster, 2020-12-11",
        url: "https://ulrich-giraud.medium.com/which-cri-should-i-use-to-replace-docker-for-my-kubernetes-cluster-14a45c080004",
        setting: "Kubernetes 1.19, virtual machines with 2 vCPU; dockershim, containerd, CRI-O with runc and with crun; 100 DaemonSets of `sleep` slowly, 100 at once \
                  and 1000 at once",
        remark: "The values were published as pictures only. In words, which we read in a translation \
                 (https://desistdaydream.github.io/docs/10.%E4%BA%91%E5%8E%9F%E7%94%9F/Kubernetes/Kubelet/CRI-%E5%AF%B9%E6%AF%94): CRI-O with runc was the slowest to create and delete, containerd the most \
                 balanced, Docker the slowest to report states and lists.",
        values: &[],
    },
];
