//! A segment: one file of records, one deflate stream cut into frames.
//!
//! It begins with [`HEAD`]. A frame is the length of its bytes (four bytes, little endian), their CRC-32 together with the
//! byte that follows (four bytes), that byte (1: a record ends here), and the compressed bytes. A record is one or more
//! frames, so that a long one is never in memory as a whole; at its end the stream is flushed to a whole byte. What is
//! compressed leans on what came before in its segment and on nothing else.

use std::io::{self, Read, Write};

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress};

/// What a segment begins with: whose it is, and the version of its frames.
pub(super) const HEAD: &[u8] = b"pve-autoscaler record 1\n";
/// Compressed bytes in a frame at most.
const FRAME: usize = 64 << 10;
/// Length, sum, and whether a record ends.
const FRAME_HEAD: usize = 9;
/// A record that unfolds to more than this is none of ours.
const RECORD: usize = 1 << 30;
/// Quick, and well enough for text that repeats itself.
const LEVEL: u32 = 3;

/// The CRC of a frame.
fn sum(end: u8, bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(&[end]);
    sum.update(bytes);
    sum.sum()
}

/// Writes records into a segment.
pub(super) struct SegmentWriter<F> {
    file: F,
    deflate: Compress,
    frame: Vec<u8>,
    written: u64,
}

impl<F> std::fmt::Debug for SegmentWriter<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SegmentWriter({} bytes)", self.written)
    }
}

impl<F: Write> SegmentWriter<F> {
    /// Begins a segment in an empty file.
    pub(super) fn begin(mut file: F) -> io::Result<SegmentWriter<F>> {
        file.write_all(HEAD)?;
        Ok(SegmentWriter {
            file,
            deflate: Compress::new(Compression::new(LEVEL), false),
            frame: Vec::with_capacity(FRAME),
            written: HEAD.len() as u64,
        })
    }

    /// Bytes of the file so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The file.
    pub(super) fn file(&self) -> &F {
        &self.file
    }

    /// Adds one record. After an error the segment is of no more use to write in.
    pub(super) fn add(&mut self, record: &impl serde::Serialize) -> io::Result<()> {
        let mut text = io::BufWriter::with_capacity(8 << 10, Text(self));
        serde_json::to_writer(&mut text, record)?;
        text.flush()?;
        drop(text);
        self.press(&[], FlushCompress::Sync)?;
        self.emit(1)
    }

    fn press(&mut self, mut bytes: &[u8], flush: FlushCompress) -> io::Result<()> {
        loop {
            let before = self.deflate.total_in();
            self.deflate
                .compress_vec(bytes, &mut self.frame, flush)
                .map_err(io::Error::other)?;
            let taken = self.deflate.total_in() - before;
            bytes = &bytes[usize::try_from(taken).unwrap_or(bytes.len())..];
            if self.frame.len() == self.frame.capacity() {
                self.emit(0)?;
            } else if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    fn emit(&mut self, end: u8) -> io::Result<()> {
        let length = u32::try_from(self.frame.len()).unwrap_or(u32::MAX);
        let mut head = [0; FRAME_HEAD];
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..8].copy_from_slice(&sum(end, &self.frame).to_le_bytes());
        head[8] = end;
        self.file.write_all(&head)?;
        self.file.write_all(&self.frame)?;
        self.written += (FRAME_HEAD + self.frame.len()) as u64;
        self.frame.clear();
        Ok(())
    }
}

/// The text of a record on its way into the stream.
struct Text<'a, F>(&'a mut SegmentWriter<F>);

impl<F: Write> Write for Text<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.press(bytes, FlushCompress::None)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a segment ends for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// After a whole record.
    Clean,
    /// In the middle of a record: it was being written when its writer ended, or is being written now.
    Torn,
    /// A frame is not what was written; what follows cannot be read.
    Damaged(String),
}

/// The frames of a segment, checked.
struct Frames<R> {
    input: R,
    /// Bytes read, whole frames alone.
    position: u64,
}

