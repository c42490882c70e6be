/* Requests of one thread that is client and server: it makes one, takes it, and replies to it. */
#ifndef REQUESTED_H
#define REQUESTED_H

#include "check.h"

static inline unsigned char byte(size_t index, unsigned seed) { return (unsigned char)(index * 7 + index / 251 + seed); }

/* Stores bytes, of which the first is byte `from`, into segments. */
static inline void store(size_t segc, const struct io_segment *segv, size_t from, unsigned seed) {
    for (size_t i = 0; i < segc; i++)
        for (size_t j = 0; j < segv[i].length; j++)
            ((unsigned char *)segv[i].addr)[j] = byte(from++, seed);
}

static inline int has(const unsigned char *bytes, size_t from, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != byte(from + i, seed))
            return 0;
    return 1;
}

/* The next request. */
static inline struct io_message next(io_server_t server) {
    struct io_message message;
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_REQUEST);
    return message;
}

/* Makes a request of one buffer, which the server then holds. */
static inline struct io_message held(io_server_t server, struct io_buffer_header *header) {
    io_request_t request;
    CHECK(io_request(server, 0, 1, &header, IO_FOREVER, &request) == IO_PENDING);
    const struct io_message message = next(server);
    CHECK(message.request == request);
    return message;
}

/* Replies with so much of buffer 0. */
static inline void reply(io_server_t server, io_request_t request, size_t actual) {
    struct io_reply_message reply = {.request = request, .actualc = 1, .actualv = &actual};
    OK(io_server(server, &reply, NULL, 0));
}

/* Replies, and takes the reply. */
static inline void replied(io_server_t server, io_request_t request, size_t actual) {
    reply(server, request, actual);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
}

#endif
