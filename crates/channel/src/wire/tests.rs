//! What the tests of records and of control messages have in common.

use super::*;

#[test]
fn forty_eight_bits_hold_what_is_below_2_to_the_48() {
    for value in [0, 1, 0x1234_5678_9abc, MAX_OFFSET] {
        assert_eq!(U48::new(value).map(U48::get), Some(value));
    }
    assert_eq!(U48::new(MAX_OFFSET + 1), None);
    assert_eq!(U48::new(u64::MAX), None);
}

#[test]
fn text_is_cut_between_characters() {
    assert_eq!(cut("a\u{20ac}b", 3), "a");
    assert_eq!(cut("a\u{20ac}b", 4), "a\u{20ac}");
    assert_eq!(cut("ab", 100), "ab");
}

/// The rows (offset, size, field) of the table that docs/channel.md has under this title.
fn documented(title: &str) -> Vec<(usize, usize, String)> {
    let page = include_str!("../../../../docs/channel.md");
    let heading = format!("### {title}\n");
    let after =
        page.split_once(&heading).unwrap_or_else(|| panic!("no section {title:?} in docs/channel.md")).1;
    let section = after.split("\n#").next().unwrap_or(after);
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    section
        .lines()
        .map(cells)
        .filter_map(|cells| {
            Some((cells.get(1)?.parse().ok()?, cells.get(2)?.parse().ok()?, cells.get(3)?.clone()))
        })
        .collect()
}

/// Compares a structure with the table under this title: its fields, and their places and sizes. Nothing may be between the
/// fields or after the last one. A field of several parts may have a row for each part, named `field.part`.
pub(super) fn compare(title: &str, size: usize, fields: &[(&str, usize)]) {
    let rows = documented(title);
    let mut end = 0;
    for (offset, len, name) in &rows {
        assert_eq!(*offset, end, "{title}: {name} does not follow what is before it");
        end += len;
    }
    assert_eq!(end, size, "{title}: the rows come to another length than the structure");
    let mut starts: Vec<(&str, usize)> = Vec::new();
    for (offset, _, name) in &rows {
        let field = name.split('.').next().unwrap_or(name);
        if starts.last().is_none_or(|(last, _)| *last != field) {
            starts.push((field, *offset));
        }
    }
    assert_eq!(starts, fields, "{title}: (field, offset) documented, and in the code");
}

/// Compares structures with their tables.
macro_rules! assert_documented {
    ($($title:literal: $type:ident { $($field:ident),* })*) => { $(
        crate::wire::tests::compare(
            $title,
            size_of::<$type>(),
            &[$((stringify!($field), std::mem::offset_of!($type, $field))),*],
        );
    )* };
}
pub(super) use assert_documented;
