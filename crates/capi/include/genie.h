#ifndef GENIE_H
#define GENIE_H

#include <stddef.h>
#include <stdint.h>

/* libgenie: I/O in which every buffer says how its data is to be passed.
 *
 * This file is made from the library's sources; do not edit it. README.md has the whole of Genie, and docs/c.md a page for C.
 *
 * All functions may be called by any thread. Those that return an int return -1 when they fail, and set errno; then io_error_text
 * has a sentence that says why. Numbers of interfaces, servers and requests are never given twice, so that one that is over is told
 * from one that is good (EBADF). A child made by fork has none of its parent's (ECHILD): it opens and connects anew, and its copies
 * of the parent's buffers hold zeros.
 *
 * No thread may be cancelled (pthread_cancel) while it is in a function of the library: that ends the process. A thread that may be
 * cancelled disables that around its calls (pthread_setcancelstate). No function of the library may be called in a signal handler.
 */

// Data goes from the client to the server.
#define IO_OUT 0

// Data comes from the server to the client.
#define IO_IN 1

// A flag of an output: nobody stores into the data until the call returns. If the request is synchronous, nothing need be
// protected then. It is ignored where the request is asynchronous.
#define IO_HELD 1

// A flag of a native element: its buffer, one of io_allocate, is given by value. Until the request is over the library holds it,
// and nobody may touch it; so nothing has to be protected or copied for want of protection, in an asynchronous request either.
// The data may be a part of the buffer; other requests cannot have the buffer meanwhile, and io_free refuses it (EBUSY). When the
// request is over, the buffer is the caller's again, at the same address. If the request has failed and its server has not let the
// buffer go, the element's address is set to NULL instead, and the buffer is freed when the server does.
#define IO_OWNED 2

// What io_request and io_sync return while the request is pending.
#define IO_PENDING 1

// A timeout that never ends.
#define IO_FOREVER -1

// A flag of an interface: the program promises that no system call ever stores into its buffers (no read, recv and the like)
// while output from them is pending; such a call fails with EFAULT then. Where the kernel lets an ordinary user catch only
// the program's own stores, which is common, asynchronous output is protected with this promise, and copied without it.
#define IO_KERNEL_NEVER_STORES 1

// A flag of connecting: the server is shown no memory. The kernel copies all data, and the server sees nothing else.
#define IO_UNTRUSTED 1

// A flag of connecting: the server may go and come again, and its number stays good. A request that finds that the server has gone
// connects anew, as the options say, to the server that then has the name. A request that was never sent (EPIPE) is sent to that
// server by the same call of io_request; one that may have been done fails (ECONNRESET), since nobody knows. The new server has to
// have the services that the first one had, with the same numbers, or else requests fail (ENOENT).
#define IO_RECONNECTING 2

// The data goes where the request said.
#define IO_NORMAL 0

// The data is copied elsewhere, and the request stays pending.
#define IO_PEEKED 1

// The data goes elsewhere.
#define IO_REDIRECTED 2

// The service reads outputs.
#define IO_READ 1

// The service fills inputs.
#define IO_WRITE 2

// There is no message.
#define IO_NO_MESSAGE 0

// A request, to be replied to.
#define IO_REQUEST 1

// A request that is held is to be let go: reply to it soon, with success if it is done, else with ECANCELED. After io_abort, what
// io_progress has said is final passes then.
#define IO_ABORT 2

// A client has left: no more of its requests come.
#define IO_DEPARTURE 3

// Replies have come to requests of an interface that the server watches (io_server_watch): look at the pending ones by io_sync with
// timeout 0. There may be none.
#define IO_REPLIES 4

// A flag of outboard data: its transfer never fails. Then emulated copy has it fill the client's own buffer. Otherwise it fills one of the
// library's, whose pages change places with the client's, since a request that fails leaves the client's buffer as it was.
#define IO_NEVER_FAILS 1

// A flag of a network without copies: a system call allocates each buffer that is sent, and one releases each that was received. Otherwise
// memory does that is shared with the card.
#define IO_BY_SYSTEM_CALLS 1

// A flag of a network: what comes is summed, while it is copied where it is.
#define IO_SUMMED 2

// A flag of a network: the card brings back what is sent.
#define IO_REFLECTED 4

// In place of where a packet's checksum is to be stored: nowhere.
#define IO_NO_CHECKSUM -1

// Bytes from which on copying is avoided; 0 for what was measured on this machine.
struct io_thresholds {
    // Output that has to be protected.
    size_t output;
    // Output into which nobody can store (IO_HELD).
    size_t held;
    // Input on one granule that it does not fill.
    size_t input;
    // Input on full granules.
    size_t input_run;
};

// How an interface is to be opened. Set size to sizeof(struct io_options) and all else to 0, and then change what you need.
struct io_options {
    // Bytes of this structure, by which later versions of the library know what it has.
    size_t size;
    // Bytes that may be pending; 0 for 1 GiB.
    size_t pending_bytes;
    // Requests that may be pending; 0 for 65,536.
    size_t pending_requests;
    // The longest time that a request may take, in nanoseconds; 0 for no such limit.
    int64_t timeout;
    // How long a server may take to let an aborted request go, in nanoseconds; 0 for 100 ms.
    int64_t abort_timeout;
    // From which length on copying is avoided.
    struct io_thresholds thresholds;
    // IO_KERNEL_NEVER_STORES, or 0.
    uint32_t flags;
};

// An interface, made by io_open; 0 is one that is opened with the default limits when it is first named, and is enough for most
// programs.
typedef uint64_t io_interface_t;

// A data passing scheme: one of IO_COPY to IO_FRAGMENT, or IO_DEFAULT.
typedef uint32_t io_scheme_t;

// A server, from io_connect or io_server_register; never 0.
typedef uint64_t io_server_t;

// How to connect to a server. Set size to sizeof(struct io_connect_options) and all else to 0, and then change what you need.
struct io_connect_options {
    // Bytes of this structure, by which later versions of the library know what it has.
    size_t size;
    // How long to wait for a server that is not there yet, or is busy, in nanoseconds; 0 for not at all, IO_FOREVER for as long as
    // it takes.
    int64_t wait;
    // How long a server that is there may take to answer, in nanoseconds; 0 for 5 s.
    int64_t timeout;
    // Bytes that may be pending at the server; 0 for 1 GiB. The server may grant fewer.
    size_t pending_bytes;
    // From which length on output by emulated copy may show the server the client's own memory, with whatever else lies in the
    // same memory object; 0 for wherever that is faster. Shorter output is copied to the server's pool.
    size_t shown_from;
    // The most bytes that the server may lend; 0 for 1 GiB.
    size_t lent;
    // What the server calls this client; NULL for the program's name.
    const char *client_name;
    // Requests that may be pending at the server; 0 for 256. The server may grant fewer.
    uint32_t pending_requests;
    // IO_UNTRUSTED, IO_RECONNECTING, both, or 0.
    uint32_t flags;
};

