/* A server of texts. It has two services: "reverse" gives a text back with its bytes in reverse order, and "digest" replies with
 * the number of its bytes and lines.
 *
 *     server NAME        serves under NAME until SIGINT or SIGTERM comes
 *     client NAME reverse|digest [FILE]
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <genie.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { REVERSE, DIGEST }; /* the services, by their places: */
static const struct io_service_mapping services[] = {
    {.name = "reverse", .flags = IO_READ | IO_WRITE}, /* reads outputs, fills inputs */
    {.name = "digest", .flags = IO_READ},
};

/* A buffer may lie in several segments. This one is read from its first byte on, and `to` is filled from its last one on. */
static size_t reverse(const struct io_server_buffer *from, const struct io_server_buffer *to) {
    size_t segment = 0, at = 0, done = 0;
    for (size_t i = to->segc; i-- > 0;) {
        unsigned char *bytes = to->segv[i].addr;
        for (size_t j = to->segv[i].length; j-- > 0; at++, done++) {
            for (; at == from->segv[segment].length; at = 0)
                segment++;
            bytes[j] = ((const unsigned char *)from->segv[segment].addr)[at];
        }
    }
    return done;
}

static size_t lines(const struct io_server_buffer *text) {
    size_t count = 0;
    for (size_t i = 0; i < text->segc; i++)
        for (size_t j = 0; j < text->segv[i].length; j++)
            count += ((const unsigned char *)text->segv[i].addr)[j] == '\n';
    return count;
}

/* Does what a request asks for, and replies. Returns -1 if the reply was refused. */
static int serve(io_server_t server, const struct io_message *message) {
    struct io_reply_message reply = {.request = message->request};
    const struct io_server_buffer *text = message->bufv;
    char digest[80];
    size_t actual[2]; /* how much is really passed, for each buffer */
    if (message->bufc < 1 || text->direction != IO_OUT) {
        reply.error = EINVAL;
        reply.error_text = "the first buffer has to be an output, the text";
    } else if (message->service == DIGEST) {
        reply.argument = digest;
        reply.argument_length =
            (size_t)snprintf(digest, sizeof digest, "%zu bytes, %zu lines", text->length, lines(text));
    } else if (message->bufc < 2 || text[1].direction != IO_IN || text[1].length != text->length) {
        reply.error = EINVAL;
        reply.error_text = "the second buffer has to be an input, as long as the text";
    } else if (io_ready(server, message->request, 1) != 0) { /* from now on text[1] has segments */
        reply.error = errno;
        reply.error_text = io_error_text();
    } else {
        actual[0] = text->length;
        actual[1] = reverse(text, &text[1]);
        reply.actualc = 2;
        reply.actualv = actual;
    }
    return io_server(server, &reply, NULL, 0);
}

/* Ends the server when a signal comes; then io_server fails with ECANCELED in the other thread. */
static sigset_t ends;
static void *wait_for_signal(void *server) {
    int signal;
    sigwait(&ends, &signal);
    io_server_unregister(*(io_server_t *)server);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s NAME\n", argv[0]);
        return 2;
    }
    /* Blocked in all threads, so that sigwait gets them. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    io_server_t server;
    if (io_server_register(argv[1], sizeof services / sizeof *services, services, 0, &server) != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], io_error_text());
        return 1;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_signal, &server) != 0) {
        fprintf(stderr, "%s: no thread\n", argv[0]);
        return 1;
    }
    struct io_message message;
    while (io_server(server, NULL, &message, 1) == 0) /* waits for the next message */
        if (message.what == IO_REQUEST && serve(server, &message) != 0)
            fprintf(stderr, "%s: %s\n", argv[0], io_error_text()); /* one client's fault: go on */
    if (errno != ECANCELED && errno != EBADF) {
        fprintf(stderr, "%s: %s\n", argv[0], io_error_text());
        return 1;
    }
    pthread_join(thread, NULL);
    return 0;
}
