//! The file of those who may log in: lines `NAME:HASH`, the hash as bcrypt writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::kept::ReloadedFiles;
use crate::controller::secret_file;

/// The longest file, in bytes, and the most people in it.
const LONGEST: u64 = 64 * 1024;
const MOST: usize = 100;
/// The longest name, in bytes.
const LONGEST_NAME: usize = 64;
/// bcrypt takes no more bytes of a password than these.
const LONGEST_PASSWORD: usize = 71;
/// The shortest password that is written, in characters.
pub const SHORTEST: usize = 12;
/// Each step of the cost doubles the time of a check; 12 takes a quarter of a second, 14 a second.
const COST: u32 = 12;
const MOST_COST: u32 = 14;
/// What is checked for a name that nobody has, so that it takes as long: the hash of a password that is not kept.
const NOBODY: &str = "$2b$12$yqdxSBTqlFMHWkDx38UvT.GdqCUKPjrCIXjOOVyYY4Ls8rSkZDTdG";

/// Who may log in.
#[derive(Default)]
pub(super) struct Users(BTreeMap<Arc<str>, String>);

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reads the file, and reads it again when it changes.
pub(super) fn open(path: &Path) -> Result<ReloadedFiles<Users>, String> {
    let file = path.to_owned();
    ReloadedFiles::open(vec![file.clone()], move || {
        let text = secret_file::read_as("users_file", &file, LONGEST);
        let at = |message: String| format!("users_file {}: {message} ([web])", file.display());
        match text {
            Ok(text) => Users::parse(text.expose_secret()).map_err(at),
            Err(message) if !file.exists() => Err(format!(
                "{message}; `pve-autoscaler web-password NAME` makes it ([web])"
            )),
            Err(message) => Err(format!("{message} ([web])")),
        }
    })
}

impl Users {
    /// The people of a file's text.
    ///
    /// # Errors
    /// The first line that is wrong, by its number; never what stands in it.
    pub(super) fn parse(text: &str) -> Result<Users, String> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| format!("line {number} is not NAME:HASH"))?;
            check_name(name).map_err(|why| format!("line {number}: {why}"))?;
            check_hash(hash).map_err(|why| format!("line {number}: {why}"))?;
            if users.insert(name.into(), hash.to_owned()).is_some() {
                return Err(format!("line {number}: {name} is there twice"));
            }
        }
        match users.len() {
            0 => Err("names nobody; `pve-autoscaler web-password NAME` adds a line".to_owned()),
            1..=MOST => Ok(Users(users)),
            many => Err(format!("names {many} people; {MOST} at most")),
        }
    }

    /// The hash of a person's password.
    pub(super) fn hash(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether it is this person's password. It takes as long for a name that nobody has.
    pub(super) fn verify(&self, name: &str, password: &SecretString) -> bool {
        let hash = self.hash(name);
        let password = password.expose_secret();
        let right = bcrypt::non_truncating_verify(password, hash.unwrap_or(NOBODY));
        hash.is_some() && right.unwrap_or(false)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fine = |letter: char| !letter.is_control() && !letter.is_whitespace() && letter != ':';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fine) {
        return Err(format!(
            "a name has 1 to {LONGEST_NAME} bytes, without white space and colons"
        ));
    }
    Ok(())
}

/// A hash that can be checked, and within a second.
fn check_hash(hash: &str) -> Result<(), String> {
    let kind = ["$2a$", "$2b$", "$2y$"]
        .into_iter()
        .any(|kind| hash.starts_with(kind));
    let parts = hash.parse::<bcrypt::HashParts>().ok().filter(|_| kind);
    let Some(parts) = parts else {
        return Err(
            "the hash is none of bcrypt ($2b$…), as `pve-autoscaler web-password NAME` or `htpasswd -B` writes it"
                .to_owned(),
        );
    };
    if !(4..=MOST_COST).contains(&parts.get_cost()) {
        return Err(format!(
            "the hash's cost is {}; expected 4 to {MOST_COST}",
            parts.get_cost()
        ));
    }
    Ok(())
}

