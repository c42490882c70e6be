//! Devices that transfer data to memory which they find among what was registered, without using the space.

use std::io;

use super::*;
use genie_memory::DataMut;
use genie_passing::Outboard;

const LEN: usize = 2 << 20;

/// A service that does not touch the data itself.
static UNMAPPED: [Service; 1] = [Service::new("forward", false, false)];

#[derive(Debug, Clone)]
struct Device {
    table: Arc<Table>,
    aliases: usize,
}

impl Device {
    /// A device of an interface, and its table.
    fn of(interface: &Interface) -> (Self, impl Sized) {
        let table = Arc::new(Table::default());
        let registration = interface.space().register(table.clone());
        (Self { table, aliases: interface.space().aliases_base() }, registration)
    }

    fn calls(&self) -> usize {
        self.table.calls.load(Ordering::Relaxed)
    }

    /// Links its data to the input of a request.
    fn serve(&self, mut request: Incoming) {
        request.outboard(0, 0, Box::new(self.clone())).expect("it is transferred later");
        request.set_actual(0, LEN).expect("all of it");
        request.reply(Ok(()));
    }
}

impl Outboard for Device {
    fn len(&self) -> usize {
        LEN
    }

    fn transfer(&mut self, offset: usize, into: DataMut<'_>) -> io::Result<()> {
        let objects = self.table.objects.lock();
        let is_known = |addr: usize| {
            let is_in = |object: &SharedObject| {
                (object.start..object.start + object.len).contains(&(addr - self.aliases))
            };
            objects.values().any(|(object, _)| is_in(object))
        };
        if !into
            .segments()
            .iter()
            .all(|piece| is_known(piece.addr()) && is_known(piece.addr() + piece.len() - 1))
        {
            return Err(io::Error::other("its memory is not registered"));
        }
        into.copy_from(&pattern(9, LEN)[offset..]);
        Ok(())
    }
}

#[test]
fn a_device_finds_the_memory_for_a_peek_registered() {
    let interface = interface();
    let (device, _registration) = Device::of(&interface);
    let server = ServerHandle::new(Serving(&SERVICES, {
        let device = device.clone();
        move |request| device.serve(request)
    }));
    let input = In::owned(Scheme::EmulatedCopy, interface.allocate(LEN).expect("memory"));
    let pending = interface.request(&server, LOOK).input(input).submit().expect("a request");
    let (_taken, calls, mut peeked) = (use_up(interface.space()), device.calls(), vec![0; LEN]);
    assert_eq!(pending.peek(&mut [&mut peeked]), Ok(vec![LEN]));
    assert!(device.calls() > calls, "an object was made for it");
    assert!(peeked == pattern(9, LEN), "it is the device's data");
    let mut reply = pending.sync().expect("a reply");
    assert!(reply.take_buffer().expect("the buffer")[..] == peeked, "it was transferred once more");
}

/// What one server has left with its device is brought for another one, to which the same input was forwarded.
#[test]
fn a_device_finds_the_memory_of_a_forwarded_input_registered() {
    let interface = interface();
    let (device, _registration) = Device::of(&interface);
    let supplier = ServerHandle::new(Serving(&SERVICES, {
        let device = device.clone();
        move |request| device.serve(request)
    }));
    let reader = ServerHandle::new(Serving(&SERVICES, {
        let (device, space) = (device.clone(), interface.space().clone());
        move |mut request: Incoming| {
            let (_taken, calls) = (use_up(&space), device.calls());
            let data = request.ready(0).expect("the device's data");
            let mut bytes = vec![0; LEN];
            data.copy_to(&mut bytes);
            assert!(bytes == pattern(9, LEN), "it is the device's data");
            assert!(device.calls() > calls, "an object was made for it");
            request.set_actual(0, LEN).expect("all of it");
            request.reply(Ok(()));
        }
    }));
    let contractor = ServerHandle::new(Serving(&UNMAPPED, {
        let interface = interface.clone();
        move |mut request: Incoming| {
            for server in [&supplier, &reader] {
                let whole = In::fragment(request.fragment(0, 0..LEN).expect("a fragment"));
                interface.request(server, LOOK).input(whole).send().expect("a reply");
            }
            request.set_actual(0, LEN).expect("all of it");
            request.reply(Ok(()));
        }
    }));
    let input = In::owned(Scheme::EmulatedCopy, interface.allocate(LEN).expect("memory"));
    let mut reply = interface.request(&contractor, LOOK).input(input).send().expect("a reply");
    assert!(reply.take_buffer().expect("the buffer")[..] == pattern(9, LEN), "the client has it, too");
    interface.space().check().expect("the tables add up");
}