// How a server wants a client to lay out input buffers: header_length bytes, then length bytes of data that begin offset bytes into a
// granule, then trailer_length bytes, and so on for as much as is to come. Allocate buffers for the data by io_allocate_at, and give
// headers and trailers elements of their own.
struct io_layout {
    // Where the data begins in its first granule.
    size_t offset;
    // How many bytes of data come at once.
    size_t length;
    // How many bytes come in front of the data each time; 0 where the server takes headers off.
    size_t header_length;
    // How many bytes come behind the data each time, in the same way.
    size_t trailer_length;
    // How often the server had changed its layouts, for io_layout_is_stale.
    uint64_t changes;
};

// Where a native element's data is.
struct io_native_location {
    // The first byte: in a buffer of io_allocate if copying is to be avoided, or anywhere.
    void *addr;
    // The server that lends the system buffer if one is needed: of all servers that the data will reach, the one that touches it. 0
    // for the request's own.
    io_server_t lender;
};

// Some bytes.
struct io_segment {
    // The first byte.
    void *addr;
    // How many bytes.
    size_t length;
};

// The segments of a migrant element. For output the caller sets both; each segment is a whole buffer of io_allocate_migrant. When
// the request is over, the library sets the segments to what the caller has: after a failure to the buffers that came back, and
// otherwise to NULL, since the buffers are the server's. For input the caller sets count to the number of segments for which there is room, and on success the
// library sets it to 1 and the first segment to the buffer that has arrived, which is the caller's to free.
struct io_region {
    // How many segments follow, at least 1.
    size_t count;
    // The segments; allocate room for more than one if there are more.
    struct io_segment segmentv[1];
};

// A request: a pending one that io_request has named, or one that io_server has brought; never 0.
typedef uint64_t io_request_t;

// Where a fragment is.
struct io_fragment_location {
    // The server of this program that has the request.
    io_server_t server;
    // The request, as io_server has named it.
    io_request_t request;
    // The number of its buffer, from 0.
    size_t buffer;
    // Where in the buffer the fragment begins.
    size_t offset;
};

// Where an element's data is: which member counts depends on the scheme.
union io_location {
    // For IO_DEFAULT, and from IO_COPY to IO_EMULATED_SHARE.
    struct io_native_location native;
    // From IO_MOVE to IO_EMULATED_WEAK_MOVE.
    struct io_region *region;
    // For IO_FRAGMENT.
    struct io_fragment_location fragment;
};

// What was done with an element.
struct io_receipt {
    // The scheme that was asked for.
    io_scheme_t asked;
    // The scheme that took effect.
    io_scheme_t effective;
    // Bytes that were copied.
    size_t copied;
    // Bytes that were zeroed before other processes saw them.
    size_t zeroed;
    // Granules (pages of 4 KiB or 2 MiB) that the server read in place.
    uint32_t referenced;
    // Granules that were protected against stores.
    uint32_t write_protected;
    // Granules that were replaced when the call returned before the server was done.
    uint32_t replaced;
    // Granules that changed places between client and server.
    uint32_t swapped;
    // Granules that were mapped or hidden.
    uint32_t mapped;
    // Faults that stores took meanwhile.
    uint32_t faults;
    // Why data was copied although the scheme avoids that, in a few words that are always valid; NULL if it was not.
    const char *reason;
};

// An element of a buffer's scatter-gather list. One list may have elements of several schemes.
struct io_scatter_gather {
    // How the data is passed.
    io_scheme_t scheme;
    // IO_HELD, IO_OWNED, both, or 0.
    uint32_t flags;
    // Where the data is.
    union io_location location;
    // How many bytes; for migrant output ignored, since its segments have lengths.
    size_t length;
    // The next element, or NULL.
    struct io_scatter_gather *next_sg;
    // Where what was done is to be written when the server has replied, or NULL. After a failure without a reply it may not be written.
    struct io_receipt *receiptp;
};

// A buffer of a request. A header without elements only carries arguments; the server knows the others by their numbers, from 0 on,
// outputs and inputs together.
//
// A request has one argument there and one back: of all its headers, one may have an out_arg, and one an in_arg.
struct io_buffer_header {
    // Bytes of the argument for the server.
    size_t out_arg_length;
    // The argument for the server, which is copied when the request is made.
    const void *out_arg;
    // Bytes of room for the reply's argument.
    size_t in_arg_length;
    // Where the reply's argument is written.
    void *in_arg;
    // How many bytes of argument the reply has brought; set by the library.
    size_t in_arg_actual;
    // The first element, or NULL.
    struct io_scatter_gather *first_sg;
    // IO_OUT or IO_IN.
    uint32_t direction;
    // Where the number of bytes that were really passed is written, as the server says, or NULL. After a failure it is 0; a call that
    // is refused because it is wrong writes nothing.
    size_t *actual_lengthp;
    // Where what was done with all elements of the request together is to be written, those of other headers, too, or NULL: the
    // receipts of the elements added up. asked and effective are IO_DEFAULT where elements have several, and reason is the first.
    struct io_receipt *totalp;
};

// One of a server's services.
struct io_service_mapping {
    // Its name, of at most 64 bytes, by which clients find its number.
    const char *name;
    // IO_READ, IO_WRITE, or both, or 0.
    uint32_t flags;
    // Where clients should let the data of inputs begin in its first granule; it counts if preferred_length does.
    size_t preferred_offset;
    // How many bytes of input come at once; 0 if clients may lay out their buffers as they like.
    size_t preferred_length;
};

// A reply.
struct io_reply_message {
    // The request.
    io_request_t request;
    // 0 for success, else an errno; then nothing is passed to the client's buffers.
    int error;
    // A sentence about the failure, or NULL.
    const char *error_text;
    // The argument that goes back, if this is a success. To another process about 128 KiB can go; a longer one fails the request there,
    // with EMSGSIZE.
    const void *argument;
    // Its bytes.
    size_t argument_length;
    // How many actual lengths follow: at most as many as there are buffers.
    size_t actualc;
    // For each buffer how many bytes were really passed. An input that was made ready, pinned, overlaid, linked to outboard data, or
    // forwarded in part, has to have one here, if only 0: a success without it is refused with EINVAL. SIZE_MAX is as good as none.
    const size_t *actualv;
};

// A buffer of a request, as its server sees it.
struct io_server_buffer {
    // IO_OUT: the server reads it. IO_IN: the server fills it.
    uint32_t direction;
    // Its bytes, or for an input, for how many there is room.
    size_t length;
    // How many segments it lies in; 0 for an input before io_ready, and for an output after io_keep or if the service has no IO_READ.
    size_t segc;
    // The segments. Outputs may not be stored into: that ends the program with SIGSEGV if the client is in another process.
    const struct io_segment *segv;
};

