//! Subjects: what is held to the promises.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use genie_io::{Interface, Limits};
use genie_memory::Space;
use genie_passing::Thresholds;

use crate::machine::{frames, skip};
use crate::promise::{Need, Promise};
use crate::promises::PROMISES;
use crate::report::{Finding, Report, Verdict};
use crate::scene::{PATIENCE, Scene, Servers};
use crate::setup::{Setup, interface};

/// A promise is stuck when it has made no request in so many slices of the time that it is allowed.
const SLICES: u32 = 10;

/// How long a server may take to let a request go before the client goes on, where promises are tried.
pub const GRACE: Duration = Duration::from_millis(20);

/// What is held to the promises: how to open it, in any configuration.
pub struct Subject<'s> {
    name: String,
    patience: Duration,
    open: Box<Opening<'s>>,
}

/// Makes servers reachable for requests of an interface, or says why not.
type Opening<'s> = dyn Fn(&Interface, &Setup) -> Result<Servers, String> + Sync + 's;

impl<'s> Subject<'s> {
    /// Names a subject. `open` makes the servers reachable for requests of an interface; it is called for each promise anew, and
    /// says why where the machine cannot do it. A subject that is never opened fails its [report](Report::assert_kept).
    pub fn new(name: &str, open: impl Fn(&Interface, &Setup) -> Result<Servers, String> + Sync + 's) -> Self {
        Self { name: name.to_owned(), patience: PATIENCE, open: Box::new(open) }
    }

    /// Says how long a server that keeps bytes may take to reply, and any server to let go of a request that is over (10 s).
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Opens it, or says why the machine cannot.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(&self, setup: Setup) -> Result<Scene, String> {
        self.open_on(setup.make_space(setup.memory_limit())?, setup)
    }

    fn open_on(&self, space: Space, setup: Setup) -> Result<Scene, String> {
        let limits = Limits { abort_timeout: GRACE, ..Limits::default() };
        let interface = interface(space, limits, Thresholds::ALWAYS);
        let servers = (self.open)(&interface, &setup)?;
        Ok(Scene::new(setup, interface, servers).patient(self.patience))
    }

    /// Tries one promise, as a test of its own: where the machine cannot, the test says SKIP; where the promise does not concern
    /// the subject, the test says so.
    ///
    /// # Panics
    /// The promise is broken.
    pub fn hold(&self, test: &str, promise: &Promise, setup: Setup) {
        match self.scene_for(promise, setup) {
            Ok(scene) => promise.hold(&scene),
            Err(Verdict::NotTried(reason) | Verdict::NotOpened(reason)) => skip(test, &reason),
            Err(verdict) => println!("{test}: {verdict}"),
        }
    }

    /// Tries one promise, and tells what was found. A panic of the subject's breaks the promise, wherever it comes, and so does a
    /// server that keeps its client's thread: the promise is tried in a thread of its own, which is left behind if it makes no
    /// request for 10 s more than the subject's patience, a carrier's for 60 s more.
    pub fn find(&self, promise: &'static Promise, setup: Setup) -> Finding {
        let verdict = match caught(|| self.scene_for(promise, setup)) {
            Ok(Ok(scene)) => watched(promise, scene),
            Ok(Err(verdict)) => verdict,
            Err(said) => Verdict::Broken(format!("before it was tried: {said}")),
        };
        Finding { promise, setup, verdict }
    }

    /// Tries all promises in each of these configurations; where a thread was left behind, no more of them: it may hold what the
    /// others need.
    pub fn report(&self, setups: &[Setup]) -> Report {
        let mut findings = Vec::<Finding>::new();
        for (promise, &setup) in
            PROMISES.iter().flat_map(|promise| setups.iter().map(move |setup| (promise, setup)))
        {
            let is_stuck =
                |found: &Finding| found.setup == setup && matches!(found.verdict, Verdict::Stuck(_));
            findings.push(match findings.iter().any(is_stuck) {
                true => {
                    let verdict = Verdict::NotTried("a thread was left behind before".to_owned());
                    Finding { promise, setup, verdict }
                }
                false => self.find(promise, setup),
            });
        }
        Report { subject: self.name.clone(), findings }
    }

    fn scene_for(&self, promise: &Promise, setup: Setup) -> Result<Scene, Verdict> {
        let space = setup.make_space(setup.memory_limit()).map_err(Verdict::NotTried)?;
        let scene = self.open_on(space, setup).map_err(Verdict::NotOpened)?;
        if let Some(why) = promise.needs.iter().find_map(|need| scene.lacks(*need)) {
            return Err(Verdict::NotApplicable(why));
        }
        let byte = 1u8;
        if promise.needs.contains(&Need::Frames)
            && frames(std::ptr::from_ref(&byte).addr(), 1, 4096).is_none()
        {
            return Err(Verdict::NotTried("page frames are hidden (CAP_SYS_ADMIN is missing)".to_owned()));
        }
        Ok(scene)
    }
}

/// Tries a promise in a thread of its own. Threads cannot be ended, so one that does not go on is left.
fn watched(promise: &'static Promise, scene: Scene) -> Verdict {
    let (uses, allowed) = (scene.uses(), scene.longest_wait());
    let (sender, found) = channel();
    // Nobody receives what a thread that was left behind finds.
    if let Err(error) = thread::Builder::new().spawn(move || drop(sender.send(held(promise, scene)))) {
        return Verdict::NotTried(format!("no thread: {error}"));
    }
    let (mut before, mut idle) = (0, 0);
    // Counted, not timed: the program may have been stopped meanwhile.
    while idle < SLICES {
        match found.recv_timeout(allowed / SLICES) {
            Ok(held) => return held.map_or_else(Verdict::Broken, |()| Verdict::Kept),
            Err(RecvTimeoutError::Disconnected) => {
                return Verdict::Broken("its thread ended without a word".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = uses.load(Ordering::Relaxed);
        idle = if now == before { idle + 1 } else { 0 };
        before = now;
    }
    Verdict::Stuck(format!("it has not gone on for {allowed:?}; a thread of its own is left behind"))
}

/// Tries a promise, or tells what a panic said. The scene's end is apart: two panics at a time would end the process.
fn held(promise: &Promise, scene: Scene) -> Result<(), String> {
    let held = caught(|| promise.hold(&scene));
    held.and(caught(|| drop(scene)).map_err(|said| format!("after it was tried: {said}")))
}

/// What comes of it, or what a panic said.
fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| {
        let said = said(&*panic);
        // Dropping it may panic, and so may dropping what that panic leaves.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(another);
        }
        said
    })
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}
