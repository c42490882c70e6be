/* Checks that stop a test and say where, and requests in few lines. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <genie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, io_error_text()); \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

/* The call fails with this errno, and says why. */
#define FAILS(error, call)                                                                                \
    do {                                                                                                  \
        errno = 0;                                                                                        \
        int returned_ = (call);                                                                           \
        if (returned_ != -1 || errno != (error) || !*io_error_text()) {                                   \
            fprintf(stderr, "%s:%d: %s returned %d with errno %d, not %d: %s\n", __FILE__, __LINE__, #call, \
                    returned_, errno, (error), io_error_text());                                          \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define OK(call) CHECK((call) == 0)

/* Under valgrind, which makes programs many times slower, tests use short data only. */
static inline int is_brief(void) { return getenv("GENIE_TEST_BRIEF") != NULL; }

/* Copies a buffer of a request's to `to`; returns its length. */
static inline size_t gather(const struct io_server_buffer *buffer, unsigned char *to) {
    size_t done = 0;
    for (size_t i = 0; i < buffer->segc; i++) {
        memcpy(to + done, buffer->segv[i].addr, buffer->segv[i].length);
        done += buffer->segv[i].length;
    }
    return done;
}

/* Copies bytes to a buffer of a request's from `offset` on, as many as fit; returns how many these are. */
static inline size_t scatter(const struct io_server_buffer *buffer, size_t offset, const unsigned char *from, size_t length) {
    size_t done = 0;
    for (size_t i = 0; i < buffer->segc && done < length; i++) {
        size_t room = buffer->segv[i].length;
        if (offset >= room) {
            offset -= room;
            continue;
        }
        size_t part = room - offset < length - done ? room - offset : length - done;
        memcpy((unsigned char *)buffer->segv[i].addr + offset, from + done, part);
        done += part;
        offset = 0;
    }
    return done;
}

/* A buffer of one native element. */
struct native {
    struct io_buffer_header header;
    struct io_scatter_gather element;
    struct io_receipt receipt;
    size_t actual;
};

static inline struct io_buffer_header *native(struct native *buffer, uint32_t direction, io_scheme_t scheme, void *addr,
                                              size_t length) {
    memset(buffer, 0, sizeof *buffer);
    buffer->element.scheme = scheme;
    buffer->element.location.native.addr = addr;
    buffer->element.length = length;
    buffer->element.receiptp = &buffer->receipt;
    buffer->header.first_sg = &buffer->element;
    buffer->header.direction = direction;
    buffer->header.actual_lengthp = &buffer->actual;
    return &buffer->header;
}

#endif
