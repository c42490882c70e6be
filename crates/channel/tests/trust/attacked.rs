//! The server that hostile clients attack: it does what the memory server does, and keeps requests if asked to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use genie_io::servers::memory::Memory;
use genie_io::{Fragment, Incoming, Kept, RequestId, Server, Service, ServiceId};
use genie_sys::lock::{Mutex, MutexGuard};

/// Keeps the request until the test lets it go, or it is aborted.
pub(crate) const KEEP: ServiceId = ServiceId(7);
/// Keeps it, and a fragment of its first buffer, as if that were forwarded; aborts are counted, and do nothing.
pub(crate) const FORWARD: ServiceId = ServiceId(8);

/// Keeps the data of its first buffer, an output, for good.
pub(crate) const OWN: ServiceId = ServiceId(9);

/// Cloning makes another handle.
#[derive(Clone)]
pub(crate) struct AttackedServer(Arc<Inner>);

struct Inner {
    memory: Memory,
    /// The memory server's, and three more.
    services: Vec<Service>,
    kept: Mutex<Vec<(Incoming, Option<Fragment>)>>,
    own: Mutex<Vec<Kept>>,
    aborts: AtomicUsize,
}

impl Default for AttackedServer {
    fn default() -> Self {
        let memory = Memory::customized();
        let mut services = memory.services().to_vec();
        assert_eq!(ServiceId(services.len() as u32), KEEP);
        services.extend(["keep", "forward", "own"].map(|name| Service::new(name, true, true)));
        let (kept, own) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { memory, services, kept, own, aborts: AtomicUsize::new(0) }))
    }
}

impl AttackedServer {
    fn kept(&self) -> MutexGuard<'_, Vec<(Incoming, Option<Fragment>)>> {
        self.0.kept.lock()
    }

    pub(crate) fn kept_count(&self) -> usize {
        self.kept().len()
    }

    /// How often a request was to be aborted.
    pub(crate) fn aborts(&self) -> usize {
        self.0.aborts.load(Ordering::Relaxed)
    }

    /// What output buffer 0 of a kept request holds.
    pub(crate) fn look(&self, index: usize) -> Vec<u8> {
        self.kept()[index].0.output(0).expect("an output").to_vec()
    }

    /// Fills input buffer 0 of the first kept request with bytes, and replies.
    pub(crate) fn fill(&self, byte: u8) {
        let (mut request, _) = self.kept().remove(0);
        request.fill(0, |room| room.fill(byte)).expect("an input");
        request.reply(Ok(()));
    }

    /// What was kept for good.
    pub(crate) fn own(&self) -> Vec<Kept> {
        std::mem::take(&mut *self.0.own.lock())
    }

    /// Lets everything go.
    pub(crate) fn let_go(&self) {
        let kept = std::mem::take(&mut *self.kept());
        drop(kept);
    }
}

impl Server for AttackedServer {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &self.0.services
    }

    fn request(&self, mut request: Incoming) {
        match request.service() {
            KEEP => self.kept().push((request, None)),
            FORWARD => {
                let len = request.len(0);
                let fragment = request.fragment(0, 0..len).expect("a buffer");
                self.kept().push((request, Some(fragment)));
            }
            OWN => {
                let kept = request.keep(0).map(|kept| self.0.own.lock().push(kept));
                request.reply(kept.map_err(Into::into));
            }
            _ => self.0.memory.request(request),
        }
    }

    fn abort(&self, request: RequestId) {
        self.0.aborts.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept();
        let found = kept.iter().position(|(known, fragment)| known.id() == request && fragment.is_none());
        let aborted = found.map(|index| kept.remove(index));
        drop(kept);
        drop(aborted);
    }
}
