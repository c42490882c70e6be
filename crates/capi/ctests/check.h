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
