//! Lengths as people write them: `64`, `4K`, `2 MiB`.

/// The letters that multiply a length, and by how many powers of two.
const SUFFIXES: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Reads a positive number of bytes, with or without a suffix K, M, G or T (powers of 1024).
pub fn parse(text: &str) -> Result<usize, String> {
    let nonsense =
        || format!("\"{text}\" is not a length: write a number of bytes such as 64, 4K, 16M or 1G");
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper).trim_end();
    let shifted = SUFFIXES.iter().find_map(|(letter, shift)| Some((digits.strip_suffix(*letter)?, *shift)));
    let (number, shift) = shifted.unwrap_or((digits, 0));
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(nonsense());
    }
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes {
        Some(0) => Err("a length of 0 bytes passes nothing; the shortest is 1".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("the length {text} is more than any machine's memory")),
    }
}

/// Writes a length in the largest unit that divides it: `64 B`, `4 KiB`.
pub fn format(bytes: usize) -> String {
    let unit = SUFFIXES.iter().rev().find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((letter, shift)) => format!("{} {letter}iB", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

/// Writes an amount of memory that need not be exact: `23.5 GiB`.
pub fn approximate(bytes: u64) -> String {
    let unit = SUFFIXES.iter().rev().find(|(_, shift)| bytes >> shift != 0);
    match unit {
        Some((letter, shift)) => format!("{:.1} {letter}iB", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_with_and_without_suffixes() {
        for (text, bytes) in [
            ("64", 64),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("1M", 1 << 20),
            ("64B", 64),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["", "K", "-1", "4Q", "1.5M", "0x10", "4KK", "+4", "four"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("\"{text}\" is not a length")), "{error}");
        }
        assert!(parse("0").unwrap_err().contains("passes nothing"));
        assert!(parse("0M").unwrap_err().contains("passes nothing"));
        assert!(parse("99999999999T").unwrap_err().contains("memory"));
    }

    #[test]
    fn lengths_are_written_in_their_largest_whole_unit() {
        for text in ["64 B", "4 KiB", "256 KiB", "1 MiB", "16 MiB", "3 GiB", "1000 B"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
        assert_eq!(approximate(25_277_542_400), "23.5 GiB");
    }
}
