//! `pinion-bench preset`: scenarios with the settings of published comparisons ([`crate::published`]).

use crate::{engine::Failure, output};

/// The setting of a published comparison.
struct Preset {
    name: &'static str,
    /// What was compared.
    title: &'static str,
    /// Scenario and options.
    words: &'static [&'static str],
}

const PRESETS: &[Preset] = &[
    Preset {
        name: "pause",
        title: "100 pods are run and then removed, with and without a pause container, 10 times",
        words: &["pods", "--in-flight=0", "--density=100", "--rounds=10"],
    },
    Preset {
        name: "bucketbench",
        title: "1 to 3 threads run, stop and delete 15 pods each",
        words: &["bucket", "--threads=1,2,3", "--iterations=15", "--rounds=10"],
    },
    Preset {
        name: "daemonsets",
        title: "100 pods slowly and 100 at once, while the engine is polled as by a kubelet",
        words: &["burst", "--pods=100", "--at-once=1,100", "--rounds=6"],
    },
    Preset {
        name: "daemonsets-1000",
        title: "1000 pods at once, while the engine is polled as by a kubelet",
        words: &["burst", "--pods=1000", "--at-once=1000", "--rounds=6"],
    },
    Preset {
        name: "true",
        title: "1000 containers of `true` for each runtime, at the command line",
        words: &["oci", "--rounds=50", "--runs=20"],
    },
    Preset {
        name: "true-engines",
        title: "1000 containers of `true` for each runtime, through engines and at the command line",
        words: &["runtimes", "--rounds=100", "--runs=10"],
    },
    Preset {
        name: "virtual-machines",
        title: "network drivers of containers and of virtual machines, idle and under load, 15 times",
        words: &["network", "--engine=pinion,vm", "--pair=bridge,host,macvlan,overlay", "--rounds=15"],
    },
];

/// Options of presets that have a short form.
const SHORT_OPTIONS: [(&str, &str); 4] = [("--pods", "-n"), ("--runs", "-n"), ("--engine", "-e"), ("--pair", "-p")];

/// Arguments of `pinion-bench preset`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the comparison; without a name, all of them are listed.
    name: Option<String>,
    /// Further arguments of the scenario: engines or runtimes, the image, --results. Options of the preset can be replaced.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Arguments {
    /// Returns the command line of the scenario; prints the list and returns `None` without a name.
    ///
    /// # Errors
    /// The name is unknown, or the list cannot be written.
    pub(crate) fn command_line(self) -> Result<Option<Vec<String>>, Failure> {
        let Some(name) = self.name else {
            return output::print(&list()).map(|()| None);
        };
        let preset = PRESETS.iter().find(|preset| preset.name == name);
        let preset = preset.ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            Failure(format!("unknown preset {name:?}; known: {}", names.join(", ")))
        })?;
        let is_kept = |word: &&&str| !self.arguments.iter().any(|argument| replaces(argument, word));
        let words = ["pinion-bench"].iter().chain(preset.words).filter(is_kept).map(|word| (*word).to_owned());
        let words: Vec<String> = words.collect();
        Ok(Some(words.into_iter().chain(self.arguments).collect()))
    }
}

/// Returns whether an argument of the user sets the option of a word of a preset, too.
fn replaces(argument: &str, word: &str) -> bool {
    let name = |text: &str| text.split('=').next().unwrap_or(text).to_owned();
    let option = name(word);
    let short = SHORT_OPTIONS.iter().find(|(long, _)| *long == option).map(|(_, short)| *short);
    let is_short = short.is_some_and(|short| !argument.starts_with("--") && argument.starts_with(short));
    option.starts_with('-') && (is_short || name(argument) == option)
}

/// Returns a line for each preset.
fn list() -> String {
    let line = |preset: &Preset| format!("{:16} {}\n{:16} {}\n", preset.name, preset.title, "", preset.words.join(" "));
    PRESETS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_preset_is_a_command_line() {
        for preset in PRESETS {
            let of_scenario: &[&str] = match preset.words[0] {
                "oci" => &["--runtime=crun=/usr/bin/crun"],
                "network" => &["--guest-image=/image"],
                _ => &["--engine=one=/run/one.sock", "--image=image"],
            };
            let arguments = Arguments {
                name: Some(preset.name.to_owned()),
                arguments: of_scenario.iter().map(|word| (*word).to_owned()).collect(),
            };
            let words = arguments.command_line().expect("a known preset").expect("a command line");
            crate::Arguments::command().try_get_matches_from(words).expect("a valid command line");
        }
    }

    #[test]
    fn options_of_a_preset_can_be_replaced() {
        for (name, arguments, rest) in [
            ("daemonsets", &["-n", "5", "--rounds", "2"][..], "pinion-bench burst --at-once=1,100 -n 5 --rounds 2"),
            ("daemonsets", &["--at-once=7", "--pods=5"][..], "pinion-bench burst --rounds=6 --at-once=7 --pods=5"),
            (
                "virtual-machines",
                &["-epinion,tap", "-p", "host"][..],
                "pinion-bench network --rounds=15 -epinion,tap -p host",
            ),
        ] {
            let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            let preset = Arguments { name: Some(name.to_owned()), arguments };
            assert_eq!(preset.command_line().expect("a known preset").expect("a command line").join(" "), rest);
        }
    }

    #[test]
    fn unknown_presets_are_refused() {
        let arguments = Arguments { name: Some("x".to_owned()), arguments: Vec::new() };
        assert!(arguments.command_line().is_err_and(|failure| failure.0.contains("pause, bucketbench")));
    }
}