impl<R: Read> Frames<R> {
    /// Opens a segment.
    fn open(mut input: R) -> Result<Frames<R>, SegmentEnd> {
        let mut head = [0; HEAD.len()];
        match fill(&mut input, &mut head) {
            Ok(read) if read < HEAD.len() && HEAD.starts_with(&head[..read]) => {
                Err(SegmentEnd::Torn)
            }
            Ok(_) if head == *HEAD => Ok(Frames {
                input,
                position: HEAD.len() as u64,
            }),
            Ok(_) => Err(SegmentEnd::Damaged(
                "it does not begin as a record of this program does".to_owned(),
            )),
            Err(error) => Err(SegmentEnd::Damaged(error.to_string())),
        }
    }

    /// The next frame, and whether a record ends with it.
    fn next(&mut self) -> Result<(Vec<u8>, bool), SegmentEnd> {
        let damaged = |error: io::Error| SegmentEnd::Damaged(error.to_string());
        let mut head = [0; FRAME_HEAD];
        match fill(&mut self.input, &mut head).map_err(damaged)? {
            0 => return Err(SegmentEnd::Clean),
            FRAME_HEAD => {}
            _ => return Err(SegmentEnd::Torn),
        }
        let (length, end) = (number(&head[..4]) as usize, head[8]);
        if length > FRAME || end > 1 {
            let at = self.position;
            return Err(SegmentEnd::Damaged(format!(
                "there is no frame at byte {at}"
            )));
        }
        let mut bytes = vec![0; length];
        if fill(&mut self.input, &mut bytes).map_err(damaged)? < length {
            return Err(SegmentEnd::Torn);
        }
        if number(&head[4..8]) != sum(end, &bytes) {
            let at = self.position;
            return Err(SegmentEnd::Damaged(format!(
                "the sum of the frame at byte {at} is wrong"
            )));
        }
        self.position += (FRAME_HEAD + length) as u64;
        Ok((bytes, end == 1))
    }
}

/// A number, its least byte first.
fn number(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

/// Reads until `bytes` is full or the input ends.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match input.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Reads the records of a segment.
pub(super) struct SegmentReader<R> {
    frames: Frames<R>,
    inflate: Decompress,
}

impl<R> std::fmt::Debug for SegmentReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SegmentReader(at {})", self.frames.position)
    }
}

impl<R: Read> SegmentReader<R> {
    /// Opens a segment.
    pub(super) fn open(input: R) -> Result<SegmentReader<R>, SegmentEnd> {
        Ok(SegmentReader {
            frames: Frames::open(input)?,
            inflate: Decompress::new(false),
        })
    }

    /// The text of the next record.
    pub(super) fn next(&mut self) -> Result<Vec<u8>, SegmentEnd> {
        let mut text = Vec::new();
        loop {
            let (bytes, end) = match self.frames.next() {
                Err(SegmentEnd::Clean) if !text.is_empty() => return Err(SegmentEnd::Torn),
                other => other?,
            };
            self.unfold(&bytes, &mut text)?;
            if end {
                return Ok(text);
            }
        }
    }

    fn unfold(&mut self, mut bytes: &[u8], text: &mut Vec<u8>) -> Result<(), SegmentEnd> {
        loop {
            if text.len() > RECORD {
                return Err(SegmentEnd::Damaged("a record is too long".to_owned()));
            }
            text.reserve(bytes.len().saturating_mul(4).clamp(4 << 10, 1 << 20));
            let (before, length) = (self.inflate.total_in(), text.len());
            self.inflate
                .decompress_vec(bytes, text, FlushDecompress::None)
                .map_err(|error| SegmentEnd::Damaged(error.to_string()))?;
            let taken = self.inflate.total_in() - before;
            bytes = &bytes[usize::try_from(taken).unwrap_or(bytes.len())..];
            // A full buffer may hide that there is more to come.
            if bytes.is_empty() && text.len() < text.capacity() {
                return Ok(());
            }
            if taken == 0 && text.len() == length {
                let why = "what is compressed goes on after its end";
                return Err(SegmentEnd::Damaged(why.to_owned()));
            }
        }
    }
}

