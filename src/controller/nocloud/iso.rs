//! A small ISO 9660 image with Joliet names, in memory. Pure.
//!
//! Source: ECMA-119 (4th edition), and the Joliet specification for the second directory, whose names are as they are written: a
//! Linux guest mounts that one. All numbers that ECMA-119 wants in both byte orders are written so; dates are all the same, so that
//! the same files make the same image.

/// A logical block.
const BLOCK: usize = 2048;
/// Blocks that are the system's.
const SYSTEM: usize = 16;
/// Where the descriptors, the path tables and the two directories are, in blocks.
const PATHS: usize = SYSTEM + 3;
const ROOT: usize = PATHS + 4;
const JOLIET_ROOT: usize = ROOT + 1;
/// Where the first file is.
const FILES: usize = JOLIET_ROOT + 1;
/// Bytes of a path table that names the root alone.
const PATH_TABLE: u32 = 10;
/// A directory is one block: so many files fit into it.
pub(super) const MOST_FILES: usize = 8;

/// A file: its name, in lower case and with dashes, and its content.
pub(super) type ImageFile<'a> = (&'a str, &'a [u8]);

/// An image with this label and these files, sorted by name. `None` when there are too many, or names are too long.
pub(super) fn image(label: &str, files: &[ImageFile<'_>]) -> Option<Vec<u8>> {
    let fits = files.len() <= MOST_FILES && files.iter().all(|(name, _)| name.len() <= 60);
    if !fits || label.len() > 16 || !files.is_sorted_by_key(|(name, _)| *name) {
        return None;
    }
    let mut places = Vec::new();
    let mut next = FILES;
    for (_, content) in files {
        places.push(next);
        next += content.len().div_ceil(BLOCK);
    }
    let mut image = vec![0; next * BLOCK];
    let all = u32::try_from(next).ok()?;
    put(&mut image, SYSTEM, &descriptor(1, label, all, ROOT)?);
    put(
        &mut image,
        SYSTEM + 1,
        &descriptor(2, label, all, JOLIET_ROOT)?,
    );
    put(&mut image, SYSTEM + 2, b"\xffCD001\x01");
    for (block, root, big) in [
        (PATHS, ROOT, false),
        (PATHS + 1, ROOT, true),
        (PATHS + 2, JOLIET_ROOT, false),
        (PATHS + 3, JOLIET_ROOT, true),
    ] {
        put(
            &mut image,
            block,
            &path_table(u32::try_from(root).ok()?, big),
        );
    }
    let plain = files.iter().map(|(name, _)| plain(name).into_bytes());
    put(&mut image, ROOT, &directory(ROOT, plain, &places, files)?);
    let wide = files.iter().map(|(name, _)| wide(name));
    put(
        &mut image,
        JOLIET_ROOT,
        &directory(JOLIET_ROOT, wide, &places, files)?,
    );
    for ((_, content), place) in files.iter().zip(&places) {
        put(&mut image, *place, content);
    }
    Some(image)
}

fn put(image: &mut [u8], block: usize, content: &[u8]) {
    let from = block * BLOCK;
    image[from..from + content.len()].copy_from_slice(content);
}

fn both(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// UCS-2, the larger byte first.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// `user-data` as ECMA-119 has it: eight capitals, digits or `_`, and a version.
fn plain(name: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric();
    let short: String = name
        .to_uppercase()
        .chars()
        .filter(|c| fine(*c))
        .take(8)
        .collect();
    format!("{short}.;1")
}

/// A text in a field of so many bytes, the rest of which is blanks.
fn field(text: &str, bytes: usize, joliet: bool) -> Vec<u8> {
    let mut field = if joliet {
        wide(text)
    } else {
        text.as_bytes().to_vec()
    };
    while field.len() < bytes {
        field.extend_from_slice(if joliet { b"\0 " } else { b" " });
    }
    field.truncate(bytes);
    field
}

/// A volume descriptor: the primary one (1) or Joliet's (2).
fn descriptor(kind: u8, label: &str, blocks: u32, root: usize) -> Option<Vec<u8>> {
    let joliet = kind == 2;
    let mut bytes = vec![kind];
    bytes.extend_from_slice(b"CD001\x01\0");
    bytes.extend(field("", 32, joliet));
    bytes.extend(field(label, 32, joliet));
    bytes.extend([0; 8]);
    bytes.extend(both(blocks));
    let mut escapes = [0; 32];
    if joliet {
        // UCS-2, level 3.
        escapes[..3].copy_from_slice(b"%/E");
    }
    bytes.extend(escapes);
    // One volume in its set, and the size of its blocks.
    for number in [1, 1, 2048_u16] {
        bytes.extend(number.to_le_bytes());
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(both(PATH_TABLE));
    let paths = u32::try_from(PATHS).ok()? + if joliet { 2 } else { 0 };
    bytes.extend(paths.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((paths + 1).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(record(&[0], root, BLOCK, true)?);
    for length in [128, 128, 128, 128, 37, 37, 37] {
        bytes.extend(field("", length, joliet));
    }
    // Made, changed, over, in force: not said.
    for _ in 0..4 {
        bytes.extend(b"0000000000000000\0");
    }
    bytes.push(1);
    Some(bytes)
}

fn path_table(root: u32, big: bool) -> Vec<u8> {
    let mut bytes = vec![1, 0];
    if big {
        bytes.extend(root.to_be_bytes());
        bytes.extend(1_u16.to_be_bytes());
    } else {
        bytes.extend(root.to_le_bytes());
        bytes.extend(1_u16.to_le_bytes());
    }
    bytes.extend([0, 0]);
    bytes
}

fn directory(
    own: usize,
    names: impl Iterator<Item = Vec<u8>>,
    places: &[usize],
    files: &[ImageFile<'_>],
) -> Option<Vec<u8>> {
    let mut bytes = record(&[0], own, BLOCK, true)?;
    bytes.extend(record(&[1], own, BLOCK, true)?);
    for ((name, place), (_, content)) in names.zip(places).zip(files) {
        bytes.extend(record(&name, *place, content.len(), false)?);
    }
    (bytes.len() <= BLOCK).then_some(bytes)
}

/// A directory's record of a file, or of a directory.
fn record(name: &[u8], place: usize, length: usize, directory: bool) -> Option<Vec<u8>> {
    let size = (33 + name.len()).next_multiple_of(2);
    let mut bytes = vec![u8::try_from(size).ok()?, 0];
    bytes.extend(both(u32::try_from(place).ok()?));
    bytes.extend(both(u32::try_from(length).ok()?));
    // The first of January 2026.
    bytes.extend([126, 1, 1, 0, 0, 0, 0]);
    bytes.extend([if directory { 2 } else { 0 }, 0, 0, 1, 0, 0, 1]);
    bytes.push(u8::try_from(name.len()).ok()?);
    bytes.extend(name);
    bytes.resize(size, 0);
    Some(bytes)
}
