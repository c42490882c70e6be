//! Alarms: what a request that has a timeout keeps in a timer.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use crate::RequestId;

/// A timer's queue of requests, in the order of the times when they are due.
pub(crate) trait Alarms: Debug + Send + Sync {
    /// Takes a request out.
    fn cancel(&self, at: Instant, id: RequestId);
}

/// A request's place in a timer's queue; dropping it takes the request out.
#[derive(Debug)]
pub(crate) struct Alarm {
    pub(crate) timer: Arc<dyn Alarms>,
    pub(crate) at: Instant,
    pub(crate) id: RequestId,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.timer.cancel(self.at, self.id);
    }
}
