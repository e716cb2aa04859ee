//! Calls libseccomp through a small C program that this test compiles (Debian: libseccomp-dev).

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use oci::Seccomp;

use crate::interpreter::{Call, run};

const ERRNO: u32 = 0x0005_0000;
pub(crate) const ENOSYS: u32 = ERRNO | 38;

pub(crate) struct Reference {
    pub(crate) filter: Vec<u8>,
    pub(crate) microseconds: u32,
    default: u32,
    /// The largest number in the profile for x86_64, x86 and x32, if the profile has the architecture.
    last: [Option<u32>; 3],
}

pub(crate) const ARCHS: [&str; 3] = ["x86_64", "x86", "x32"];

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agree/reference.c");
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("seccomp-reference");
        // The program is renamed into place, because another run of this test may be executing it.
        let new = program.with_extension(std::process::id().to_string());
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&new).args([source, "-lseccomp"]).status();
        assert!(built.expect("run cc").success(), "compile the reference: cc failed; install libseccomp-dev");
        std::fs::rename(&new, &program).expect("rename the program");
        program
    })
}

fn run_reference(commands: &str) -> Vec<u8> {
    let mut child =
        Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn the reference");
    let (mut stdin, text) = (child.stdin.take().expect("stdin is a pipe"), commands.to_owned());
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let mut output = Vec::new();
    child.stdout.take().expect("stdout is a pipe").read_to_end(&mut output).expect("read the output");
    writer.join().expect("join the writer").expect("write the commands");
    assert!(child.wait().expect("wait for the reference").success(), "the reference failed for:\n{commands}");
    output
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns libseccomp's numbers of these names on one architecture.
pub(crate) fn numbers(arch: &str, names: &[&str]) -> Vec<Option<u32>> {
    let commands: String = names.iter().map(|name| format!("number {arch} {name}\n")).collect();
    let output = run_reference(&commands);
    (0..names.len()).map(|at| Some(word(&output, at * 4)).filter(|n| *n != u32::MAX)).collect()
}

pub(crate) fn action(name: &str, errno: Option<u32>) -> u32 {
    match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => ERRNO | errno.unwrap_or(1),
        "SCMP_ACT_NOTIFY" => 0x7fc0_0000,
        "SCMP_ACT_TRACE" => 0x7ff0_0000 | errno.unwrap_or(1),
        "SCMP_ACT_LOG" => 0x7ffc_0000,
        "SCMP_ACT_ALLOW" => 0x7fff_0000,
        other => panic!("{other}"),
    }
}

impl Reference {
    /// Compiles a profile as runc does: omits rules with the default action, and treats two conditions on one argument
    /// as alternatives.
    pub(crate) fn compile(profile: &Seccomp) -> Self {
        let default = action(&profile.default_action, profile.default_errno_ret);
        let archs: Vec<_> = profile.architectures.iter().map(|a| a["SCMP_ARCH_".len()..].to_lowercase()).collect();
        let mut commands = format!("profile {default} {} {}\n", archs.len(), archs.join(" "));
        let mut names = Vec::new();
        for rule in &profile.syscalls {
            names.extend(rule.names.iter().map(String::as_str));
            let action = action(&rule.action, rule.errno_ret);
            let text = |arg: &oci::SeccompArg| {
                format!(" {} {} {} {}", arg.index, &arg.op["SCMP_CMP_".len()..], arg.value, arg.value_two)
            };
            let twice = rule.args.iter().enumerate().any(|(at, a)| rule.args[..at].iter().any(|b| a.index == b.index));
            let alternatives: Vec<String> = match twice {
                true => rule.args.iter().map(|arg| format!("1{}", text(arg))).collect(),
                false => vec![format!("{}{}", rule.args.len(), rule.args.iter().map(text).collect::<String>())],
            };
            for name in rule.names.iter().filter(|_| action != default) {
                commands.extend(alternatives.iter().map(|conditions| format!("rule {action} {name} {conditions}\n")));
            }
        }
        let output = run_reference(&(commands + "end\n"));
        let length = word(&output, 0) as usize;
        let last = ARCHS.map(|arch| {
            let included = arch == "x86_64" || archs.iter().any(|a| a == arch);
            numbers(arch, &names).into_iter().flatten().max().filter(|_| included)
        });
        Self { filter: output[4..4 + length].to_vec(), microseconds: word(&output, 4 + length), default, last }
    }

    /// Returns the verdict with runc's patch: calls newer than the profile return ENOSYS unless the default permits
    /// them.
    pub(crate) fn verdict(&self, call: &Call) -> u32 {
        let permits = matches!(self.default & 0xffff_0000, 0x7fff_0000 | 0x7ffc_0000 | 0x7ff0_0000);
        let last = match call.arch {
            Call::X86_64 if call.number & 0x4000_0000 != 0 => self.last[2],
            Call::X86_64 => self.last[0],
            Call::X86 => self.last[1],
            _ => None,
        };
        if !permits && last.is_some_and(|last| call.number > last) {
            return ENOSYS;
        }
        run(&self.filter, call)
    }
}
