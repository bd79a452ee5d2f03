//! Who may look from elsewhere: TLS, names and passwords, sessions.

mod gate;
mod kept;
mod login;
mod sessions;
mod tls;
mod tries;
mod users;

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use crate::config::settings::WebSettings;
use crate::model::time::Time;

pub(super) use gate::{Visitor, metrics_gate, page_gate, tells_reasons};
pub(super) use login::{log_in, log_out, session};
pub use users::{SHORTEST, written};

use kept::ReloadedFiles;
use login::Login;
use tls::ServerCertificate;

/// What a web server wants of those who ask; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Access {
    certificate: Option<Arc<ReloadedFiles<ServerCertificate>>>,
    login: Option<Arc<Login>>,
}

impl Access {
    /// Reads the files that `[web]` names.
    ///
    /// # Errors
    /// The first file that cannot be used, by its key, and what to do.
    pub fn open(web: &WebSettings) -> Result<Access, String> {
        let certificate = web.tls.as_ref().map(tls::open).transpose()?;
        let users = web.users_file.as_deref().map(users::open).transpose()?;
        let secure = certificate.is_some();
        let login = users.map(|users| Login::of(users, secure)).transpose()?;
        Ok(Access {
            certificate: certificate.map(Arc::new),
            login: login.map(Arc::new),
        })
    }

    /// What is wrong with the files as they are now, in a sentence. What was read before stays in force.
    pub fn problem(&self, now: Time) -> Option<String> {
        let certificate = self.certificate.as_ref().and_then(|kept| {
            let certificate = kept.get();
            kept.problem().or_else(|| certificate.ends(now))
        });
        certificate.or_else(|| {
            let login = self.login.as_ref()?;
            login.users.get();
            login.users.problem()
        })
    }

    /// Whether a login is wanted.
    pub(super) fn wants_login(&self) -> bool {
        self.login.is_some()
    }

    /// How a connection is begun, with the certificate as it is now; `None` without TLS.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        let certificate = self.certificate.as_ref()?.get();
        Some(TlsAcceptor::from(certificate.server.clone()))
    }
}
