//! The newest cloud image of Debian, with its checksum, as the mirror has it now.

use std::time::Duration;

use anyhow::{Context as _, bail};

/// Where Debian publishes cloud images.
pub(super) const MIRROR: &str = "https://cloud.debian.org/images/cloud";
/// The release that templates are built of.
const RELEASE: &str = "trixie";
const STEM: &str = "debian-13-genericcloud-amd64-";
/// The longest that a list may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The largest list that is read, in bytes.
const MAX_LIST: usize = 4 << 20;

/// An image that does not change, and how to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) url: String,
    pub(super) checksum: String,
}

/// Looks it up: the directory of the newest date, and the sum in it.
pub(super) async fn newest(mirror: &str) -> anyhow::Result<Image> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let release = format!("{}/{RELEASE}/", mirror.trim_end_matches('/'));
    let index = text(&client, &release).await?;
    let dated = newest_directory(&index)
        .with_context(|| format!("{release} lists no directory of a date"))?;
    let directory = format!("{release}{dated}/");
    let sums = text(&client, &format!("{directory}SHA512SUMS")).await?;
    let file = format!("{STEM}{dated}.qcow2");
    let sum = sum_of(&sums, &file)
        .with_context(|| format!("{directory}SHA512SUMS has no sum of {file}"))?;
    Ok(Image {
        url: format!("{directory}{file}"),
        checksum: format!("sha512:{sum}"),
    })
}

async fn text(client: &reqwest::Client, url: &str) -> anyhow::Result<String> {
    let answer = client.get(url).send().await?.error_for_status()?;
    let mut answer = answer;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_LIST {
            bail!("{url} is no list: it is larger than {MAX_LIST} bytes");
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last of the links to directories like `20251117-2299/`.
fn newest_directory(index: &str) -> Option<&str> {
    let links = index.split("href=\"").skip(1);
    let names = links.filter_map(|link| link.split('"').next()?.strip_suffix('/'));
    names.filter(|name| is_dated(name)).max()
}

fn is_dated(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-')
        .is_some_and(|(date, number)| date.len() == 8 && digits(date) && digits(number))
}

fn sum_of<'a>(sums: &'a str, file: &str) -> Option<&'a str> {
    let lines = sums.lines().filter_map(|line| line.split_once(' '));
    let mut found = lines.filter(|(_, name)| name.trim_start_matches([' ', '*']) == file);
    let (sum, _) = found.next()?;
    let hex = sum.len() == 128 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_directory_and_its_sum_are_found() {
        let index = "<a href=\"../\">up</a> <a href=\"20250703-2162/\">x</a>\n\
            <a href=\"20251117-2299/\">y</a> <a href=\"latest/\">z</a> <a href=\"daily/\">d</a>";
        assert_eq!(newest_directory(index), Some("20251117-2299"));
        assert_eq!(newest_directory("<a href=\"latest/\">z</a>"), None);
        let sum = "0f".repeat(64);
        let sums = format!("{}  other.qcow2\n{sum}  wanted.qcow2\n", "1".repeat(128));
        assert_eq!(sum_of(&sums, "wanted.qcow2"), Some(&*sum));
        assert_eq!(sum_of(&sums, "wanted.raw"), None);
        assert_eq!(sum_of("<html> wanted.qcow2", "wanted.qcow2"), None);
    }
}
