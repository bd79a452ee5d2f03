//! A POST to a web server that the configuration names: whom its certificate is checked by, headers out of a file, an
//! answer of which a bounded part is read, and no secret in what is told of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use crate::controller::secret_file;
use crate::model::foreign;
use crate::pve::transport::tls::{self, CertificateTrust};
use crate::pve::transport::wire::client_builder;

/// The authorities of a Debian host.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest file with headers or a URL.
const LONGEST_FILE: u64 = 16 * 1024;
/// So much of an answer is read: it is shown when it is no success.
const LONGEST_ANSWER: usize = 4 * 1024;
/// So much of it is shown, in characters.
const SHOWN: usize = 200;
/// A shorter text is no secret that could be blotted out of an answer.
const SHORTEST_SECRET: usize = 6;

/// Where to, and with which headers.
#[derive(Debug)]
pub(crate) struct Post {
    url: SecretString,
    headers: HeaderMap,
    /// Texts that must not be shown.
    secrets: Vec<SecretString>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct PostAnswer {
    /// The answer's HTTP status.
    pub(crate) status: StatusCode,
    /// When it wants to be asked again, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// The beginning of its body, without the secrets that went into the request.
    pub(crate) body: String,
}

impl PostAnswer {
    /// In words, for a person.
    pub(crate) fn words(&self) -> String {
        let said = foreign::line(&self.body, SHOWN);
        let colon = if said.is_empty() { "" } else { ": " };
        format!("it answered {}{colon}{said}", self.status)
    }
}

impl Post {
    /// To this URL.
    ///
    /// # Errors
    /// A header cannot be set.
    pub(crate) fn to(url: &str) -> Result<Post, String> {
        Post::new(SecretString::from(url.to_owned()))
    }

    /// To the URL in a file, which is a secret.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn to_url_in(path: &Path) -> Result<Post, String> {
        Post::to_secret(&url_of(path)?)
    }

    /// To this URL, which is a secret.
    ///
    /// # Errors
    /// A header cannot be set.
    pub(crate) fn to_secret(url: &SecretString) -> Result<Post, String> {
        let mut post = Post::new(url.clone())?;
        // A server or an error may name the path without the rest, or what is asked with.
        let whole = url.expose_secret();
        let query = whole.split_once('?').map_or("", |(_, query)| query);
        let parts = whole.split(['?', '#']).next();
        let path = parts.and_then(|part| part.splitn(4, '/').nth(3));
        post.hide(whole);
        post.hide(path.unwrap_or_default());
        for pair in query.split('&') {
            post.hide(pair.split_once('=').map_or(pair, |(_, value)| value));
        }
        Ok(post)
    }

    fn new(url: SecretString) -> Result<Post, String> {
        let mut post = Post {
            url,
            headers: HeaderMap::new(),
            secrets: Vec::new(),
        };
        let agent = concat!("pve-autoscaler/", env!("CARGO_PKG_VERSION"));
        post.set(header::USER_AGENT, agent)?;
        Ok(post)
    }