// What io_server brings.
struct io_message {
    // IO_NO_MESSAGE, IO_REQUEST, IO_ABORT, IO_DEPARTURE or IO_REPLIES.
    uint32_t what;
    // The service that is asked for.
    uint32_t service;
    // The request, for IO_REQUEST and IO_ABORT.
    io_request_t request;
    // The client, for IO_REQUEST and IO_DEPARTURE; no other client ever has the same number.
    uint64_t client;
    // The client's process, as the kernel says; for IO_REQUEST, like all that follows.
    uint32_t pid;
    // The client's user, as the kernel says.
    uint32_t uid;
    // The name that the client gives itself.
    const char *client_name;
    // The client's argument.
    const void *argument;
    // Its bytes.
    size_t argument_length;
    // For how long an argument the client has room in the reply.
    size_t room;
    // How many buffers there are.
    size_t bufc;
    // The buffers. They, and all else that this structure points to, stay where they are until the request is replied to.
    const struct io_server_buffer *bufv;
};

// How the buffers of a private pool are to be made. Set size to sizeof(struct io_pool_options) and all else to 0, and then what you need.
struct io_pool_options {
    // Bytes of this structure, by which later versions of the library know what it has.
    size_t size;
    // How many buffers there are, at least 1.
    size_t count;
    // How many bytes of data each has, at least 1.
    size_t length;
    // Where the data begins in its first granule: pages change places with those of clients' buffers that begin there, too. In a frame,
    // how many bytes lie in front of the data, which are the server's alone.
    size_t offset;
    // 0; or if the buffers are to be frames, which lie one behind the other in one memory object and never leave their places there, for a
    // device that is told of that memory once: how many bytes each takes, offset and length at least. Only frames whose length is a
    // multiple of the granule size change places with clients' memory.
    size_t stride;
    // Of how many frames clients may have the pages at a time. They come back when the client frees its buffer, or gets other data
    // there; until then the frame cannot be taken, and data in other frames is copied.
    size_t away;
};

// A private pool of overlay buffers, from io_pool_allocate; never 0.
typedef uint64_t io_pool_t;

// An overlay buffer out of its pool, from io_pool_take, or a part of one; never 0.
typedef uint64_t io_overlay_t;

// An overlay buffer that is out of its pool, or a part of one.
struct io_overlay_buffer {
    // Its name, by which it is overlaid or given back; never given twice.
    io_overlay_t overlay;
    // Its bytes, of whose values nothing is known: they may be other clients'.
    size_t length;
    // Where the bytes of a frame begin in the memory of io_pool_memory; SIZE_MAX if the buffer is no frame.
    size_t place;
    // How many segments the bytes lie in.
    size_t segc;
    // The segments. They stay where they are until the buffer is given back, cut, or made a part; and if it is overlaid, until that request is
    // replied to.
    const struct io_segment *segv;
};

// Data in a device's own memory. Set size to sizeof(struct io_outboard_data) and all else to 0, and then what you need.
struct io_outboard_data {
    // Bytes of this structure, by which later versions of the library know what it has.
    size_t size;
    // How many bytes of data there are.
    size_t length;
    // IO_NEVER_FAILS, or 0.
    uint32_t flags;
    // What transfer and free are called with.
    void *context;
    // Transfers the bytes from offset on to host memory, as many as the segments have; returns 0, or an errno, with which the request fails.
    // The memory is the device's for the time of the call only. There may be more than one call.
    int (*transfer)(void *context, size_t offset, size_t segc, const struct io_segment *segv);
    // Called once, when the data is needed no more; or NULL.
    void (*free)(void *context);
};

// A pin, from io_pin; never 0.
typedef uint64_t io_pin_t;

// Bytes that are pinned.
struct io_pinned_bytes {
    // The pin's name, for io_unpin; never given twice.
    io_pin_t pin;
    // How many segments the bytes lie in.
    size_t segc;
    // The segments, which go into an iovec, say. They and their bytes stay where they are until io_unpin.
    const struct io_segment *segv;
};

// What a network is to be. Set size to sizeof(struct io_network_options) and all else to 0, and then what you need.
struct io_network_options {
    // Bytes of this structure, by which later versions of the library know what it has.
    size_t size;
    // How often data is copied between the program and the card, each way: 0, packets are the card's own buffers; 1; or 2, by way of message
    // blocks.
    uint32_t copies;
    // IO_BY_SYSTEM_CALLS, IO_SUMMED, IO_REFLECTED, or 0.
    uint32_t flags;
    // With two copies: a header that is put in front of what is sent, and taken off what comes; what comes without it is dropped.
    const void *header;
    // Its length; 0 for none.
    size_t header_length;
};

// A network, from io_network_open; never 0.
typedef uint64_t io_network_t;

// A packet of a network, from io_network_allocate or io_network_receive; never 0.
typedef uint64_t io_packet_t;

// A packet, and where its bytes are.
struct io_packet {
    // The packet's number, for io_network_send and io_packet_free; never given twice.
    io_packet_t packet;
    // How many bytes it has.
    size_t length;
    // How many segments they lie in.
    size_t segc;
    // The segments. They and their bytes stay where they are until the packet is sent or freed.
    const struct io_segment *segv;
    // The Internet checksum of a packet that a network with IO_SUMMED has received: 0 if the packet's own is right.
    uint16_t checksum;
};

// What has become of a network's packets.
struct io_network_counters {
    // Packets that were sent, with those that wait in a queue.
    uint64_t sent;
    // Their bytes.
    uint64_t sent_bytes;
    // Packets that were received.
    uint64_t received;
    // Their bytes.
    uint64_t received_bytes;
    // Bytes that were copied on the way out, headers included.
    uint64_t copied_out;
    // Bytes that were copied on the way in.
    uint64_t copied_in;
    // System calls for the allocation and the release of buffers.
    uint64_t management_calls;
    // Packets that were dropped, since they were empty, or longer than 4,096 bytes with their header.
    uint64_t unfit;
};

// The interface's default scheme: emulated copy, unless io_set_scheme has changed it.
#define IO_DEFAULT 0

// Native: the data is copied.
#define IO_COPY 1

// Native: means what IO_COPY means, and copies no long data.
#define IO_EMULATED_COPY 2

// Native: the server works in the client's buffer, which is wired. Nobody may touch the buffer until the request is over.
#define IO_SHARE 3

// Native: means what IO_SHARE means, and wires nothing.
#define IO_EMULATED_SHARE 4

// Migrant: the buffer goes to the server, or comes from it.
#define IO_MOVE 5

// Migrant: means what IO_MOVE means, and keeps the region for reuse.
#define IO_EMULATED_MOVE 6

// Migrant: the buffer goes or comes, and the server may see later stores into it.
#define IO_WEAK_MOVE 7

// Migrant: means what IO_WEAK_MOVE means, and wires nothing.
#define IO_EMULATED_WEAK_MOVE 8

