//! A server that keeps bytes under names, well or badly.

use std::collections::BTreeMap;
use std::mem::take;
use std::thread;

use genie_conformance::machine::raw;
use genie_conformance::{Servers, Store, Subject};
use genie_io::{Anticipated, Incoming, RequestId, Server, ServerError, ServerHandle, Service, ServiceId};
use genie_memory::Segments;
use genie_sys::lock::{Mutex, MutexGuard};

use crate::store;

const PUT: ServiceId = ServiceId(0);
const GET: ServiceId = ServiceId(1);

static SERVICES: [Service; 2] = [Service::new("put", true, false), Service::new("get", false, true)];

/// What a server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    StoresIntoOutputs,
    ReadsOutputsAfterItsReply,
    StoresAfterItsReply,
    SaysMoreThanItPasses,
    SaysLessThanItPasses,
    NeverSaysHowMuchItPasses,
    LeavesTheLastByteOut,
    InventsWhatIsMissing,
    NeverReplies,
    NeverLetsGo,
    KnowsOneName,
    SeesOneElement,
    RefusesNoBytes,
    CutsNamesShort,
    FlipsABitOfLongData,
    NeverReturns,
}

/// The server.
pub(crate) struct Keeper {
    wrong: Option<Wrong>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<Vec<u8>, Kept>,
    /// The address of an input that was replied to.
    after: Option<usize>,
    requests: Vec<Incoming>,
    anticipated: Vec<Anticipated>,
}

/// What is kept: bytes, or where they were.
enum Kept {
    Bytes(Vec<u8>),
    Places(Segments),
}

/// A keeper, as a subject of the suite.
pub(crate) fn subject(wrong: Option<Wrong>) -> Subject<'static> {
    Subject::new("a server that keeps bytes", move |_, _| {
        let server = ServerHandle::new(Keeper { wrong, state: Mutex::default() });
        Ok(Servers::storing(Store::new(server, PUT, GET, |name| name.as_bytes().to_vec())))
    })
}

impl Server for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn services(&self) -> &[Service] {
        &SERVICES
    }

    fn request(&self, mut incoming: Incoming) {
        let is_put = incoming.service() == PUT;
        while self.wrong == Some(Wrong::NeverReturns) {
            thread::park();
        }
        let result = if is_put { self.put(&incoming) } else { self.get(&mut incoming) };
        match self.wrong {
            Some(Wrong::NeverReplies) if is_put => self.state().requests.push(incoming),
            Some(Wrong::NeverLetsGo) if is_put => {
                if let Ok(anticipated) = incoming.anticipate() {
                    self.state().anticipated.push(anticipated);
                }
            }
            _ => incoming.reply(result),
        }
    }

    fn abort(&self, _request: RequestId) {}
}

impl Keeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn name(&self, incoming: &Incoming) -> Vec<u8> {
        match self.wrong {
            Some(Wrong::KnowsOneName) => b"the only one".to_vec(),
            Some(Wrong::CutsNamesShort) => incoming.argument().iter().take(3).copied().collect(),
            _ => incoming.argument().to_vec(),
        }
    }

    fn put(&self, incoming: &Incoming) -> Result<(), ServerError> {
        let mut state = self.state();
        if let Some(addr) = take(&mut state.after) {
            store(addr);
        }
        let data = incoming.output(0)?;
        let (mut bytes, places) = (data.to_vec(), data.segments().clone());
        match self.wrong {
            Some(Wrong::StoresIntoOutputs) => places.first().into_iter().for_each(|span| store(span.addr())),
            Some(Wrong::LeavesTheLastByteOut) => {
                bytes.pop();
            }
            Some(Wrong::FlipsABitOfLongData) if bytes.len() > 100_000 => bytes[70_000] ^= 1,
            Some(Wrong::SeesOneElement) => bytes.truncate(places.first().map_or(0, |span| span.len())),
            Some(Wrong::RefusesNoBytes) if bytes.is_empty() => return Err(ServerError::new("no bytes")),
            _ => {}
        }
        let kept = match self.wrong {
            Some(Wrong::ReadsOutputsAfterItsReply) => Kept::Places(places),
            _ => Kept::Bytes(bytes),
        };
        state.kept.insert(self.name(incoming), kept);
        Ok(())
    }

    fn get(&self, incoming: &mut Incoming) -> Result<(), ServerError> {
        let mut state = self.state();
        let bytes = match state.kept.get(&self.name(incoming)) {
            Some(Kept::Bytes(bytes)) => bytes.clone(),
            Some(Kept::Places(places)) => {
                places.iter().flat_map(|span| raw(span.addr(), span.len())).collect()
            }
            None if self.wrong == Some(Wrong::InventsWhatIsMissing) => vec![0; 10],
            None => return Err(ServerError::new("nothing of this name is kept")),
        };
        if self.wrong == Some(Wrong::NeverSaysHowMuchItPasses) {
            incoming.ready(0)?.copy_from(&bytes);
            return Ok(());
        }
        incoming.fill(0, |data| {
            let stored = data.copy_from(&bytes);
            if self.wrong == Some(Wrong::StoresAfterItsReply) {
                state.after = data.segments().first().map(|span| span.addr());
            }
            match self.wrong {
                Some(Wrong::SaysMoreThanItPasses) => data.len(),
                Some(Wrong::SaysLessThanItPasses) => stored / 2,
                _ => stored,
            }
        })?;
        Ok(())
    }
}