    /// Sets a header that is no secret.
    ///
    /// # Errors
    /// It cannot have this value.
    pub(crate) fn set(&mut self, name: HeaderName, value: &str) -> Result<(), String> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("the header {name} cannot have the value {value:?}"))?;
        self.headers.insert(name, value);
        Ok(())
    }

    /// Sets the headers that stand in a file, which are secrets.
    ///
    /// # Errors
    /// The file cannot be used; never what stands in it.
    pub(crate) fn set_from(&mut self, path: &Path) -> Result<(), String> {
        let text = secret_file::read_as("headers_file", path, LONGEST_FILE)?;
        for (name, mut value) in headers_of(path, &text)? {
            let shown = value.to_str().unwrap_or_default();
            self.hide(shown);
            self.hide(shown.split(' ').next_back().unwrap_or_default());
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        Ok(())
    }

    /// Whether the URL's path ends with this.
    pub(crate) fn ends_with(&self, end: &str) -> bool {
        let url = self.url.expose_secret();
        let path = url.split(['?', '#']).next().unwrap_or_default();
        path.trim_end_matches('/').ends_with(end)
    }

    /// The value of a header that is set.
    #[cfg(test)]
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    fn hide(&mut self, text: &str) {
        if text.len() >= SHORTEST_SECRET {
            self.secrets.push(SecretString::from(text.to_owned()));
        }
    }

    /// A text without the secrets that go into the request, for servers that repeat what they were sent.
    pub(crate) fn blotted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), "<redacted>");
        }
        text
    }

    /// A client for it.
    ///
    /// # Errors
    /// The authorities cannot be read.
    pub(crate) fn client(&self, ca_file: Option<&Path>) -> Result<reqwest::Client, String> {
        let builder = client_builder();
        let builder = if self.url.expose_secret().starts_with("https:") {
            let path = ca_file.map_or_else(|| PathBuf::from(AUTHORITIES), Path::to_owned);
            let trust = crate::pve::certificates(&path).map_err(|why| {
                format!(
                    "{why}; Debian's package ca-certificates has authorities, ca_file names others"
                )
            })?;
            builder.tls_backend_preconfigured(tls::client(CertificateTrust::Issuers(trust))?)
        } else {
            builder
        };
        builder.build().map_err(|error| {
            format!(
                "the request cannot be made: {}",
                chain(&error.without_url())
            )
        })
    }

    /// Sends it with this body and waits for the answer, all within `limit`.
    ///
    /// # Errors
    /// No answer came, and why; without a secret.
    pub(crate) async fn send(
        &self,
        client: &reqwest::Client,
        body: String,
        limit: Duration,
    ) -> Result<PostAnswer, String> {
        let sent = timeout(limit, self.exchange(client, body)).await;
        let late = || Err(format!("no answer within {} s", limit.as_secs_f64()));
        sent.unwrap_or_else(|_| late())
            .map_err(|error| self.blotted(&error))
    }

    /// The request itself.
    fn request(&self, client: &reqwest::Client, body: String) -> Result<reqwest::Request, String> {
        let request = client
            .post(self.url.expose_secret())
            .headers(self.headers.clone())
            .body(body);
        request.build().map_err(|error| {
            format!(
                "the request cannot be made: {}",
                chain(&error.without_url())
            )
        })
    }

    async fn exchange(&self, client: &reqwest::Client, body: String) -> Result<PostAnswer, String> {
        let request = self.request(client, body)?;
        let mut response = client
            .execute(request)
            .await
            .map_err(|error| chain(&error.without_url()))?;
        let status = response.status();
        let wait = response.headers().get(header::RETRY_AFTER);
        let retry_after = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        // What breaks off after the status is an answer all the same.
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= LONGEST_ANSWER {
                break;
            }
        }
        body.truncate(LONGEST_ANSWER);
        Ok(PostAnswer {
            status,
            retry_after,
            // Before it is cut for a person: half a secret would be found no more.
            body: self.blotted(&String::from_utf8_lossy(&body)),
        })
    }
}

/// A part of the configuration that keeps a request from being made.
#[derive(Debug)]
pub(crate) struct PostObstacle {
    /// The key of the configuration: `url`, `url_file`, `headers_file` or `ca_file`.
    pub(crate) key: &'static str,
    /// The file, where the key names one.
    pub(crate) path: Option<PathBuf>,
    /// What is wrong with it, without a secret.
    pub(crate) why: String,
}