// A part of a buffer of a request that this program serves: subcontracting.
#define IO_FRAGMENT 9

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Gives the sentence about this thread's last failure: what was wrong, and what to do about it. It is valid until the thread's next
// failure, and empty if there was none.
const char *io_error_text(void);

// What an errno means when a call of this library has set it, in some words that are always valid. `strerror` says what it means
// elsewhere, and io_error_text says more.
const char *io_strerror(int error);

// Opens an interface of its own: memory that no server of another interface sees, and limits. If options is NULL, it has the
// defaults. Most programs use interface 0 and need not call this. Close it by io_close.
//
// The first time on a machine this takes about a second: what copying and protecting cost there is measured, and stored in
// $GENIE_CACHE_DIR, or ~/.cache/genie.
//
// Errors: EINVAL (options that are wrong; interfacep is NULL), ENOMEM, EMFILE.
//
// Pointers: options points to a structure of options->size bytes, or is NULL; interfacep is valid.
int io_open(const struct io_options *options,
            io_interface_t *interfacep);

// Closes an interface that io_open has opened. Its buffers and servers stay good until they are freed and disconnected, and its
// pending requests go on. If interface 0 is closed, the next call that names it opens it anew.
//
// Errors: EBADF, ECHILD.
int io_close(io_interface_t interface);

// Tells the thresholds of an interface for servers in this process.
//
// Errors: EBADF, ECHILD.
//
// Pointers: thresholdsp is valid.
int io_get_thresholds(io_interface_t interface, struct io_thresholds *thresholdsp);

// Changes the thresholds of an interface, for requests that are made from now on (thesis §13.1): to those of thresholds, where
// 0 is for what was measured on this machine, or all to that if it is NULL. They hold for servers in other processes, too.
//
// Errors: EBADF, ECHILD.
//
// Pointers: thresholds is valid or NULL.
int io_set_thresholds(io_interface_t interface,
                      const struct io_thresholds *thresholds);

// Changes how many bytes and requests of an interface may be pending. Unlike in io_open, 0 means none. A request that alone has more
// bytes than that is EINVAL from then on.
//
// Errors: EBADF, ECHILD.
int io_set_limits(io_interface_t interface,
                  size_t pending_bytes,
                  size_t pending_requests);

// Sets the scheme of elements with IO_DEFAULT, one of the native ones; returns the one that it was. So a program whose elements
// name no scheme can be switched, to IO_EMULATED_SHARE say (thesis §13.1).
//
// Errors: EBADF, ECHILD, EINVAL (no native scheme).
int io_set_scheme(io_interface_t interface,
                  io_scheme_t scheme);

// Writes a sentence or two to text, of length bytes: what the interface's memory is made of, and whether output can be protected. It
// ends with a zero, and is cut if it is longer. `genie doctor` says more of the machine. Returns the length of the whole text.
//
// Errors: EBADF, ECHILD.
//
// Pointers: so many bytes are at text.
int io_doctor(io_interface_t interface,
              char *text,
              size_t length);

// A descriptor for poll or epoll: after io_arm has returned 1, it is readable when a reply comes. It is the library's: do not read or
// close it.
//
// Errors: EBADF, ECHILD, EMFILE.
int io_descriptor(io_interface_t interface);

// Makes the descriptor become readable when the next reply comes. Returns 1, or 0 if there may be replies already: look for them by
// io_collect first.
//
// Errors: EBADF, ECHILD.
int io_arm(io_interface_t interface);

// Takes the replies that have come, for all threads; io_sync then finds them without waiting. Call it when the descriptor is
// readable. Returns how many requests were completed.
//
// Errors: EBADF, ECHILD.
int io_collect(io_interface_t interface);

// Connects an interface to a server in another process, by its name in the run-time directory ($GENIE_RUNTIME_DIR, or
// $XDG_RUNTIME_DIR/genie, or /tmp/genie-UID). Waits up to timeout nanoseconds for a server that is not there yet; with 0 it does not
// wait for that; but a server that is there, and stopped, is given 5 s to answer. Disconnect by io_disconnect.
//
// Errors: ENOENT (nobody serves under that name), EACCES (the server refuses; or the run-time directory cannot be used), EBUSY,
// EHOSTDOWN, EBADF, ECHILD, EINVAL (no name, or one that no server can have; serverp is NULL), ENOMEM, EMFILE.
//
// Pointers: name is a string, and serverp is valid.
int io_connect(io_interface_t interface,
               const char *name,
               int64_t timeout,
               io_server_t *serverp);

// Connects an interface to a server as io_connect does, with options; if they are NULL, they are the defaults.
//
// Errors: those of io_connect; EINVAL (options that are wrong).
//
// Pointers: name is a string; options points to a structure of options->size bytes, or is NULL; serverp is valid.
int io_connect_with(io_interface_t interface,
                    const char *name,
                    const struct io_connect_options *options,
                    io_server_t *serverp);

// Lets a server go that io_connect has connected to. Its pending requests go on.
//
// Errors: EBADF, ECHILD; EINVAL (it is served by this program: call io_server_unregister).
int io_disconnect(io_server_t server);

// Whether a server in another process has ended: 1 or 0.
//
// Errors: EBADF, ECHILD.
int io_is_gone(io_server_t server);

// The number of a server's service of this name, for io_request.
//
// Errors: ENOENT (the server has no such service), EBADF, ECHILD, EINVAL.
//
// Pointers: name is a string.
int io_service(io_server_t server, const char *name);

// Asks a server how an interface's input buffers should be laid out for requests of a service with this argument; stores the answer in
// *layoutp. Data passes as well, only more slowly, into buffers of another layout. Ask when you are about to lay out a buffer, and keep
// the answer until io_layout_is_stale: each question is a message to another process, and one back. The numbers are the server's word:
// check them before you allocate so much. Returns 1, or 0 if the layout makes no difference.
//
// Errors: EBADF, ECHILD, EINVAL (there is no such service, layoutp is NULL, or the argument is longer than 32 KiB and the server is in
// another process), EHOSTDOWN (the server does not answer within 5 s), ECONNRESET or EPIPE (it is gone).
//
// Pointers: so many bytes of argument are there as argument_length says; layoutp is valid.
int io_preferred(io_server_t server,
                 uint32_t service,
                 const void *argument,
                 size_t argument_length,
                 struct io_layout *layoutp);

// Whether a server may want another layout by now than it wanted when it was asked: 1 or 0. This asks nobody.
//
// Errors: EBADF, ECHILD, EINVAL (layoutp is NULL).
//
// Pointers: layoutp is valid.
int io_layout_is_stale(io_server_t server, const struct io_layout *layoutp);

// Allocates a native buffer of length bytes, all zero, and returns its address; NULL on failure. Data in such buffers can be passed
// without copying. Free it by io_free.
//
// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
void *io_allocate(io_interface_t interface,
                  size_t length);

