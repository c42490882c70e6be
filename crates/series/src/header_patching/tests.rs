//! The places of every byte, for all lengths of a small page.

use super::{HeaderPatching, Unpatchable};

const LEN: usize = 12;

/// A message, as it comes to a page between other bytes and to an unrelated buffer.
struct Came {
    around: [u8; LEN + 2],
    over: Vec<u8>,
    actual: usize,
}

impl Came {
    fn new(patching: HeaderPatching, message: &[u8]) -> Self {
        let (mut around, mut over) = ([0xee; LEN + 2], vec![0xee; patching.header]);
        let mut bytes = message.iter();
        for place in patching.places(&mut around[1..=LEN], &mut over) {
            place.iter_mut().zip(&mut bytes).for_each(|(to, byte)| *to = *byte);
        }
        assert_eq!(bytes.len(), 0, "there is room for every message");
        Self { around, over, actual: message.len() }
    }

    fn patch(
        &mut self,
        patching: HeaderPatching,
        header: usize,
        data: usize,
    ) -> Result<&mut [u8], Unpatchable> {
        patching.patch(&mut self.around[1..=LEN], &self.over, self.actual, header, data)
    }
}

fn for_all(each: impl Fn(HeaderPatching, &[u8], &[u8])) {
    let bytes: Vec<u8> = (1..=2 * LEN as u8).collect();
    for (offset, most) in (0..LEN).flat_map(|offset| (0..LEN - offset).map(move |most| (offset, most))) {
        let patching = HeaderPatching::new(offset, most, LEN).expect("there is room");
        for (header, data) in (0..=most).flat_map(|header| (0..=LEN).map(move |data| (header, data))) {
            each(patching, &bytes[..header], &bytes[header..header + data]);
        }
    }
}

#[test]
fn data_of_every_length_behind_every_header_arrives_where_the_page_begins() {
    for_all(|patching, header, data| {
        let message = patching.gather(header, data).expect("it is as agreed").concat();
        let what = format!("{patching:?}, {} and {} bytes", header.len(), data.len());
        // A network may have appended bytes, as far as there is room for them.
        for padding in [0, (LEN + patching.header - message.len()).min(3)] {
            let padded = [&message[..], &[0xdd; 3][..padding]].concat();
            let mut came = Came::new(patching, &padded);
            let shown = patching.header(&came.around[1..=LEN], came.actual);
            assert_eq!(shown[..header.len()], *header, "{what}");
            assert_eq!(came.patch(patching, header.len(), data.len()).as_deref(), Ok(data), "{what}");
            assert_eq!([came.around[0], came.around[LEN + 1]], [0xee; 2], "{what}: beside the page");
        }
    });
}

#[test]
fn lengths_that_a_message_cannot_have_are_refused_and_leave_it_as_it_came() {
    for_all(|patching, header, data| {
        let message = patching.gather(header, data).expect("it is as agreed").concat();
        let mut came = Came::new(patching, &message);
        let (before, actual) = (came.around, came.actual);
        let (long, most) = (header.len() + 1, patching.header);
        let expected = match long > most {
            true => Unpatchable::LongHeader { header: long, most },
            false => Unpatchable::Short { actual, header: long, data: data.len() },
        };
        assert_eq!(came.patch(patching, long, data.len()), Err(expected));
        let refused = Unpatchable::LongHeader { header: usize::MAX, most };
        assert_eq!(came.patch(patching, usize::MAX, usize::MAX), Err(refused));
        let refused = Unpatchable::LongData { data: usize::MAX, most: LEN };
        assert_eq!(came.patch(patching, header.len(), usize::MAX), Err(refused));
        if actual > 0 {
            came.actual -= 1;
            let refused = Unpatchable::Short { actual: actual - 1, header: header.len(), data: data.len() };
            assert_eq!(came.patch(patching, header.len(), data.len()), Err(refused));
            came.actual += 1;
        }
        assert_eq!(came.around, before, "it is as it came");
        assert_eq!(came.patch(patching, header.len(), data.len()).as_deref(), Ok(data));
    });
}

#[test]
fn what_is_longer_than_agreed_is_not_sent() {
    let patching = HeaderPatching::new(4, 2, LEN).expect("there is room");
    assert_eq!(patching.gather(&[0; 3], &[]), Err(Unpatchable::LongHeader { header: 3, most: 2 }));
    let refused = Unpatchable::LongData { data: LEN + 1, most: LEN };
    assert_eq!(patching.gather(&[], &[0; LEN + 1]), Err(refused));
}

#[test]
fn an_agreement_that_leaves_no_room_for_data_is_refused() {
    for (offset, header, data) in
        [(8, 4, 12), (0, 0, 0), (usize::MAX, 1, usize::MAX), (1, usize::MAX, usize::MAX)]
    {
        let refused = Err(Unpatchable::NoRoom { offset, header, data });
        assert_eq!(HeaderPatching::new(offset, header, data), refused);
    }
}
