/// The exit code of the program. `std::process::ExitCode` does not expose its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitCode(u8);

impl ExitCode {
    pub(crate) const SUCCESS: Self = Self(0);

    pub(crate) fn number(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> Self {
        Self(number)
    }
}
