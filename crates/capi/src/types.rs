//! The types of thesis §7.3 as C has them.
#![allow(non_camel_case_types, reason = "names of C")]

use std::ffi::{c_char, c_void};

/// An interface, made by io_open; 0 is one that is opened with the default limits when it is first named, and is enough for most
/// programs.
pub type io_interface_t = u64;
/// A server, from io_connect or io_server_register; never 0.
pub type io_server_t = u64;
/// A request: a pending one that io_request has named, or one that io_server has brought; never 0.
pub type io_request_t = u64;
/// A private pool of overlay buffers, from io_pool_allocate; never 0.
pub type io_pool_t = u64;
/// An overlay buffer out of its pool, from io_pool_take, or a part of one; never 0.
pub type io_overlay_t = u64;
/// A pin, from io_pin; never 0.
pub type io_pin_t = u64;
/// A network, from io_network_open; never 0.
pub type io_network_t = u64;
/// A packet of a network, from io_network_allocate or io_network_receive; never 0.
pub type io_packet_t = u64;
/// A data passing scheme: one of IO_COPY to IO_FRAGMENT, or IO_DEFAULT.
pub type io_scheme_t = u32;

/// The interface's default scheme: emulated copy, unless io_set_scheme has changed it.
pub const IO_DEFAULT: io_scheme_t = 0;
/// Native: the data is copied.
pub const IO_COPY: io_scheme_t = 1;
/// Native: means what IO_COPY means, and copies no long data.
pub const IO_EMULATED_COPY: io_scheme_t = 2;
/// Native: the server works in the client's buffer, which is wired. Nobody may touch the buffer until the request is over.
pub const IO_SHARE: io_scheme_t = 3;
/// Native: means what IO_SHARE means, and wires nothing.
pub const IO_EMULATED_SHARE: io_scheme_t = 4;
/// Migrant: the buffer goes to the server, or comes from it.
pub const IO_MOVE: io_scheme_t = 5;
/// Migrant: means what IO_MOVE means, and keeps the region for reuse.
pub const IO_EMULATED_MOVE: io_scheme_t = 6;
/// Migrant: the buffer goes or comes, and the server may see later stores into it.
pub const IO_WEAK_MOVE: io_scheme_t = 7;
/// Migrant: means what IO_WEAK_MOVE means, and wires nothing.
pub const IO_EMULATED_WEAK_MOVE: io_scheme_t = 8;
/// A part of a buffer of a request that this program serves: subcontracting.
pub const IO_FRAGMENT: io_scheme_t = 9;

/// Data goes from the client to the server.
pub const IO_OUT: u32 = 0;
/// Data comes from the server to the client.
pub const IO_IN: u32 = 1;

/// A flag of an output: nobody stores into the data until the call returns. If the request is synchronous, nothing need be
/// protected then. It is ignored where the request is asynchronous.
pub const IO_HELD: u32 = 1;

/// A flag of a native element: its buffer, one of io_allocate, is given by value. Until the request is over the library holds it,
/// and nobody may touch it; so nothing has to be protected or copied for want of protection, in an asynchronous request either.
/// The data may be a part of the buffer; other requests cannot have the buffer meanwhile, and io_free refuses it (EBUSY). When the
/// request is over, the buffer is the caller's again, at the same address. If the request has failed and its server has not let the
/// buffer go, the element's address is set to NULL instead, and the buffer is freed when the server does.
pub const IO_OWNED: u32 = 2;

/// What io_request and io_sync return while the request is pending.
pub const IO_PENDING: i32 = 1;

/// A timeout that never ends.
pub const IO_FOREVER: i64 = -1;

/// Some bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// The first byte.
    pub addr: *mut c_void,
    /// How many bytes.
    pub length: usize,
}

/// The segments of a migrant element. For output the caller sets both; each segment is a whole buffer of io_allocate_migrant. When
/// the request is over, the library sets the segments to what the caller has: after a failure to the buffers that came back, and
/// otherwise to NULL, since the buffers are the server's. For input the caller sets count to the number of segments for which there is room, and on success the
/// library sets it to 1 and the first segment to the buffer that has arrived, which is the caller's to free.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// How many segments follow, at least 1.
    pub count: usize,
    /// The segments; allocate room for more than one if there are more.
    pub segmentv: [Segment; 1],
}

