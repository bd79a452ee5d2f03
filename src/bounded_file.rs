//! Files that a person names, read up to a bound: `/dev/zero`, or a disk's image, must not take the memory of a hypervisor.

use std::io::{Error, Read as _};
use std::path::Path;

/// A file of settings, answers or users.
pub(crate) const TEXT: u64 = 1 << 20;
/// The world that a simulator begins with.
#[cfg(feature = "simulator")]
pub(crate) const WORLD: u64 = 64 << 20;
/// A snapshot of the largest clusters there are.
pub(crate) const SNAPSHOT: u64 = 1 << 30;

/// The bytes of a file of at most so many.
pub(crate) fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is larger than {most} bytes; is it the right file?");
        return Err(Error::other(why));
    }
    Ok(bytes)
}

/// The text of such a file.
pub(crate) fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    let bytes = read(path, most)?;
    String::from_utf8(bytes).map_err(|_| Error::other("it is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "four").expect("written");
        assert_eq!(read(&path, 4).expect("read"), b"four");
        let error = read(&path, 3).expect_err("too large");
        assert!(error.to_string().contains("larger than 3 bytes"), "{error}");
        let endless = read(Path::new("/dev/zero"), TEXT).expect_err("endless");
        assert!(endless.to_string().contains("larger than"), "{endless}");
        std::fs::write(&path, [0xff]).expect("written");
        let error = read_text(&path, 4).expect_err("no text");
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }
}