// Allocates a native buffer as io_allocate does, whose first byte lies offset bytes into a granule: as io_preferred says that a
// server wants it.
//
// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
void *io_allocate_at(io_interface_t interface,
                     size_t offset,
                     size_t length);

// Allocates a migrant buffer of length bytes, all zero, for IO_MOVE and IO_EMULATED_MOVE, or if strong is 0 for the weak ones;
// returns its address, or NULL on failure. It is gone once a request has passed it; else free it by io_free.
//
// Errors: EBADF, ECHILD, EINVAL (length is 0), ENOMEM.
void *io_allocate_migrant(io_interface_t interface,
                          size_t length,
                          int strong);

// Frees a buffer, or what io_keep has kept, by its first address. NULL is freed by doing nothing.
//
// Errors: EFAULT (no buffer begins there; it was freed before, or passed), EBUSY (a request uses it; nothing has changed).
int io_free(void *buffer);

// Makes a request of a server (thesis §7.1): asks for one of its services, with the buffers whose headers bufv points to.
//
// timeout is in nanoseconds; IO_FOREVER (or any negative time) is for as long as the interface's limits allow. A request that has
// no reply by then is aborted and fails with ETIMEDOUT; one for which the limits have left no room until then fails with EAGAIN.
//
// If requestp is NULL, the request is synchronous: the call waits for the reply, and while the limits leave no room, for room.
// Otherwise the call returns at once with IO_PENDING, and *requestp is the request's name, for io_sync or io_abort, one of which
// has to follow. Where the limits leave no room then, it fails with EAGAIN.
//
// Until the request is over (a synchronous one when this call returns, another one when io_sync or io_abort says so):
// - headers, lists, receipts, and what else they point to but for data and out_arg, stay where they are, and are the library's;
// - data of outputs by IO_COPY and IO_EMULATED_COPY may be stored into and freed as soon as this call returns; the server gets what
//   was there when the request was made. With IO_HELD nobody may store into it before the call returns, and with IO_OWNED
//   nobody may touch it until the request is over;
// - data of inputs may not be touched, and what is there before success is what was there when the request was made;
// - data under IO_SHARE and IO_EMULATED_SHARE may not be touched. After a failure an input's is undefined, and a server that is late may
//   still store there: free the buffer, and allocate another one;
// - buffers that are given by value (IO_OWNED) may not be touched, and are the caller's again afterwards: see there;
// - migrant buffers of outputs are gone. After a failure they are back, and their segments say where.
//
// io_free refuses buffers that the request still uses. One buffer may be output and input of the same request, by copy and emulated copy.
//
// Returns 0 (success), IO_PENDING, or -1 with errno set; then nothing was passed, and io_error_text says why.
//
// The arguments for a server in another process have about 128 KiB; longer ones are EINVAL.
//
// Errors: EBADF and ECHILD (there is no such server, or it is the parent process's), EINVAL (a header, list or scheme is wrong, the
// server has no such service, or the service needs access to a buffer that it has not declared), EFAULT (a null address; or a migrant
// element names no migrant buffer, or one with IO_OWNED no buffer of io_allocate), EBUSY (another request uses the migrant buffer, or the
// one that is given by value, or was given it), EAGAIN, ETIMEDOUT, ECONNRESET and EPIPE (the
// server has ended; with EPIPE it was never asked), EMSGSIZE (the reply's argument is longer than its room), ENOMEM, EREMOTEIO, or
// the errno with which the server has replied: then io_error_text says so.
//
// Pointers: as above.
int io_request(io_server_t server,
               uint32_t service,
               size_t bufc,
               struct io_buffer_header *const *bufv,
               int64_t timeout,
               io_request_t *requestp);

// Waits until the server has completed all earlier requests of this program to it, those that it has replied to in anticipation
// included: then their output buffers can be reused without faults. Returns 0, or -1 with ETIMEDOUT when the time is over.
//
// Errors: EBADF, ECHILD, ETIMEDOUT.
int io_flush(io_server_t server,
             int64_t timeout);

// Waits for the reply to a request, at most for timeout nanoseconds (0 looks only, IO_FOREVER waits as long as it takes), and
// delivers its data (thesis §7.1). delivery is one of
// - IO_NORMAL: data goes to the buffers of the request; bufc and bufv are ignored.
// - IO_PEEKED: data of each native input element is copied to the corresponding native element of bufv's input headers, as much as
//   fits, and the headers' actual lengths say how much. The request stays pending.
// - IO_REDIRECTED: native input elements by copy or emulated copy are replaced by those of bufv's input headers, in order. Where there
//   are fewer of those, the rest goes where the request said. The request's own headers say how much came.
//
// Returns IO_PENDING if there is no reply yet; the request then goes on. Returns 0 if the request has succeeded, or -1 if it has
// failed (or was named wrongly): unless data was peeked at, its name is of no more use, and its headers and buffers are the caller's.
// If several threads wait for one request, one of them gets its result, and the others EBADF.
//
// Errors: EBADF, ECHILD; EINVAL (no such delivery; an input element of bufv that is not native; or a buffer to which data is redirected is
// shorter than the data, which is lost); as for io_request.
//
// Pointers: the headers, lists and buffers are as io_request says.
int io_sync(io_request_t request,
            uint32_t delivery,
            size_t bufc,
            struct io_buffer_header *const *bufv,
            int64_t timeout);

// Waits until more than beyond bytes of a buffer of a pending request are final, as its server tells by io_progress, or the reply is
// there; at most for timeout nanoseconds (0 looks only, IO_FOREVER waits as long as it takes). *lengthp, if lengthp is not NULL, is how
// many are final then; with the reply, how many were passed, or if the request has failed, how far it had come. Buffers are numbered
// from 0, as the server sees them: headers without elements do not count.
//
// This is a number, and brings no data: the request's buffers stay the library's until io_sync or io_abort ends it. Only where the server
// works in the client's buffer (IO_SHARE and IO_EMULATED_SHARE, in memory of io_allocate, at a server that was not connected to by
// IO_UNTRUSTED) do the final bytes of an input lie there already, where the client may read them.
//
// Returns IO_PENDING if there is no reply yet, or 0 if there is: then io_sync does not wait. A client that has enough of what is final
// gives up the rest by io_abort.
//
// Errors: EBADF, ECHILD, EINVAL (the request has no such buffer).
//
// Pointers: lengthp is valid or NULL.
int io_wait_for_progress(io_request_t request,
                         size_t buffer,
                         size_t beyond,
                         int64_t timeout,
                         size_t *lengthp);