/// Where a native element's data is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NativeLocation {
    /// The first byte: in a buffer of io_allocate if copying is to be avoided, or anywhere.
    pub addr: *mut c_void,
    /// The server that lends the system buffer if one is needed: of all servers that the data will reach, the one that touches it. 0
    /// for the request's own.
    pub lender: io_server_t,
}

/// Where a fragment is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FragmentLocation {
    /// The server of this program that has the request.
    pub server: io_server_t,
    /// The request, as io_server has named it.
    pub request: io_request_t,
    /// The number of its buffer, from 0.
    pub buffer: usize,
    /// Where in the buffer the fragment begins.
    pub offset: usize,
}

/// Where an element's data is: which member counts depends on the scheme.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Location {
    /// For IO_DEFAULT, and from IO_COPY to IO_EMULATED_SHARE.
    pub native: NativeLocation,
    /// From IO_MOVE to IO_EMULATED_WEAK_MOVE.
    pub region: *mut Region,
    /// For IO_FRAGMENT.
    pub fragment: FragmentLocation,
}

/// What was done with an element.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Receipt {
    /// The scheme that was asked for.
    pub asked: io_scheme_t,
    /// The scheme that took effect.
    pub effective: io_scheme_t,
    /// Bytes that were copied.
    pub copied: usize,
    /// Bytes that were zeroed before other processes saw them.
    pub zeroed: usize,
    /// Granules (pages of 4 KiB or 2 MiB) that the server read in place.
    pub referenced: u32,
    /// Granules that were protected against stores.
    pub write_protected: u32,
    /// Granules that were replaced when the call returned before the server was done.
    pub replaced: u32,
    /// Granules that changed places between client and server.
    pub swapped: u32,
    /// Granules that were mapped or hidden.
    pub mapped: u32,
    /// Faults that stores took meanwhile.
    pub faults: u32,
    /// Why data was copied although the scheme avoids that, in a few words that are always valid; NULL if it was not.
    pub reason: *const c_char,
}

/// An element of a buffer's scatter-gather list. One list may have elements of several schemes.
#[repr(C)]
pub struct ScatterGather {
    /// How the data is passed.
    pub scheme: io_scheme_t,
    /// IO_HELD, IO_OWNED, both, or 0.
    pub flags: u32,
    /// Where the data is.
    pub location: Location,
    /// How many bytes; for migrant output ignored, since its segments have lengths.
    pub length: usize,
    /// The next element, or NULL.
    pub next_sg: *mut ScatterGather,
    /// Where what was done is to be written when the server has replied, or NULL. After a failure without a reply it may not be written.
    pub receiptp: *mut Receipt,
}

/// A buffer of a request. A header without elements only carries arguments; the server knows the others by their numbers, from 0 on,
/// outputs and inputs together.
///
/// A request has one argument there and one back: of all its headers, one may have an out_arg, and one an in_arg.
#[repr(C)]
pub struct BufferHeader {
    /// Bytes of the argument for the server.
    pub out_arg_length: usize,
    /// The argument for the server, which is copied when the request is made.
    pub out_arg: *const c_void,
    /// Bytes of room for the reply's argument.
    pub in_arg_length: usize,
    /// Where the reply's argument is written.
    pub in_arg: *mut c_void,
    /// How many bytes of argument the reply has brought; set by the library.
    pub in_arg_actual: usize,
    /// The first element, or NULL.
    pub first_sg: *mut ScatterGather,
    /// IO_OUT or IO_IN.
    pub direction: u32,
    /// Where the number of bytes that were really passed is written, as the server says, or NULL. After a failure it is 0; a call that
    /// is refused because it is wrong writes nothing.
    pub actual_lengthp: *mut usize,
    /// Where what was done with all elements of the request together is to be written, those of other headers, too, or NULL: the
    /// receipts of the elements added up. asked and effective are IO_DEFAULT where elements have several, and reason is the first.
    pub totalp: *mut Receipt,
}
