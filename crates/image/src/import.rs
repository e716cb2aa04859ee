//! Import (being written).
use crate::{Error, Image, Store};
impl Store {
    /// Docker archive or OCI layout.
    ///
    /// # Errors
    /// Always, for now.
    pub async fn import(&self, _archive: &mut (dyn tokio::io::AsyncRead + Send + Unpin)) -> Result<Vec<Image>, Error> {
        Err(Error::invalid("import"))
    }
    /// A tar that is both.
    ///
    /// # Errors
    /// Always, for now.
    pub async fn export(
        &self,
        _names: &[String],
        _out: &mut (dyn tokio::io::AsyncWrite + Send + Unpin),
    ) -> Result<(), Error> {
        Err(Error::invalid("export"))
    }
}
