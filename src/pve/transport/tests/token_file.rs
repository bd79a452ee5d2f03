//! A token whose secret stands in a file that changes.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pve::transport::https::TokenOptions;
use crate::pve::transport::tls;
use crate::pve::transport::token_file::TokenFile;
use crate::pve::transport::{CallError, HttpMethod, Transport as _};

use super::{answer, request, serving};

/// PVE with one token, of these secrets, and a file.
struct Place {
    secrets: Arc<Mutex<Vec<&'static str>>>,
    folder: tempfile::TempDir,
    token: TokenFile,
}

impl Place {
    async fn new() -> Place {
        let secrets = Arc::new(Mutex::new(vec!["first"]));
        let known = secrets.clone();
        let server = serving(move |request| {
            let known = known.lock().expect("unpoisoned");
            let good = known.iter().any(|secret| {
                request.contains(&format!("PVEAPIToken=scaler@pve!one={secret}\r\n"))
            });
            if good {
                answer("200 OK", "", r#"{"data":1}"#)
            } else {
                answer("401 Authentication failed!", "", "")
            }
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), "first\n").expect("written");
        let options = TokenOptions {
            endpoints: vec![server.url.clone()],
            token_id: "scaler@pve!one".into(),
            secret: String::new().into(),
            ca_file: None,
            fingerprint: Some(tls::show(&tls::fingerprint(&server.certificate))),
        };
        let token = TokenFile::open(options, &folder.path().join("secret")).expect("an end");
        Place {
            secrets,
            folder,
            token,
        }
    }

    fn write(&self, secret: &str) {
        std::fs::write(self.file(), secret).expect("written");
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("secret")
    }

    fn takes(&self, secrets: &[&'static str]) {
        *self.secrets.lock().expect("unpoisoned") = secrets.to_vec();
    }

    async fn call(&self) -> Result<serde_json::Value, CallError> {
        self.token.call(request(HttpMethod::Post)).await
    }
}

/// So much time goes by.
async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_secret_that_was_replaced_is_taken_by_itself() {
    let place = Place::new().await;
    assert!(place.call().await.is_ok());
    // PVE's token was made anew, and the file not yet written.
    place.takes(&["second"]);
    let error = place.call().await.expect_err("refused");
    let said = error.to_string();
    for words in [
        "PVE does not take the token scaler@pve!one with the secret in ",
        "`pveum user token list scaler@pve`",
        "is read again by itself",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(error.message, "Authentication failed!");
    place.write("second\n");
    // Right behind a refusal the file is not read again: PVE notes each.
    assert!(place.call().await.is_err());
    later(6).await;
    assert!(place.call().await.is_ok(), "the call is made once more");
    assert_eq!(place.token.problem(), None);
}

#[tokio::test]
async fn a_secret_that_does_not_work_takes_the_place_of_none_that_does() {
    let place = Place::new().await;
    place.write("typo\n");
    assert!(place.call().await.is_ok(), "nobody has looked yet");
    later(11).await;
    assert!(place.call().await.is_ok());
    let problem = place.token.problem().expect("it is told");
    for words in [
        "PVE does not take the new secret of the token scaler@pve!one in ",
        "the one that was read before stays in use",
    ] {
        assert!(problem.contains(words), "{words:?} is not in {problem}");
    }
    assert!(!problem.contains("typo"), "{problem}");
    // Nothing to read is no secret either.
    std::fs::remove_file(place.file()).expect("removed");
    later(11).await;
    assert!(place.call().await.is_ok());
    let problem = place.token.problem().expect("it is told");
    assert!(
        problem.contains("cannot read token_secret_file"),
        "{problem}"
    );
    // A good one beside the old one, which works still.
    place.takes(&["first", "second"]);
    place.write("second\n");
    later(11).await;
    assert!(place.call().await.is_ok());
    assert_eq!(place.token.problem(), None);
    place.takes(&["second"]);
    assert!(place.call().await.is_ok(), "it is the one in use");
}

/// As an editor on another system writes it.
#[tokio::test]
async fn white_space_and_a_byte_order_mark_are_no_part_of_a_secret() {
    let place = Place::new().await;
    place.takes(&["second"]);
    place.write("\u{feff}second\r\n");
    later(11).await;
    assert!(place.call().await.is_ok());
    assert_eq!(place.token.problem(), None);
}

#[tokio::test]
async fn a_file_without_a_secret_opens_nothing() {
    let place = Place::new().await;
    let options = |_: &Path| TokenOptions {
        endpoints: vec!["https://127.0.0.1:1".into()],
        token_id: "a@pve!b1".into(),
        secret: String::new().into(),
        ca_file: None,
        fingerprint: Some("AA".repeat(32)),
    };
    let path = place.file();
    place.write(" \n");
    let said = TokenFile::open(options(&path), &path).expect_err("empty");
    assert!(said.to_string().contains("it is empty"), "{said}");
    for more in [
        "a@pve!b1=hunter2\n",
        "PVEAPIToken=a@pve!b1=hunter2",
        "value: hunter2\n",
        "hunter2\nof-before\n",
        "hunter2\0",
    ] {
        place.write(more);
        let said = TokenFile::open(options(&path), &path).expect_err("more than a secret");
        let said = said.to_string();
        assert!(said.contains("more in it than the secret"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let endless = Path::new("/dev/zero");
    let said = TokenFile::open(options(endless), endless).expect_err("endless");
    assert!(said.to_string().contains("it is larger than"), "{said}");
}
