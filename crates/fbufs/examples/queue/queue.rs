//! A server that gives back what it was given, in order: "put" takes the bytes of output 0, and "take" fills input 0 with as many of them
//! as it has room for. When all were taken, it gives none, which is the end.

use std::collections::VecDeque;

use genie_io::{Incoming, RequestId, Server, ServerError, Service, ServiceId};
use genie_sys::lock::Mutex;

/// The most bytes that are kept.
const MOST: usize = 64 << 20;

static SERVICES: [Service; 2] = [Service::new("put", true, false), Service::new("take", false, true)];

#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<VecDeque<u8>>);

impl Server for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut request: Incoming) {
        let mut bytes = self.0.lock();
        let result = match request.service() {
            ServiceId(0) => put(&request, &mut bytes),
            _ => take(&mut request, &mut bytes),
        };
        drop(bytes);
        request.reply(result);
    }

    /// Each request is replied to at once.
    fn abort(&self, _request: RequestId) {}
}

fn put(request: &Incoming, bytes: &mut VecDeque<u8>) -> Result<(), ServerError> {
    let data = request.output(0)?;
    if bytes.len() + data.len() > MOST {
        return Err(ServerError { code: 28, message: format!("the queue has its {MOST} bytes") }); // ENOSPC
    }
    data.for_each_chunk(|chunk| bytes.extend(chunk));
    Ok(())
}

fn take(request: &mut Incoming, bytes: &mut VecDeque<u8>) -> Result<(), ServerError> {
    let len = request.len(0).min(bytes.len());
    request.fill(0, |room| {
        let (first, second) = bytes.as_slices();
        let first = &first[..len.min(first.len())];
        room.copy_from(first) + room.part(first.len()..len).copy_from(&second[..len - first.len()])
    })?;
    bytes.drain(..len);
    Ok(())
}
