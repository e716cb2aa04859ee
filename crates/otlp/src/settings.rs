//! The settings of the export.

/// Settings of the export.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// URL `http://host:port` of a collector that accepts OTLP over gRPC (by convention port 4317).
    pub endpoint: String,
    /// Share of traces that are recorded if the client did not decide, from 0 to 1.
    pub sample_ratio: f64,
    /// Resource attribute `service.name`.
    pub service_name: String,
    /// Additional resource attributes: `service.version`, `host.name`.
    pub resource: Vec<(String, String)>,
}

/// The error of invalid settings.
#[derive(Debug, thiserror::Error)]
#[error("traces to {endpoint}: {reason}")]
pub struct SettingsError {
    pub(crate) endpoint: String,
    pub(crate) reason: String,
}

impl SettingsError {
    /// Returns the category: the settings are always what is wrong.
    pub fn kind(&self) -> std::io::ErrorKind {
        std::io::ErrorKind::InvalidInput
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        "export traces"
    }

    /// Returns the endpoint.
    pub fn object(&self) -> &str {
        &self.endpoint
    }
}