// Aborts a request: asks its server to let it go, and waits until the server has, at most for the interface's abort_timeout. The
// request's name is of no more use then, and its headers and buffers are the caller's; if other threads wait for it in io_sync, one
// of these gets the result in this call's place.
//
// Returns 0 if the request was aborted, or had failed. Then errno and io_error_text say why, as after io_sync: ECANCELED if it was aborted,
// EBADF if another thread gets the result. Returns 1 if the request has succeeded, and its data has been delivered: all of it if the
// reply was on its way, or what was final (io_wait_for_progress), where its server has let the rest go in time. The actual lengths say
// how much. Or returns -1.
//
// Errors: EBADF, ECHILD.
//
// Pointers: as for io_sync.
int io_abort(io_request_t request);

// Begins a batch: of the requests that this thread makes from now on without waiting for them, servers in other processes are told
// together, so that one that sleeps is woken once for up to 32 of them. A server that is awake may begin with each at once.
//
// A sleeping server is woken when the batch ends, and before this thread looks or waits for a reply of that server. Before it waits for what
// another thread does with the replies, end the batch. A thread that ends, ends its batch. A channel that io_disconnect is to close stays
// open until no batch has requests for it.
//
// Returns 0, or -1.
//
// Errors: EBUSY (this thread has begun one that has not ended), EINVAL (the thread is about to end, and calls this as it is torn down).
int io_begin_batch(void);

// Ends the batch that this thread has begun: servers that sleep are woken for what they were asked in it.
//
// Returns 0, or -1.
//
// Errors: EINVAL (this thread has begun none).
int io_end_batch(void);

// Makes this program a server (thesis §7.2), with number_services services, which are numbered from 0. If name is not NULL, clients
// in other processes find the server by it (io_connect). This program can make requests of it by *serverp in any case.
//
// pool_size is how many bytes of the server's memory each client is lent at first, for inputs and for data that is copied; 0 for 16 MiB.
// Give as much as one client has in flight at once.
//
// The server's messages come by io_server. A device, as the thesis has it, is not among the arguments, since Genie drives none; the
// server's private pool is made by io_pool_allocate.
//
// Errors: EINVAL (a name, flag or size is wrong, there are more than 256 services, or serverp is NULL), EADDRINUSE (the name is taken),
// EACCES (the run-time directory cannot be used), ENOMEM, EMFILE.
//
// Pointers: so many services are there as number_services says; strings end with zeros; serverp is valid.
int io_server_register(const char *name,
                       size_t number_services,
                       const struct io_service_mapping *service_mappingv,
                       size_t pool_size,
                       io_server_t *serverp);

// Ends a server of this program. Its clients see it hang up. Requests that no message has brought fail, and threads that wait in
// io_server return with ECANCELED. Requests that messages have brought stay held, since threads may be at work in their buffers: reply to
// each of them, as before, by io_server, which then returns with ECANCELED. Clients in this program wait for that reply.
//
// Errors: EBADF, ECHILD, EINVAL (it is a server in another process: call io_disconnect).
int io_server_unregister(io_server_t server);

// Replies to a request, and brings the server's next message (thesis §7.2). First out_msg is sent, if it is not NULL. Then the next
// message is stored in in_msg, if that is not NULL. If there is none, the call waits for one if blocking is not 0, and says
// IO_NO_MESSAGE otherwise. A signal does not end the wait. Requests of clients in other processes are taken by this call alone: while a
// program does something else, they wait. Clients connect and leave meanwhile. Several threads may call it at the same time.
//
// A request that came may be replied to at once or later, in any order, by any thread; until then its buffers are the server's. A
// server that wants to make requests of its own calls io_request.
//
// Returns 0, or -1. If out_msg was refused, nothing was sent, no message was taken, and the request is still held; but with EMSGSIZE the
// client was told that its room is too short, and the request is over.
//
// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (an actual length or direction is wrong, or an input that
// was made ready has no actual length; or the server is in another process), EMSGSIZE, ECANCELED (the server has been unregistered;
// out_msg was sent all the same).
//
// Pointers: the messages, and what out_msg points to, are valid.
int io_server(io_server_t server,
              const struct io_reply_message *out_msg,
              struct io_message *in_msg,
              int blocking);

// Replies to a request with success in anticipation: its client goes on, while the server still reads the outputs (thesis §1.1.2).
// The message says what it says to io_server. The request stays held, for its outputs alone, until io_server gets a reply to it,
// of which nothing else counts. Until then stores by the client are not seen; io_flush waits for that at the client's.
//
// Returns 0, or -1; then nothing was sent, and the request is held as before.
//
// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (the client awaits inputs, or buffers that it gave by value;
// the request was replied to in anticipation before; error is not 0; or an actual length is wrong), EMSGSIZE.
//
// Pointers: reply, and what it points to, are valid.
int io_anticipate(io_server_t server,
                  const struct io_reply_message *reply);

// Has a server of this program wait for an interface's replies, too: for a program that is server and client in one loop. From now on,
// when replies to requests of the interface come, io_server brings IO_REPLIES, even if it waits, and the descriptor of
// io_server_descriptor becomes readable. io_collect and io_arm need not be called for the interface then. To watch the same
// interface again does nothing.
//
// Errors: EBADF, ECHILD, EINVAL (the server is in another process), EMFILE.
int io_server_watch(io_server_t server,
                    io_interface_t interface);

// Changes how a server of this program wants clients to lay out input buffers for a service: as *layoutp says, of which changes does
// not count, or if layoutp is NULL or its length is 0, as they like. Clients that have asked (io_preferred) are told that their answers
// are stale.
//
// Errors: EBADF, ECHILD, EINVAL (there is no such service, or the server is in another process).
//
// Pointers: layoutp is valid or NULL.
int io_server_prefer(io_server_t server,
                     uint32_t service,
                     const struct io_layout *layoutp);

// Makes an input buffer of a request ready to be filled: from now on the message's bufv has its segments. Until then a request holds no
// memory for its input. The reply has to say how many bytes of it came.
//
// Errors: EBADF, ECHILD, EINVAL (it is no input, or the service has no IO_WRITE), ENOMEM.
int io_ready(io_server_t server,
             io_request_t request,
             size_t buffer);

// Tells the client of a request that is held, before the reply, that the first length bytes of a buffer are final (thesis §6.5): of an
// input, they are stored and stay what they are; of an output, the server is done with them. To be called again with more as more is;
// the same number again tells nothing. Stores into the rest of an input go on as before.
//
// The client gets the number by io_wait_for_progress. If it gives the request up by io_abort, and the server replies to IO_ABORT with
// ECANCELED, the request succeeds with what is final; one whose time is over fails all the same. A reply of success may say no less in
// its actual lengths; where it says nothing of the buffer, what is final passes. A server that has forwarded a part of an input
// (IO_FRAGMENT) replies with success to pass what has come, if the request that it made of the part has succeeded: its ECANCELED may be
// that request's error, and passes nothing.
//
// This costs a lock, and a message to a client in another process: tell of steps that take some tens of microseconds or more.
//
// Errors: EBADF, ECHILD, EINVAL (there is no such buffer, or it is shorter; it is an input that was not made ready; more of it was
// final before; or the request was replied to in anticipation), EBUSY (another thread is in io_keep or io_outboard with the request).
int io_progress(io_server_t server,
                io_request_t request,
                size_t buffer,
                size_t length);

