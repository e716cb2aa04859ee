use crate::failure::{Failure, FailureKind};

/// The exit code of the program. `std::process::ExitCode` does not expose its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode(u8);

impl ExitCode {
    pub(crate) const SUCCESS: Self = Self(0);
    /// A failure of any command but exec.
    const FAILED: Self = Self(1);
    /// A failure of exec itself, which engines must not mistake for an exit code of the command.
    const EXEC_FAILED: Self = Self(255);

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Returns the exit code of a failure. As with runc, a program that does not exist (127 in shells) or cannot be
    /// executed (126) has the exit code of any other failure.
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure.kind {
            FailureKind::Help => Self::SUCCESS,
            FailureKind::Usage | FailureKind::NoContainer | FailureKind::Container(_) | FailureKind::Other => {
                if failure.in_exec { Self::EXEC_FAILED } else { Self::FAILED }
            }
        }
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_and_not_the_text_determines_the_exit_code() {
        let code = |failure: Failure| ExitCode::of(&failure).number();
        let text = "exec \"x\": executable file not found in $PATH";
        assert_eq!([code(Failure::new(text)), code(Failure::new(text).in_exec())], [1, 255]);
        for kind in [container::ErrorKind::NotFound, container::ErrorKind::NotExecutable, container::ErrorKind::System]
        {
            let failure = || Failure::from(container::Error::new(kind, text));
            assert_eq!([code(failure()), code(failure().in_exec())], [1, 255], "{kind:?}");
            assert_eq!(failure().within("start").kind, FailureKind::Container(kind));
        }
        assert_eq!(
            [code(Failure::usage("x")), code(Failure::absent("x")), code(Failure::help(String::new()))],
            [1, 1, 0]
        );
        assert_eq!(code(Failure::help(String::new()).in_exec()), 0);
    }
}