/// How the first record of a segment begins, `most` bytes at most; nothing is unfolded beyond that.
pub(super) fn read_head(input: impl Read, most: usize) -> Option<String> {
    let (bytes, _) = Frames::open(input).ok()?.next().ok()?;
    let mut text = Vec::with_capacity(most);
    let mut inflate = Decompress::new(false);
    inflate
        .decompress_vec(&bytes, &mut text, FlushDecompress::None)
        .ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Up to which byte a segment consists of whole records, and how it ends after them. Unfolds nothing.
pub(super) fn whole(input: impl Read) -> (u64, SegmentEnd) {
    let mut frames = match Frames::open(input) {
        Ok(frames) => frames,
        Err(end) => return (0, end),
    };
    let mut whole = frames.position;
    loop {
        match frames.next() {
            Ok((_, true)) => whole = frames.position,
            Ok((_, false)) => {}
            Err(SegmentEnd::Clean) if whole < frames.position => return (whole, SegmentEnd::Torn),
            Err(end) => return (whole, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(records: &[String]) -> Vec<u8> {
        let mut writer = SegmentWriter::begin(Vec::new()).expect("begins");
        for record in records {
            writer.add(record).expect("added");
        }
        assert_eq!(writer.written(), writer.file().len() as u64);
        writer.file
    }

    fn read(bytes: &[u8]) -> (Vec<String>, SegmentEnd) {
        let mut reader = match SegmentReader::open(bytes) {
            Ok(reader) => reader,
            Err(end) => return (Vec::new(), end),
        };
        let mut records = Vec::new();
        loop {
            match reader.next() {
                Ok(text) => records.push(serde_json::from_slice(&text).expect("a string")),
                Err(end) => return (records, end),
            }
        }
    }

    /// Text that does not compress, longer than a frame.
    fn long(seed: u64) -> String {
        let mut state = seed | 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b' ' + u8::try_from(state >> 57).unwrap_or(0) / 2)
        };
        (0..200_000).map(|_| next()).collect()
    }

    #[test]
    fn a_record_of_many_frames_is_read_as_it_was_written() {
        let records = vec![long(1), String::new(), "a".repeat(3_000_000), long(2)];
        let bytes = segment(&records);
        assert_eq!(read(&bytes), (records, SegmentEnd::Clean));
        assert_eq!(whole(&*bytes), (bytes.len() as u64, SegmentEnd::Clean));
    }

    #[test]
    fn what_repeats_itself_takes_next_to_nothing() {
        let text = "{\"name\":\"web-7d4b9c6f5-x2x9k\",\"node\":\"general-abcde\"}".to_owned();
        let one = segment(std::slice::from_ref(&text)).len();
        let hundred = segment(&vec![text; 101]).len();
        assert!(hundred - one < 100 * 40, "{one}, {hundred}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Wherever the file ends, all whole records before are read, and nothing else.
        #[test]
        fn a_cut_loses_the_last_record_alone(
            records in proptest::collection::vec(".{0,300}", 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let ends: Vec<usize> =
                (0..=records.len()).map(|many| segment(&records[..many]).len()).collect();
            let bytes = segment(&records);
            let cut = cut.index(bytes.len() + 1);
            let there = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
            let (found, end) = read(&bytes[..cut]);
            prop_assert_eq!(&found, &records[..there]);
            prop_assert_eq!(end == SegmentEnd::Clean, ends.contains(&cut));
            prop_assert!(!matches!(end, SegmentEnd::Damaged(_)));
            let (upto, _) = whole(&bytes[..cut]);
            let last = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
            prop_assert_eq!(upto, last as u64);
        }

        /// A byte that turned loses no record before it, and is never taken for a record.
        #[test]
        fn a_wrong_byte_is_seen(
            records in proptest::collection::vec("[a-z]{0,300}", 1..8),
            at in any::<prop::sample::Index>(),
            turn in 1..=255u8,
        ) {
            let mut bytes = segment(&records);
            let at = at.index(bytes.len());
            bytes[at] ^= turn;
            let (found, end) = read(&bytes);
            prop_assert!(end != SegmentEnd::Clean);
            prop_assert_eq!(&found[..], &records[..found.len()]);
        }
    }
}
