//! The model: what a client's buffers and its servers' outputs hold, as plain vectors.

use std::ops::Range;

use super::action::{BESIDE, BESIDE_BYTES, BUFFERS, End};

/// The plain truth.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) buffers: [Option<Vec<u8>>; BUFFERS],
    /// What a server was given, for each output that it holds.
    pub(crate) outputs: Vec<Vec<u8>>,
}

impl Model {
    /// Changes bytes of a buffer.
    pub(crate) fn store(&mut self, buffer: usize, at: usize, bytes: &[u8]) {
        if let Some(content) = &mut self.buffers[buffer] {
            content[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Notes an output of these bytes.
    pub(crate) fn output(&mut self, buffer: usize, range: Range<usize>) {
        if let Some(content) = &self.buffers[buffer] {
            self.outputs.push(content[range].to_vec());
        }
    }

    /// Notes the end of an output; the server keeps one that was aborted in vain.
    pub(crate) fn complete(&mut self, output: usize, end: End) {
        if end != End::AbortedInVain {
            self.outputs.remove(output);
        }
    }

    /// The client stores behind an input, outputs what lies there and stores again.
    pub(crate) fn beside(&mut self, buffer: usize, from: usize) {
        let Some(len) = self.len(buffer) else { return };
        let [stored, output] = BESIDE.map(|more| (from + more).min(len));
        self.store(buffer, from, &vec![BESIDE_BYTES[0]; stored - from]);
        self.output(buffer, from..output);
        self.store(buffer, from, &vec![BESIDE_BYTES[1]; stored - from]);
    }

    pub(crate) fn len(&self, buffer: usize) -> Option<usize> {
        self.buffers[buffer].as_ref().map(Vec::len)
    }
}