/// The text of a users file in which this person has this password, or with `None` is no more. All other lines stay.
///
/// # Errors
/// The name, the password or a line cannot be.
pub fn written(text: &str, name: &str, password: Option<&SecretString>) -> Result<String, String> {
    check_name(name)?;
    if text
        .lines()
        .any(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
    {
        Users::parse(text)?;
    }
    let line = password
        .map(|password| hashed(name, password))
        .transpose()?;
    let own = |line: &str| {
        let (before, _) = line.trim().split_once(':').unwrap_or_default();
        before == name
    };
    let known = text.lines().any(own);
    if line.is_none() && !known {
        return Err(format!("it names no {name}"));
    }
    let mut result = String::new();
    for old in text.lines().filter(|line| !own(line)) {
        let _ = writeln!(result, "{old}");
    }
    if let Some(line) = line {
        let _ = writeln!(result, "{line}");
    }
    Ok(result)
}

fn hashed(name: &str, password: &SecretString) -> Result<String, String> {
    let password = password.expose_secret();
    if password.chars().count() < SHORTEST {
        return Err(format!(
            "the password is shorter than {SHORTEST} characters"
        ));
    }
    if password.len() > LONGEST_PASSWORD {
        return Err(format!(
            "the password is longer than {LONGEST_PASSWORD} bytes, which is all that bcrypt takes"
        ));
    }
    let hash = bcrypt::non_truncating_hash(password, COST)
        .map_err(|error| format!("the password cannot be hashed: {error}"))?;
    Ok(format!("{name}:{hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[test]
    fn a_person_is_added_changed_and_taken_away_and_others_stay() {
        let old = "# people\nbob:$2y$05$abcdefghijklmnopqrstuuLtOmQ9Xn9yNwW8kGfmsYIRLCbpFQKiG\n";
        let first = written(old, "ann", Some(&secret("a long password"))).expect("written");
        assert!(first.starts_with(old), "{first}");
        let users = Users::parse(&first).expect("a file");
        assert!(users.verify("ann", &secret("a long password")));
        assert!(!users.verify("ann", &secret("another password")));
        assert!(!users.verify("eve", &secret("a long password")));
        let second = written(&first, "ann", Some(&secret("another password"))).expect("written");
        assert_eq!(second.matches("ann:").count(), 1);
        let users = Users::parse(&second).expect("a file");
        assert!(users.verify("ann", &secret("another password")));
        assert_eq!(written(&second, "ann", None).as_deref(), Ok(old));
        assert!(written(old, "ann", None).is_err());
        let full = "x".repeat(72);
        for (name, password, wanted) in [
            ("a b", "a long password", "white space"),
            ("a:b", "a long password", "colons"),
            ("", "a long password", "1 to 64 bytes"),
            ("ann", "too short", "shorter than 12"),
            ("ann", &*full, "longer than 71"),
        ] {
            let error = written(old, name, Some(&secret(password))).expect_err("refused");
            assert!(
                error.contains(wanted) && !error.contains(password),
                "{error}"
            );
        }
        // A file with a line that cannot be read is not made worse.
        assert!(written("nonsense", "ann", Some(&secret("a long password"))).is_err());
    }

    #[test]
    fn only_hashes_that_can_be_checked_in_time_are_taken() {
        let line = |hash: &str| Users::parse(&format!("ann:{hash}")).map(drop);
        for bad in [
            "",
            "plain",
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "$apr1$x$y",
            "$2b$12$short",
        ] {
            let error = line(bad).expect_err("refused");
            assert!(
                error.contains("line 1") && (bad.is_empty() || !error.contains(bad)),
                "{error}"
            );
        }
        let costly = NOBODY.replace("$12$", "$20$");
        assert!(line(&costly).expect_err("refused").contains("cost is 20"));
        assert_eq!(line(NOBODY), Ok(()));
        // A check for nobody takes as long as one for somebody: it is of a real hash, at the cost at which we write.
        let parts: bcrypt::HashParts = NOBODY.parse().expect("a hash");
        assert_eq!(parts.get_cost(), COST);
        assert!(bcrypt::non_truncating_verify("x", NOBODY).is_ok());
        let twice = format!("ann:{NOBODY}\nann:{NOBODY}");
        assert!(Users::parse(&twice).is_err_and(|error| error.contains("twice")));
    }
}
