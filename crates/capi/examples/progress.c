/* Progress: a server tells how much of an input is final before it has all of it, and a client that has enough gives up the rest.
 *
 *     progress
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <genie.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 64 << 20, STEP = 1 << 20, ENOUGH = 5 << 20, THREADS = 2 };

/* A call of the library's that must succeed. */
static int must(int returned, const char *call) {
    if (returned < 0) {
        fprintf(stderr, "%s: %s\n", call, io_error_text());
        exit(1);
    }
    return returned;
}
#define MUST(call) must(call, #call)

/* The server: counts from 0 to 255, again and again, until the input is full or nobody wants the rest. */

static io_server_t server;

static size_t count(const struct io_message *message) {
    size_t done = 0;
    for (size_t i = 0; i < message->bufv[0].segc; i++) {
        const struct io_segment *segment = &message->bufv[0].segv[i];
        for (size_t at = 0; at < segment->length; at++) {
            ((unsigned char *)segment->addr)[at] = (unsigned char)done++;
            if (done % STEP != 0)
                continue;
            MUST(io_progress(server, message->request, 0, done));
            if (MUST(io_is_aborted(server, message->request)))
                return done;
        }
    }
    return done;
}

/* The loop of each of the server's threads. While one counts, another one takes messages: else it would not be heard that a client in
 * another process gives up. */
static void *serve(void *nothing) {
    struct io_message message;
    while (io_server(server, NULL, &message, 1) == 0) {
        if (message.what != IO_REQUEST)
            continue; /* IO_ABORT, too: the thread that counts asks io_is_aborted */
        MUST(io_ready(server, message.request, 0));
        size_t done = count(&message);
        struct io_reply_message reply = {.request = message.request, .actualc = 1, .actualv = &done};
        if (done < message.bufv[0].length)
            reply.error = ECANCELED; /* the client gets what is final, and no more */
        MUST(io_server(server, &reply, NULL, 0));
    }
    return nothing;
}

/* The client. */
int main(void) {
    static const struct io_service_mapping service = {.name = "count", .flags = IO_WRITE};
    pthread_t threads[THREADS];
    MUST(io_server_register(NULL, 1, &service, 0, &server));
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, serve, NULL) != 0)
            return 1;

    unsigned char *bytes = io_allocate(0, LENGTH);
    MUST(bytes ? 0 : -1);
    size_t come = 0, actual = 0;
    struct io_scatter_gather room = {.scheme = IO_EMULATED_COPY, .length = LENGTH};
    room.location.native.addr = bytes;
    struct io_buffer_header in = {.direction = IO_IN, .first_sg = &room, .actual_lengthp = &actual};
    struct io_buffer_header *buffers[] = {&in};
    io_request_t request;
    MUST(io_request(server, 0, 1, buffers, IO_FOREVER, &request));
    /* Until more has come than before, or the reply is there. */
    while (come < ENOUGH && MUST(io_wait_for_progress(request, 0, come, IO_FOREVER, &come)) == IO_PENDING)
        printf("%zu bytes are final\n", come);
    int has_succeeded = MUST(io_abort(request));
    printf("%s: %zu of %d bytes came\n", has_succeeded ? "success" : io_error_text(), actual, LENGTH);

    int is_right = has_succeeded && actual >= ENOUGH;
    for (size_t i = 0; i < LENGTH; i++)
        is_right &= bytes[i] == (i < actual ? (unsigned char)i : 0); /* what was not final was not touched */
    MUST(io_free(bytes));
    MUST(io_server_unregister(server));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (!is_right)
        fprintf(stderr, "the bytes are not what they should be\n");
    return !is_right;
}