/// All that keeps a request from being made. It is made as for sending, and not sent. `url_file` is the file that the URL is from.
pub(crate) fn obstacles(
    begun: Result<Post, String>,
    url_file: Option<&Path>,
    headers_file: Option<&Path>,
    ca_file: Option<&Path>,
) -> Vec<PostObstacle> {
    let mut found = Vec::new();
    let mut note = |key: &'static str, path: Option<&Path>, why: String| {
        let path = path.map(Path::to_owned);
        found.push(PostObstacle { key, path, why });
    };
    let (url, of_url) = match url_file {
        Some(file) => ("url_file", Some(file)),
        None => ("url", None),
    };
    let unknown = begun.is_err();
    // With a URL that cannot be read the other files are looked at all the same.
    let post = begun.or_else(|why| {
        note(url, of_url, why);
        Post::to("https://localhost/")
    });
    let mut post = match post {
        Ok(post) => post,
        Err(why) => {
            note(url, of_url, why);
            return found;
        }
    };
    if let Some(file) = headers_file
        && let Err(why) = post.set_from(file)
    {
        note("headers_file", Some(file), why);
    }
    match post.client(ca_file) {
        Ok(client) if !unknown => {
            if let Err(why) = post.request(&client, String::new()) {
                note(url, of_url, post.blotted(&why));
            }
        }
        Ok(_) => {}
        Err(why) => {
            let read = ca_file.unwrap_or(Path::new(AUTHORITIES));
            note("ca_file", Some(read), why);
        }
    }
    found
}

/// An error with its causes; the URL is not among them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

fn url_of(path: &Path) -> Result<SecretString, String> {
    let url = secret_file::read_as("url_file", path, LONGEST_FILE)?;
    let text = url.expose_secret();
    let parsed = text.parse::<http::Uri>().ok();
    let fit = parsed.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.authority().is_some()
    });
    if fit {
        Ok(url)
    } else {
        Err(format!(
            "url_file {}: expected one line with a URL that begins with https:// or http://",
            path.display()
        ))
    }
}

/// The headers in a file's text. An error names the line and not what stands in it.
fn headers_of(path: &Path, text: &SecretString) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    for (number, line) in text.expose_secret().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let header = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        headers.push(header.ok_or_else(|| {
            format!(
                "headers_file {}: line {}: expected NAME: VALUE",
                path.display(),
                number + 1
            )
        })?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_blotted_out_of_what_comes_back() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("changed");
            path
        };
        let url = write("url", "https://hooks.example/services/T0/topsecret\n");
        let headers = "# who we are\nAuthorization: Bearer hush-hush\nX-A: b\n";
        let mut post = Post::to_url_in(&url).expect("it is ready");
        post.set_from(&write("headers", headers)).expect("headers");
        assert_eq!(post.headers["x-a"], "b");
        assert!(post.headers["authorization"].is_sensitive());
        assert!(!format!("{post:?}").contains("hush"), "{post:?}");
        let said = post.blotted("no services/T0/topsecret with hush-hush here");
        assert_eq!(said, "no <redacted> with <redacted> here");
        let wrong = write("headers", "Authorization Bearer hush-hush\n");
        let error = post.set_from(&wrong).expect_err("an error");
        assert!(
            error.contains("line 1") && !error.contains("hush"),
            "{error}"
        );
    }

    /// What keeps a request to `url` with these authorities from being made, by its key.
    fn hindered(url: &str, ca_file: &Path) -> Vec<(&'static str, String)> {
        let found = obstacles(Post::to(url), None, None, Some(ca_file));
        let found = found.into_iter();
        found.map(|one| (one.key, one.why)).collect()
    }

    #[test]
    fn authorities_are_read_where_the_address_needs_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let junk = folder.path().join("ca.pem");
        std::fs::write(&junk, "junk").expect("written");
        let found = hindered("https://example.org/x", &junk);
        assert!(
            matches!(&found[..], [("ca_file", why)] if why.contains("holds no certificate")),
            "{found:?}"
        );
        assert!(hindered("http://example.org/x", &junk).is_empty());
        let found = hindered("http://example.org:123456/x", &junk);
        assert!(
            matches!(&found[..], [("url", why)] if why.contains("cannot be made")),
            "{found:?}"
        );
    }
}