// Makes an output of a request memory of the server's own, which nobody else sees or changes, and which the server may change: after
// the reply, too, and when the client has left. *keptp says where it is, as many bytes as the buffer has; NULL if it has none. Free it by
// io_free. It can be passed in requests, but not by IO_OWNED or the schemes of migrant buffers. From now on the message's bufv has no
// segments of the output, and what they pointed to may not be used any more.
//
// Data that the kernel has copied already, on an untrusted channel, stays where it is, unless it is short. All other data is copied once.
// A server may keep 256 MiB of each client's data at a time, and of a client in this program 1 GiB.
//
// Returns 1 if the data was copied, 0 if it was not; or -1, and then nothing has changed.
//
// Errors: EBADF, ECHILD, EINVAL (it is no output, it was kept before, keptp is NULL, or the service has no IO_READ), EDQUOT (the server
// keeps too much of this client's data, or of all clients'), EBUSY (another thread is in io_keep or io_outboard with the request), ENOMEM.
//
// Pointers: keptp is valid.
int io_keep(io_server_t server,
            io_request_t request,
            size_t buffer,
            void **keptp);

// Whether a request that is held is being aborted: 1 or 0.
//
// Errors: EBADF, ECHILD, EINVAL.
int io_is_aborted(io_server_t server, io_request_t request);

// A descriptor for poll or epoll: once io_server has said IO_NO_MESSAGE, it is readable when there may be a message. It is the
// library's: do not read or close it.
//
// Errors: EBADF, ECHILD, EINVAL.
int io_server_descriptor(io_server_t server);

// Allocates a private pool (thesis §7.2) of count buffers of a server's own, into which data comes before a request asks for it, as into
// a network adapter's (thesis §6.1). io_pool_take takes a buffer, io_overlay puts it in the place of a client's. Free the pool by
// io_pool_free.
//
// Pages change places only with those of clients in this program, whose requests are interface 0's; so make the pool of interface 0. All
// other clients, and all that ask by IO_COPY, get a copy. Tell clients by io_server_prefer, with the offset and length of the pool, how to lay
// out their buffers. Servers in other processes that this program makes requests of are shown whole memory objects, in which a pool of the same
// interface may lie, too: where these must not see what comes, make the pool of an interface of its own (io_open), from which all is copied.
//
// Errors: EBADF, ECHILD, EINVAL (a count or length is 0, a frame is shorter than what it holds, or poolp or options is NULL), ENOMEM, EIO
// (there are no addresses for so many frames).
//
// Pointers: options points to a structure of options->size bytes; poolp is valid.
int io_pool_allocate(io_interface_t interface,
                     const struct io_pool_options *options,
                     io_pool_t *poolp);

// Frees a private pool. Its buffers that are out, or overlaid, stay good, and are freed when they would come back.
//
// Errors: EBADF (there is no such pool, or it was freed), ECHILD.
int io_pool_free(io_pool_t pool);

// How many buffers of a pool are free. It may be fewer than were given back: of some, clients have the pages (io_pool_options, away).
//
// Errors: EBADF, ECHILD.
int io_pool_available(io_pool_t pool);

// Where the memory of a pool of frames is, the whole object from its first frame on: to be told to a device, or to the kernel. Whoever has
// been told of it sees what a client stores into pages that it has got from a frame.
//
// Errors: EBADF, ECHILD, EINVAL (the pool is none of frames, or memoryp is NULL).
//
// Pointers: memoryp is valid.
int io_pool_memory(io_pool_t pool,
                   struct io_segment *memoryp);

// Takes a buffer out of a pool, the one that came back last, to be filled: *bufferp says where its bytes are. Then pass it by io_overlay, or
// give it back by io_overlay_return.
//
// Errors: EBADF, ECHILD, EAGAIN (no buffer is free), EINVAL (bufferp is NULL).
//
// Pointers: bufferp is valid.
int io_pool_take(io_pool_t pool,
                 struct io_overlay_buffer *bufferp);

// Makes a buffer, or a part of one, its length bytes from byte offset on, which are all that is passed: what came behind a packet's header,
// say. *bufferp, of which only the name counts, is changed to say what is left.
//
// Errors: EBADF (there is no such buffer, or it was given back, or overlaid), ECHILD, EINVAL (it has fewer bytes; or bufferp is NULL).
//
// Pointers: bufferp is valid.
int io_overlay_part(struct io_overlay_buffer *bufferp,
                    size_t offset,
                    size_t length);

// Cuts a buffer, or a part of one, in two, for different elements or requests: the first at bytes keep its name, and *restp says what the rest
// is. *bufferp, of which only the name counts, is changed. The buffer is back in its pool when all parts are.
//
// Errors: EBADF, ECHILD, EINVAL (it has fewer bytes; or a pointer is NULL).
//
// Pointers: bufferp and restp are valid.
int io_overlay_cut(struct io_overlay_buffer *bufferp,
                   size_t at,
                   struct io_overlay_buffer *restp);

// Gives an overlay buffer, or a part of one, back to its pool without passing it.
//
// Errors: EBADF (there is no such buffer, or it was given back before, or overlaid), ECHILD.
int io_overlay_return(io_overlay_t overlay);

// How many elements a buffer of a request has, as the client has made them. *lengthp, if lengthp is not NULL, is how long the one with this
// number is, from 0 on; 0 if there is none: for a server that overlays each with buffers of its own.
//
// Errors: EBADF, ECHILD, EINVAL (there is no such buffer, or the request was replied to in anticipation), EBUSY (another thread is in io_keep or
// io_outboard with the request).
//
// Pointers: lengthp is valid or NULL.
int io_elements(io_server_t server,
                io_request_t request,
                size_t buffer,
                size_t element,
                size_t *lengthp);

// Overlays buffers of the server's own on an element of an input of a request, in place of io_ready (thesis §7.4.3): the client gets their
// data, that of the first, then that of the second, and so on. Elements are numbered from 0, as the client has
// made them; an input of which the client has made one has element 0 alone. The reply has to say how many bytes of the input came.
//
// The buffers' names are of no use afterwards. Their bytes may still be stored until the reply, io_ready for the input, or io_progress that
// calls them final. When the request is over, they are back in their pools.
//
// Errors: EBADF (there is no such server, request or buffer, or a buffer is named twice), ECHILD, EINVAL (it is no input, or has no such
// element; the element was made ready, overlaid, linked or forwarded before; or there are no buffers, or too many), EBUSY (another
// thread is in io_keep or io_outboard with the request). Then nothing has changed, and the buffers are still the program's.
//
// Pointers: so many names are there as overlayc says.
int io_overlay(io_server_t server,
               io_request_t request,
               size_t buffer,
               size_t element,
               size_t overlayc,
               const io_overlay_t *overlayv);

