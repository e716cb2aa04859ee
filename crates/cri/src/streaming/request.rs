use streaming::Streams;

use crate::{Failure, answer::Outcome};

/// The streams of a command or of a container, valid.
pub(crate) fn container_streams(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Outcome<Streams> {
    if tty && stderr {
        return Err(Failure::invalid("stderr", "a terminal has one output: with tty, ask for stdout"));
    }
    if !stdin && !stdout && !stderr {
        return Err(Failure::invalid("stdout", "one of stdin, stdout and stderr must be asked for"));
    }
    Ok(Streams { stdin, stdout, stderr, tty })
}

/// Ports of a pod, valid.
pub(crate) fn ports(ports: &[i32]) -> Outcome<Vec<u16>> {
    let valid = |port: &i32| u16::try_from(*port).ok().filter(|port| *port > 0);
    let ports: Option<Vec<u16>> = ports.iter().map(valid).collect();
    match ports {
        Some(ports) if ports.len() <= streaming::PORTS_MAX => Ok(ports),
        Some(ports) => {
            Err(Failure::invalid("port", format_args!("{} of them, at most {}", ports.len(), streaming::PORTS_MAX)))
        }
        None => Err(Failure::invalid("port", "must be 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_no_errors_and_someone_must_want_something() {
        assert!(container_streams(true, true, true, true).is_err());
        assert!(container_streams(false, false, false, true).is_err());
        let streams = container_streams(false, true, true, false).expect("valid");
        assert_eq!(streams, Streams { stdin: false, stdout: true, stderr: true, tty: false });
    }

    #[test]
    fn ports_are_ports() {
        assert_eq!(ports(&[80, 65535]).expect("valid"), vec![80, 65535]);
        assert!(ports(&[0]).is_err());
        assert!(ports(&[-1]).is_err());
        assert!(ports(&[65536]).is_err());
        assert!(ports(&[1; 65]).is_err());
    }
}
