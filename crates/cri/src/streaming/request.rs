use streaming::Streams;

use crate::Failure;

/// Validates the requested streams of exec or attach.
pub(crate) fn container_streams(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Result<Streams, Failure> {
    if tty && stderr {
        return Err(Failure::invalid("stderr", "must not be set with tty, because a terminal has only one output"));
    }
    if !stdin && !stdout && !stderr {
        return Err(Failure::invalid("stdout", "at least one of stdin, stdout and stderr must be set"));
    }
    Ok(Streams { stdin, stdout, stderr, tty })
}

/// Validates the ports of a pod.
pub(crate) fn ports(ports: &[i32]) -> Result<Vec<u16>, Failure> {
    let valid = |port: &i32| u16::try_from(*port).ok().filter(|port| *port > 0);
    let ports: Option<Vec<u16>> = ports.iter().map(valid).collect();
    match ports {
        Some(ports) if ports.len() <= streaming::PORTS_MAX => Ok(ports),
        Some(ports) => {
            Err(Failure::invalid("port", format_args!("{} ports; at most {}", ports.len(), streaming::PORTS_MAX)))
        }
        None => Err(Failure::invalid("port", "must be 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_no_stderr_and_a_stream_is_required() {
        assert!(container_streams(true, true, true, true).is_err());
        assert!(container_streams(false, false, false, true).is_err());
        let streams = container_streams(false, true, true, false).expect("valid");
        assert_eq!(streams, Streams { stdin: false, stdout: true, stderr: true, tty: false });
    }

    #[test]
    fn port_numbers_are_validated() {
        assert_eq!(ports(&[80, 65535]).expect("valid"), vec![80, 65535]);
        assert!(ports(&[0]).is_err());
        assert!(ports(&[-1]).is_err());
        assert!(ports(&[65536]).is_err());
        assert!(ports(&[1; 65]).is_err());
    }
}
