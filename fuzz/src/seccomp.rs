use oci::{Seccomp, SeccompArg, SyscallRule};

use crate::{
    bpf::{Call, Filter},
    reference::{Reference, X86_64, number},
};

const ACTIONS: [&str; 9] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_TRAP",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_LOG",
    "SCMP_ACT_NOTIFY",
];
const OPERATORS: [&str; 7] =
    ["SCMP_CMP_EQ", "SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_GT", "SCMP_CMP_GE", "SCMP_CMP_MASKED_EQ"];
/// Calls with adjacent numbers, both ends of the table, calls of some architectures only, and an unknown name.
const NAMES: [&str; 16] = [
    "read",
    "write",
    "open",
    "close",
    "personality",
    "socket",
    "clone",
    "clone3",
    "openat2",
    "ptrace",
    "mount",
    "fork",
    "arch_prctl",
    "pidfd_open",
    "of_the_future",
    "socketcall",
];
/// Values around which comparisons change.
const VALUES: [u64; 8] = [0, 1, 5, 6, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0005, u64::MAX];

/// A stream of choices. Returns zeros after its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(*first)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.next() % list.len()]
    }

    fn errno(&mut self) -> Option<u32> {
        let choice = self.next() as u32;
        choice.is_multiple_of(3).then_some(choice * 16)
    }

    fn rule(&mut self) -> SyscallRule {
        let names = (0..=self.next() % 3).map(|_| self.pick(&NAMES).to_owned()).collect();
        let action = self.pick(&ACTIONS).to_owned();
        let errno_ret = self.errno();
        let arg = |choices: &mut Self| SeccompArg {
            index: (choices.next() % 6) as u32,
            value: choices.pick(&VALUES),
            value_two: choices.pick(&VALUES),
            op: choices.pick(&OPERATORS).to_owned(),
        };
        let args = (0..self.next() % 4).map(|_| arg(self)).collect();
        SyscallRule { names, action, errno_ret, args }
    }

    fn profile(&mut self) -> Seccomp {
        let architectures: &[&str] =
            self.pick(&[&[][..], &["SCMP_ARCH_X86_64"], &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]]);
        Seccomp {
            default_action: self.pick(&ACTIONS).to_owned(),
            default_errno_ret: self.errno(),
            architectures: architectures.iter().map(|name| (*name).to_owned()).collect(),
            flags: None,
            listener_path: None,
            listener_metadata: None,
            syscalls: (0..self.next() % 12).map(|_| self.rule()).collect(),
        }
    }
}

/// Compiles a profile, given as JSON or as a stream of choices. The result must be an error or a filter that the kernel
/// accepts and that agrees with the reference evaluation of the profile.
pub fn seccomp(data: &[u8]) {
    let profile = match serde_json::from_slice::<Seccomp>(data) {
        Ok(profile) => profile,
        Err(_) => Choices(data).profile(),
    };
    let Ok(program) = seccomp::compile(&profile) else { return };
    let filter = Filter::checked(&program.filter);
    assert_eq!(seccomp::Program::from_bytes(&program.to_bytes()).as_ref(), Ok(&program));
    if cfg!(not(target_arch = "x86_64")) {
        return; // The reference evaluation has only the table of x86_64.
    }
    let (reference, arguments) = (Reference::new(&profile), arguments(&profile));
    for number in numbers(&profile) {
        for arguments in &arguments {
            let call = Call { number, architecture: X86_64, arguments: *arguments };
            assert_eq!(filter.run(&call), reference.verdict(&call), "{call:x?} under {profile:?}");
        }
    }
    let foreign = Call { number: 0, architecture: 0x1234_5678, arguments: [0; 6] };
    assert_eq!(filter.run(&foreign), 0x8000_0000, "a process of a foreign architecture must be killed");
}

/// Numbers of the calls that the profile names, the adjacent numbers, and some beyond the table.
fn numbers(profile: &Seccomp) -> Vec<u32> {
    let named = profile.syscalls.iter().flat_map(|rule| &rule.names).filter_map(|name| number(name)).take(64);
    let adjacent = named.flat_map(|n| [n.saturating_sub(1), n, n + 1]);
    let mut all: Vec<u32> = adjacent.chain([0, 1, 100, 334, 400, 424, 500, 1000, 0x3fff_ffff]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Arguments equal to the values that the profile compares with, and off by one.
fn arguments(profile: &Seccomp) -> Vec<[u64; 6]> {
    let args = profile.syscalls.iter().flat_map(|rule| &rule.args).filter(|arg| arg.index < 6).take(32);
    let mut all = vec![[0; 6], [5; 6], [u64::MAX; 6]];
    for arg in args {
        for value in
            [arg.value.wrapping_sub(1), arg.value, arg.value.wrapping_add(1), arg.value_two, arg.value ^ 1 << 32]
        {
            let mut others_equal = [arg.value; 6];
            others_equal[arg.index as usize] = value;
            all.push(others_equal);
            let mut others_zero = [0; 6];
            others_zero[arg.index as usize] = value;
            all.push(others_zero);
        }
    }
    all
}
