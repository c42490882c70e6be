//! Mapped access: fetches are served from mappings of the files, which are kept.
//!
//! Why: mapped files need no cache of the server's beside the kernel's, and no system call to be read again.
//! How: a file is mapped in windows, the first time that a fetch falls into one. A mapping shows what is in the file now, so
//! it stays valid when the file changes. It belongs to the file itself, whatever the file's name stands for later.
//! Trust: a file that is shortened while it is read breaks its view, which is then given up. The fetch is served by explicit
//! I/O, as a fetch from a file that cannot be mapped is. In the page where the file now ends, the bytes after the end read
//! as zeros.
//! Limits: [`VIEWS`] windows, of which the least recently used make room; one lock, held for a look-up.
//! Source: thesis §10.1. Differs: it is the server that maps the file, and copies; clients never see the mapping.

use std::num::NonZeroUsize;
use std::sync::Arc;

use genie_memory::{Data, DataMut};
use genie_sys::View;
use genie_sys::lock::Mutex;
use lru::LruCache;

use super::cache::Key;
use super::root::Opened;

/// The length of a window. Windows begin at multiples of this length.
const WINDOW: usize = 64 << 20;
/// How many windows are kept.
const VIEWS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Windows by file and index.
#[derive(Debug)]
pub(crate) struct Views(Mutex<LruCache<Key, Arc<View>>>);

impl Default for Views {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(VIEWS)))
    }
}

impl Views {
    /// Fills `data` as far as the file goes and returns the number of bytes; `None` where mappings do not help.
    pub(crate) fn fetch(&self, opened: &Opened, offset: u64, data: &DataMut<'_>) -> Option<usize> {
        if opened.version.size == 0 {
            // Files that hide their size, as those of procfs do, hold more bytes than their size says.
            return None;
        }
        let left = usize::try_from(opened.version.bytes_from(offset)).unwrap_or(usize::MAX);
        let (len, mut done) = (data.len().min(left), 0);
        while done < len {
            let at = offset + done as u64;
            let key = Key { file: opened.id, index: at / WINDOW as u64 };
            let from = (at % WINDOW as u64) as usize;
            let here = (WINDOW - from).min(len - done);
            let view = self.view(opened, key)?;
            data.part(done..done + here).copy_data(&Data::of_view(&view, from..from + here));
            if view.is_broken() {
                self.forget(key);
                return None;
            }
            done += here;
        }
        Some(done)
    }

    fn view(&self, opened: &Opened, key: Key) -> Option<Arc<View>> {
        let found = self.0.lock().get(&key).cloned();
        if found.is_some() {
            return found;
        }
        let view = Arc::new(View::open(&opened.file, key.index * WINDOW as u64, WINDOW).ok()?);
        let gone = self.0.lock().push(key, Arc::clone(&view));
        // Mappings are undone without the lock.
        drop(gone);
        Some(view)
    }

    fn forget(&self, key: Key) {
        let gone = self.0.lock().pop(&key);
        drop(gone);
    }
}
