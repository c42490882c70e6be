//! Ranges of bytes as people write them: `4K..1M`, `4K..`, `..1M`.

use std::ops::Range;
use std::str::FromStr;

use genie_lab::length;

/// Some of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes {
    start: u64,
    /// The first byte after the range; `None` where the range goes to the end of the file.
    end: Option<u64>,
}

impl Bytes {
    /// Whether the range goes to the end of the file.
    pub(super) fn goes_to_end(self) -> bool {
        self.end.is_none()
    }

    /// The bytes of a file of this size.
    pub(super) fn of(self, size: u64) -> Result<Range<u64>, String> {
        let end = self.end.unwrap_or(size);
        if self.start > size || end > size {
            return Err(format!("its size is {size} bytes, and {}..{end} are asked for", self.start));
        }
        Ok(self.start..end)
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((start, end)) = text.split_once("..") else {
            return Err(format!("\"{text}\" is not a range: write FIRST..END, such as 4K..1M, 4K.. or ..1M"));
        };
        let number =
            |text: &str| if text == "0" { Ok(0) } else { length::parse(text).map(|bytes| bytes as u64) };
        let start = if start.is_empty() { 0 } else { number(start)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        if end.is_some_and(|end| end < start) {
            return Err(format!("the range \"{text}\" ends before it starts"));
        }
        Ok(Self { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_either_end_left_out() {
        for (text, range) in [("0..4K", 0..4096), ("4K..", 4096..9999), ("..10", 0..10), ("..", 0..9999)] {
            assert_eq!(text.parse::<Bytes>().unwrap().of(9999), Ok(range), "{text}");
        }
        assert_eq!("5..5".parse::<Bytes>().unwrap().of(5), Ok(5..5));
    }

    #[test]
    fn nonsense_and_what_the_file_does_not_have_is_refused() {
        for text in ["", "5", "5..4", "a..b", "-1..4", "1...4"] {
            text.parse::<Bytes>().unwrap_err();
        }
        assert!("0..11".parse::<Bytes>().unwrap().of(10).unwrap_err().contains("is 10 bytes"));
        "11..".parse::<Bytes>().unwrap().of(10).unwrap_err();
    }
}