// Links data in a device's own memory to an element of an input of a request, in place of io_ready (thesis §7.4.4): it is transferred when
// the client takes the reply, to where that client gets it, or sooner where the scheme or the client's place demands that. Elements are
// numbered from 0, as the client has made them; an input of which the client has made one has element 0 alone. The reply has to say how
// many bytes of the input came.
//
// *data is copied. Its functions are called in any thread, the client's included, and while the library holds locks: they call no function
// of the library's, and leave by returning.
//
// Errors: EBADF (there is no such server or request), ECHILD, EINVAL (it is no input, or has no such element; the element was made ready,
// overlaid, linked or forwarded before; or a size or flag is wrong, or data or its transfer is NULL), EBUSY (another thread is in
// io_keep or io_outboard with the request), EIO (the transfer failed), ENOMEM. Then the data is still the program's, and free is not called.
//
// Pointers: data points to a structure of data->size bytes; its functions and what they use stay until free is called.
int io_outboard(io_server_t server,
                io_request_t request,
                size_t buffer,
                size_t element,
                const struct io_outboard_data *data);

// Pins length bytes of a buffer of a request, from byte offset on, to be used apart from the request: an output's to be read, an input's
// to be filled, by another thread or an operation in flight. *pinnedp says where they are. An input is made ready, as by io_ready.
//
// The server may reply first, and the client may give up, or end: until io_unpin the bytes stay where they are. The client gets the
// reply when the last pin of its request has been let go. The reply has to say how many bytes of an input came.
//
// Errors: EBADF (no such server, or it holds no such request), ECHILD, EINVAL (there is no such buffer, or it is shorter, or was kept; the
// service may not access it; the request was replied to in anticipation; or pinnedp is NULL), EBUSY (another thread is in io_keep or
// io_outboard with the request), ENOMEM.
//
// Pointers: pinnedp is valid.
int io_pin(io_server_t server,
           io_request_t request,
           size_t buffer,
           size_t offset,
           size_t length,
           struct io_pinned_bytes *pinnedp);

// Lets pinned bytes go, which may not be used any more. If the server has replied, and this was the last pin of the request, the client gets
// the reply now.
//
// Errors: EBADF (there is no such pin, or it was let go before), ECHILD.
int io_unpin(io_pin_t pin);

// Works as a card's device, for the host at the other end of a socket, until that has gone; so the device can be a process of its own. The
// socket is one end of a socketpair of AF_UNIX and SOCK_SEQPACKET, and is the library's from then on.
//
// Errors: EBADF, EINVAL (it is no such socket), EPROTO (the host has broken the rules), EPIPE (the host had gone), ENOMEM, EMFILE.
//
// Pointers: none; the descriptor is used by nobody else any more, also where the call fails.
int io_card_serve(int host);

// Opens a network over a card. Its device is at the other end of a socket, in io_card_serve; or with -1, in a thread of this process.
// The socket is the library's from then on, also where the call fails. Close the network by io_network_close.
//
// Errors: EBADF, EINVAL (the descriptor is no such socket; options that are wrong; or networkp is NULL), EFAULT (there is no header),
// ETIMEDOUT (there is no device, after 10 s), EPROTO (what is there is none), ENODEV, EAGAIN, ENOMEM, EMFILE.
//
// Pointers: options points to a structure of options->size bytes, with a header of its length or NULL; networkp is valid.
int io_network_open(int device,
                    const struct io_network_options *options,
                    io_network_t *networkp);

// Closes a network. Packets that the program still has stay good to be read and freed; its card ends with the last of them.
//
// Errors: EBADF (there is no such network, or it was closed before), ECHILD.
int io_network_close(io_network_t network);

// Allocates a packet of length bytes, 1 to 4,096, which are whatever they are. The program fills them where *packetp says that they
// are, and then sends the packet or frees it. A network has 128 packets to be sent.
//
// Errors: EAGAIN (all of the network's packets are in use: see io_network_wait), EBADF, ECHILD, EINVAL (there is no such length; or packetp is
// NULL), ENODEV (the device has gone), EPROTO (it breaks the rules).
//
// Pointers: packetp is valid.
int io_network_allocate(io_network_t network,
                        size_t length,
                        struct io_packet *packetp);

// Sends a packet, which is the network's then: its number and its bytes are of no use to the program. At checksum_at, an even place, its
// Internet checksum is stored in two bytes, which count as zeros, while it is copied where it is; IO_NO_CHECKSUM stores none.
//
// A packet that the network cannot send from where it lies is copied once more: another network's, or one that a network without copies has
// received. With two copies, a packet that finds no room in the card waits in a queue, and goes on when the program sends, receives,
// waits or flushes; a network that is closed loses it.
//
// Errors: EAGAIN (there is no room: see io_network_wait), EBADF (there is no such network or packet, or it was sent or freed before), ECHILD,
// EINVAL (there are no two bytes at checksum_at), ENODEV, EPROTO. The packet is still the program's.
int io_network_send(io_network_t network,
                    io_packet_t packet,
                    int64_t checksum_at);

// Receives the next packet, and waits for one at most timeout nanoseconds, or with IO_FOREVER as long as it takes. The program reads it where
// *packetp says that it is, and frees it by io_packet_free, or sends it. A program that keeps 128 packets receives no more.
//
// Errors: EAGAIN (none came in time), EBADF, ECHILD, EINVAL (packetp is NULL), ENODEV (the device has gone), EPROTO (it breaks the rules).
//
// Pointers: packetp is valid.
int io_network_receive(io_network_t network,
                       int64_t timeout,
                       struct io_packet *packetp);

// Waits until the card has all that was sent, at most timeout nanoseconds, or IO_FOREVER. With two copies, what finds no room in the card
// waits in a queue, and a network that is closed loses its queue; with fewer copies nothing waits.
//
// Errors: ETIMEDOUT (some still waits), EBADF (no such network), ENODEV, EPROTO (the card is gone), ECHILD.
//
// Pointers: none.
int io_network_flush(io_network_t network,
                     int64_t timeout);

// Waits until a packet may have come, or there may be room, at most timeout nanoseconds, or with IO_FOREVER as long as it takes. It is for a
// thread that has just found neither, and may return sooner.
//
// Errors: EBADF, ECHILD.
int io_network_wait(io_network_t network,
                    int64_t timeout);

// Frees a packet that was allocated or received. Its bytes may not be used any more.
//
// Errors: EBADF (there is no such packet, or it was sent or freed before), ECHILD.
int io_packet_free(io_packet_t packet);

// Says what has become of a network's packets so far.
//
// Errors: EBADF, ECHILD, EINVAL (countersp is NULL).
//
// Pointers: countersp is valid.
int io_network_count(io_network_t network, struct io_network_counters *countersp);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GENIE_H */
