//! The versions of control messages, and how much one may hold.

use std::time::Duration;

/// The version of the layout of the handshake, which never changes.
pub const HANDSHAKE_VERSION: u16 = 1;
/// The newest version that this code speaks.
pub const VERSION: u16 = 3;
/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;
/// The most descriptors of a message.
pub const MAX_DESCRIPTORS: usize = 16;
/// The longest sentence that explains a refusal or a goodbye, in bytes; longer ones are cut.
pub const MAX_SENTENCE: usize = 1024;
/// The longest argument of a question for a layout, in bytes.
pub const MAX_LAYOUT_ARGUMENT: usize = 32 << 10;
/// The most services of a server in another process.
pub const MAX_SERVICES: usize = 256;
/// The longest time for an abort that a welcome can state.
pub const MAX_ABORT_TIMEOUT: Duration = Duration::from_millis(u32::MAX as u64);
/// The most clients that a status lists.
pub const MAX_CLIENTS: usize = 512;

/// Descriptors of a welcome before those of the pool: the rings, and the client's end of the bells.
pub(super) const WELCOME_DESCRIPTORS: usize = 2;
