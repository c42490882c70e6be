//! Strong output: the server sees the data as of the request, whatever the client does afterwards.

use std::io::{Read, Seek, SeekFrom, Write};

use genie_io::Out;
use genie_passing::Scheme;

use super::schemes::{filled, replied, slices, strong_native, submit_out};
use crate::Scene;
use crate::bytes::{pattern, same};
use crate::holder::HOLD;
use crate::setup::{Guard, fresh_seed};

pub(crate) fn stores_after_the_request_are_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} of {slice:?}");
            let (mut buffer, before) = filled(t);
            let pending = submit_out(t, scheme, &buffer[slice.clone()]);
            let after = pattern(fresh_seed(), before.len());
            buffer.copy_from_slice(&after);
            same(&t.holder().read(pending.id()), &before[slice.clone()], &what);
            same(&buffer, &after, format_args!("{what}: the client's buffer"));
            t.holder().reply(pending.id());
            let reply = replied(pending);
            assert_eq!(reply.buffers[0].elements[0].receipt.asked, scheme);
            same(&buffer, &after, format_args!("{what}: the client's buffer after the reply"));
            buffer[slice.start] ^= 1;
        }
    }
}

pub(crate) fn kernel_reads_after_the_request_are_not_seen(t: &Scene) {
    for scheme in strong_native() {
        for slice in slices(t) {
            let what = format!("{scheme} of {slice:?}");
            let (mut buffer, before) = filled(t);
            let after = pattern(fresh_seed(), before.len());
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&after).expect("room in the file");
            file.seek(SeekFrom::Start(0)).expect("a seekable file");
            let pending = submit_out(t, scheme, &buffer[slice.clone()]);
            let read = file.read_exact(&mut buffer);
            if t.setup().guard == Guard::Stores && scheme == Scheme::EmulatedCopy {
                // The program promised not to do this: the kernel refuses, and the output is safe all the same.
                assert_eq!(read.map_err(|error| error.raw_os_error()), Err(Some(EFAULT)), "{what}");
            } else {
                read.unwrap_or_else(|error| panic!("{what}: reading into the buffer: {error}"));
                same(&buffer, &after, format_args!("{what}: the client's buffer"));
            }
            same(&t.holder().read(pending.id()), &before[slice.clone()], &what);
            t.holder().reply(pending.id());
            replied(pending);
        }
    }
    from_a_pipe(t);
}

/// "Bad address".
const EFAULT: i32 = 14;

/// A pipe's reader stores into the buffer piece by piece. Where only the program's stores are caught, the kernel refuses to, as has
/// been seen with a file.
fn from_a_pipe(t: &Scene) {
    if t.setup().guard == Guard::Stores {
        return;
    }
    let (mut buffer, before) = filled(t);
    let after = pattern(fresh_seed(), before.len());
    let pending = submit_out(t, Scheme::EmulatedCopy, &buffer[1..]);
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&after).expect("a reader"));
        reader.read_exact(&mut buffer).expect("bytes from the pipe");
    });
    same(&t.holder().read(pending.id()), &before[1..], "the output");
    same(&buffer, &after, "the client's buffer");
    t.holder().reply(pending.id());
    replied(pending);
}

pub(crate) fn a_buffer_dropped_meanwhile_is_still_read(t: &Scene) {
    for scheme in strong_native() {
        let (buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer[3..]);
        drop(buffer);
        // A program that gets memory now must not get the granules that the server reads.
        for _ in 0..2 {
            let (other, content) = filled(t);
            same(&other, &content, "another buffer");
            same(&t.holder().read(pending.id()), &before[3..], scheme);
        }
        t.holder().reply(pending.id());
        replied(pending);
    }
}

pub(crate) fn outputs_of_one_granule_differ(t: &Scene) {
    for scheme in strong_native() {
        let granule = t.setup().granule();
        let mut buffer = t.interface().allocate(granule).expect("a buffer");
        let mut outputs = Vec::new();
        for round in 0..4u8 {
            buffer[usize::from(round) * 5..][..64].fill(round + 1);
            outputs.push((submit_out(t, scheme, &buffer[..granule - usize::from(round)]), buffer.to_vec()));
        }
        buffer.fill(0xff);
        // Completed in another order than they were made.
        for index in [2, 0, 1, 0] {
            let (pending, expected) = outputs.remove(index);
            same(&t.holder().read(pending.id()), &expected[..t.holder().read(pending.id()).len()], scheme);
            t.holder().reply(pending.id());
            replied(pending);
            buffer[1] = buffer[1].wrapping_add(1);
            for (others, expected) in &outputs {
                let seen = t.holder().read(others.id());
                same(&seen, &expected[..seen.len()], format_args!("{scheme}, another output"));
            }
        }
    }
}

pub(crate) fn overlapping_outputs_are_independent(t: &Scene) {
    for scheme in strong_native() {
        for other in strong_native() {
            let granule = t.setup().granule();
            let (mut buffer, first) = filled(t);
            let one = submit_out(t, scheme, &buffer[..granule + 100]);
            buffer[granule - 50..granule + 50].fill(1);
            let second = buffer.to_vec();
            let two = submit_out(t, other, &buffer[granule - 100..2 * granule]);
            buffer.fill(2);
            let what = format!("{scheme} overlapped by {other}");
            same(&t.holder().read(one.id()), &first[..granule + 100], &what);
            same(&t.holder().read(two.id()), &second[granule - 100..2 * granule], &what);
            t.holder().reply(one.id());
            replied(one);
            buffer.fill(3);
            same(&t.holder().read(two.id()), &second[granule - 100..2 * granule], &what);
            t.holder().reply(two.id());
            replied(two);
        }
    }
}

pub(crate) fn an_anticipated_reply_frees_the_buffer(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let pending = submit_out(t, scheme, &buffer);
        let id = pending.id();
        t.holder().anticipate(id);
        assert!(replied(pending).anticipated);
        buffer.fill(9);
        drop(buffer);
        same(&t.holder().read(id), &before, scheme);
        t.holder().drop_request(id);
    }
}

pub(crate) fn a_failed_output_changes_nothing(t: &Scene) {
    for scheme in strong_native() {
        let (mut buffer, before) = filled(t);
        let request = t.interface().request(t.holder().handle(), HOLD);
        let pending = request.out(Out::borrowed(scheme, &buffer)).submit().expect("a request");
        t.holder().fail(pending.id(), "no");
        pending.sync().expect_err("the server failed");
        same(&buffer, &before, scheme);
        buffer.fill(4);
        assert!(buffer.iter().all(|byte| *byte == 4));
    }
}
