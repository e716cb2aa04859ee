//! Reports invalid arguments, and chooses the exit code for them.

use std::ffi::OsString;

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    arguments::Arguments,
    failure::{ENGINE_FAILED, Failure},
};

/// Commands that are never suggested for a mistyped one, because their effect cannot be undone.
const NEVER_SUGGESTED: [&str; 1] = ["reset"];
/// Commands whose exit codes 1 and 2 have a meaning of their own, and that return 125 for a failure of the engine: those
/// that return the code of a container's program, as Docker's do, and `doctor`, which returns how bad its findings are.
const WITH_PROGRAM: [&str; 4] = ["run", "exec", "attach", "doctor"];
/// Docker commands that pinion does not have, and what to use instead.
const DOCKER_COMMANDS: [(&str, &str); 35] = [
    ("build", "build the image with another program (buildah, docker build) and import it: pinion load -i FILE"),
    ("builder", "build images with another program (buildah, docker build): pinion load -i FILE"),
    ("buildx", "build images with another program (buildah, docker build): pinion load -i FILE"),
    ("checkpoint", "use an OCI runtime for checkpoints: pinrun checkpoint"),
    ("commit", "build the image from a file instead: buildah, docker build, then pinion load -i FILE"),
    ("compose", "run several containers in one pod: pinion run -d --pod NAME IMAGE, once for each"),
    ("container", "container commands have no prefix: pinion ps, pinion rm, pinion inspect, …"),
    ("context", "select another daemon by its socket: pinion --socket PATH …"),
    ("cp", "copy through a command: pinion exec NAME cat FILE > FILE, or run with -v HOST:CONTAINER"),
    ("create", "create and start the container in one step: pinion run -d IMAGE"),
    ("diff", "search the root of the container for changed files: pinion exec NAME find / -xdev -newer /etc/hostname"),
    ("events", "pinion why NAME shows the timeline of a container, pinion wait NAME waits for its exit"),
    ("export", "export through a command: pinion exec NAME tar -c -C / . > FILE; images: pinion save"),
    ("history", "pinion inspect IMAGE shows the details of an image"),
    ("image", "image commands have no prefix: pinion images, pinion rmi, pinion inspect, …"),
    ("import", "pinion load -i FILE imports Docker and OCI archives, which have an image configuration"),
    ("login", "credentials are read from registries.auth_file in the configuration: pinion config default"),
    ("logout", "credentials are read from registries.auth_file in the configuration: pinion config default"),
    ("manifest", "pinion inspect IMAGE shows the details of an image"),
    ("pause", "pinion kill -s STOP --all NAME"),
    ("plugin", "plugins are CNI programs and CDI specifications in directories: pinion config show"),
    ("port", "pinion ps shows published ports"),
    ("push", "pinion save -o FILE IMAGE, then push it with another program: skopeo copy oci-archive:FILE docker://…"),
    ("rename", "set the name when the container is created: pinion run --name NAME"),
    ("restart", "a container that exited is not started again: pinion rm -f NAME, then pinion run"),
    ("search", "search on the website of the registry"),
    ("service", "use Kubernetes: see docs/kubernetes.md"),
    ("swarm", "use Kubernetes: see docs/kubernetes.md"),
    ("system", "pinion info shows the state of the daemon; unused data is removed automatically"),
    ("tag", "pull or load the image under the other name"),
    ("top", "pinion exec NAME ps"),
    ("trust", "pull by digest: pinion pull NAME@sha256:…"),
    ("unpause", "pinion kill -s CONT --all NAME"),
    ("update", "set limits when the container is created: pinion run --memory SIZE --cpus CORES"),
    ("volume", "volumes are directories of the host: pinion run -v HOST:CONTAINER"),
];

/// Parses the arguments of this program. Invalid ones are reported here; the failure has the exit code only.
pub(crate) fn arguments() -> Result<Arguments, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    Arguments::try_parse_from(&words).map_err(|error| {
        if let Some(message) = unknown_command(&error) {
            eprintln!("{message}");
        } else {
            // If standard error cannot be written, there is nowhere else to report it.
            let _ = error.print();
        }
        Failure::quiet(exit_code(&error, &words))
    })
}

/// Returns the message for an unknown command, or `None` if the error is about something else.
fn unknown_command(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let more = "see: pinion --help";
    let replacement = DOCKER_COMMANDS.iter().find(|(command, _)| command == name);
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => &names[..],
        Some(ContextValue::String(name)) => std::slice::from_ref(name),
        _ => &[],
    };
    // The most similar one is the last.
    let suggestion = similar.iter().rfind(|name| !NEVER_SUGGESTED.contains(&name.as_str()));
    Some(match (replacement, suggestion) {
        (Some((_, instead)), _) => format!("pinion: unknown command {name:?}: {instead}"),
        (None, Some(similar)) => format!("pinion: unknown command {name:?}; did you mean pinion {similar}? {more}"),
        (None, None) => format!("pinion: unknown command {name:?}; {more}"),
    })
}

/// Returns 0 if help was requested, 125 for [`WITH_PROGRAM`], else 2.
fn exit_code(error: &clap::Error, words: &[OsString]) -> u8 {
    let with_program = command_of(words).is_some_and(|command| WITH_PROGRAM.contains(&command));
    match u8::try_from(error.exit_code()).unwrap_or(1) {
        0 => 0,
        // `pinion` without arguments shows the help.
        code if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => code,
        _ if with_program => ENGINE_FAILED,
        code => code,
    }
}

/// Returns the first word that is not a global option of this program.
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

    fn invalid(line: &str) -> (Option<String>, u8) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::try_parse_from(&words).expect_err(line);
        (unknown_command(&error), exit_code(&error, &words))
    }

    #[test]
    fn destructive_commands_are_never_suggested() {
        for typo in ["rest", "rset", "reest", "resett", "resset"] {
            let message = invalid(&format!("pinion {typo}")).0.expect("unknown");
            assert!(!message.contains("pinion reset"), "{message}");
        }
        let message = invalid("pinion imags").0.expect("unknown");
        assert!(message.contains("did you mean pinion images?"), "{message}");
    }

    #[test]
    fn docker_commands_have_a_replacement() {
        let known = Arguments::command();
        for (command, instead) in DOCKER_COMMANDS {
            assert!(known.find_subcommand(command).is_none(), "{command} exists");
            let message = invalid(&format!("pinion {command}")).0.expect("unknown");
            assert!(message.ends_with(instead), "{message}");
        }
        assert!(DOCKER_COMMANDS.is_sorted_by_key(|(command, _)| *command));
        assert!(invalid("pinion restart web").0.expect("unknown").contains("pinion rm -f NAME, then pinion run"));
    }

    #[test]
    fn invalid_arguments_do_not_exit_like_the_program() {
        assert_eq!(invalid("pinion run --no-such-option x").1, 125);
        assert_eq!(invalid("pinion --socket /s --json exec web").1, 125);
        assert_eq!(invalid("pinion doctor --no-such-option").1, 125);
        assert_eq!(invalid("pinion logs --since yesterday x").1, 2);
        assert_eq!(invalid("pinion run --help").1, 0);
    }
}
