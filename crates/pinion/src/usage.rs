//! Wrong arguments: what is reported, and the exit code.

use std::{ffi::OsString, process::exit};

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{arguments::Arguments, failure::CANNOT};

/// Commands that are never suggested for a mistyped one: what they do cannot be undone.
const NEVER_SUGGESTED: [&str; 1] = ["reset"];
/// Commands that return their program's exit code, and 125 for a failure of the engine's, as Docker's.
const WITH_PROGRAM: [&str; 3] = ["run", "exec", "attach"];
/// Commands of Docker that are not here, and what to use instead.
const ELSEWHERE: [(&str, &str); 36] = [
    ("build", "build it with another program (buildah, docker build) and take it over: pinion load -i FILE"),
    ("builder", "build images with another program (buildah, docker build): pinion load -i FILE"),
    ("buildx", "build images with another program (buildah, docker build): pinion load -i FILE"),
    ("checkpoint", "checkpoints are made by OCI runtimes: pinrun checkpoint"),
    ("commit", "an image is built from a file, not from a container: buildah, docker build, then pinion load -i FILE"),
    ("compose", "a pod has several containers: pinion run -d --pod NAME IMAGE, once for each"),
    ("container", "the commands for containers have no word before them: pinion ps, pinion rm, pinion inspect, …"),
    ("context", "another daemon is named by its socket: pinion --socket PATH …"),
    ("cp", "copy through a command: pinion exec NAME cat FILE > FILE, or run with -v HOST:CONTAINER"),
    ("create", "a container is created and started at once: pinion run -d IMAGE"),
    ("diff", "changed files are in the container's root: pinion exec NAME find / -xdev -newer /etc/hostname"),
    ("events", "pinion why NAME shows the timeline of one container, pinion wait NAME its end"),
    ("export", "export through a command: pinion exec NAME tar -c -C / . > FILE; images: pinion save"),
    ("history", "pinion inspect IMAGE shows what is known of an image"),
    ("image", "the commands for images have no word before them: pinion images, pinion rmi, pinion inspect, …"),
    ("import", "pinion load -i FILE takes archives with an image's configuration (Docker's or OCI's)"),
    ("login", "names and passwords are read from registries.auth_file of the configuration: pinion config default"),
    ("logout", "names and passwords are read from registries.auth_file of the configuration: pinion config default"),
    ("manifest", "pinion inspect IMAGE shows what is known of an image"),
    ("network", "networks are CNI configurations (/etc/cni/net.d), or the built-in bridge: pinion config show"),
    ("pause", "pinion kill -s STOP --all NAME"),
    ("plugin", "plugins are CNI programs and CDI devices in directories: pinion config show"),
    ("port", "pinion ps shows published ports"),
    ("push", "pinion save -o FILE IMAGE, then push it with another program: skopeo copy oci-archive:FILE docker://…"),
    ("rename", "the name is given when the container is made: pinion run --name NAME"),
    ("restart", "a container that ended is not started again: pinion rm -f NAME, then pinion run"),
    ("search", "registries are searched on their own pages"),
    ("service", "Kubernetes does that: see docs/kubernetes.md"),
    ("swarm", "Kubernetes does that: see docs/kubernetes.md"),
    ("system", "pinion info shows the daemon's state; what is unused is removed automatically"),
    ("tag", "pull or load the image under the other name"),
    ("top", "pinion exec NAME ps"),
    ("trust", "pull by digest: pinion pull NAME@sha256:…"),
    ("unpause", "pinion kill -s CONT --all NAME"),
    ("update", "limits are given when the container is made: pinion run --memory SIZE --cpus CORES"),
    ("volume", "volumes are directories of the machine: pinion run -v HOST:CONTAINER"),
];

/// The arguments of this program; wrong ones are reported, and end it.
pub(crate) fn arguments() -> Arguments {
    let words: Vec<OsString> = std::env::args_os().collect();
    Arguments::try_parse_from(&words).unwrap_or_else(|error| {
        if let Some(message) = unknown_command(&error) {
            eprintln!("{message}");
        } else {
            // Nobody is left to report it to.
            let _ = error.print();
        }
        exit(exit_code(&error, &words))
    })
}

/// The message for a command that does not exist; `None`: something else is wrong.
fn unknown_command(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let more = "see: pinion --help";
    let elsewhere = ELSEWHERE.iter().find(|(command, _)| command == name);
    let known = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => &names[..],
        Some(ContextValue::String(name)) => std::slice::from_ref(name),
        _ => &[],
    };
    let meant: Vec<String> = known
        .iter()
        .filter(|name| !NEVER_SUGGESTED.contains(&name.as_str()))
        .map(|name| format!("pinion {name}"))
        .collect();
    Some(match (elsewhere, meant.is_empty()) {
        (Some((_, instead)), _) => format!("pinion: unknown command {name:?}: {instead}"),
        (None, false) => format!("pinion: unknown command {name:?}; is it {}? {more}", meant.join(" or ")),
        (None, true) => format!("pinion: unknown command {name:?}; {more}"),
    })
}

/// 0 where help was requested; 125 for commands that return their program's exit code; else 2.
fn exit_code(error: &clap::Error, words: &[OsString]) -> i32 {
    let with_program = command_of(words).is_some_and(|command| WITH_PROGRAM.contains(&command));
    match error.exit_code() {
        0 => 0,
        // `pinion` alone shows the help.
        code if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => code,
        _ if with_program => CANNOT.into(),
        code => code,
    }
}

/// The first word that is not an option of this program.
fn command_of(words: &[OsString]) -> Option<&str> {
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        match word {
            "--socket" => drop(words.next()),
            option if option.starts_with('-') => {}
            command => return Some(command),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn wrong(line: &str) -> (Option<String>, i32) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::try_parse_from(&words).expect_err(line);
        (unknown_command(&error), exit_code(&error, &words))
    }

    #[test]
    fn what_cannot_be_undone_is_never_suggested() {
        for typo in ["rest", "rset", "reest", "resett", "resset"] {
            let message = wrong(&format!("pinion {typo}")).0.expect("unknown");
            assert!(!message.contains("pinion reset"), "{message}");
        }
        let message = wrong("pinion imags").0.expect("unknown");
        assert!(message.contains("is it pinion images?"), "{message}");
    }

    #[test]
    fn commands_of_docker_have_an_answer() {
        let known = Arguments::command();
        for (command, instead) in ELSEWHERE {
            assert!(known.find_subcommand(command).is_none(), "{command} exists");
            let message = wrong(&format!("pinion {command}")).0.expect("unknown");
            assert!(message.ends_with(instead), "{message}");
        }
        assert!(ELSEWHERE.is_sorted_by_key(|(command, _)| *command));
        assert!(wrong("pinion restart web").0.expect("unknown").contains("pinion rm -f NAME, then pinion run"));
    }

    #[test]
    fn wrong_arguments_do_not_look_like_the_program_s_exit_code() {
        assert_eq!(wrong("pinion run --no-such-option x").1, 125);
        assert_eq!(wrong("pinion --socket /s --json exec web").1, 125);
        assert_eq!(wrong("pinion logs --since yesterday x").1, 2);
        assert_eq!(wrong("pinion run --help").1, 0);
    }
}
