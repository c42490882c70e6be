/* Pins: bytes of a request's buffers that a server uses apart from the request. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "requested.h"

static const struct io_service_mapping services[] = {{.name = "both", .flags = IO_READ | IO_WRITE}, {.name = "none", .flags = 0}};

enum { LENGTH = 300000 };

static void gathered(const struct io_pinned_bytes *pinned, unsigned char *bytes) {
    const struct io_server_buffer buffer = {.segc = pinned->segc, .segv = pinned->segv};
    gather(&buffer, bytes);
}

/* What was output can be read after the reply, which the client gets with the end of the last pin. */
static void outputs(io_server_t server) {
    static unsigned char found[LENGTH];
    unsigned char *bytes = io_allocate(0, LENGTH);
    const struct io_segment all = {bytes, LENGTH};
    store(1, &all, 0, 1);
    struct native out;
    const io_request_t request = held(server, native(&out, IO_OUT, IO_EMULATED_COPY, bytes, LENGTH)).request;
    struct io_pinned_bytes pinned, part;
    OK(io_pin(server, request, 0, 0, LENGTH, &pinned));
    OK(io_pin(server, request, 0, 1000, 7, &part));
    CHECK(pinned.pin != part.pin && part.segc > 0);
    reply(server, request, LENGTH);
    FAILS(EBADF, io_pin(server, request, 0, 0, 1, &part)); /* it has its reply */
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 0) == IO_PENDING);
    OK(io_unpin(part.pin));
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 0) == IO_PENDING);
    memset(bytes, 0, LENGTH); /* the client may store already */
    gathered(&pinned, found);
    CHECK(has(found, 0, LENGTH, 1));
    OK(io_unpin(pinned.pin));
    OK(io_sync(request, IO_NORMAL, 0, NULL, 0));
    CHECK(out.actual == LENGTH);
    OK(io_free(bytes));
}

static void *fill(void *pinned) {
    const struct io_pinned_bytes *here = pinned;
    store(here->segc, here->segv, 1000, 2);
    OK(io_unpin(here->pin));
    return NULL;
}

/* An input is filled by another thread after the reply. */
static void inputs(io_server_t server) {
    unsigned char *room = io_allocate(0, LENGTH);
    struct native in;
    const struct io_message message = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, LENGTH));
    const io_request_t request = message.request;
    struct io_pinned_bytes pinned;
    OK(io_pin(server, request, 0, 1000, LENGTH - 1000, &pinned));
    CHECK(message.bufv[0].segc > 0); /* it is ready */
    FAILS(EINVAL, io_server(server, &(struct io_reply_message){.request = request}, NULL, 0)); /* how much of it? */
    unsigned char front[1000];
    for (size_t i = 0; i < sizeof front; i++)
        front[i] = byte(i, 2);
    CHECK(scatter(&message.bufv[0], 0, front, sizeof front) == sizeof front);
    reply(server, request, LENGTH);
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 0) == IO_PENDING);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fill, &pinned) == 0);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == LENGTH && has(room, 0, LENGTH, 2));
    OK(pthread_join(thread, NULL));
    OK(io_free(room));
}

static void misuse(io_server_t server) {
    unsigned char bytes[100] = {5};
    struct native out;
    io_server_t other;
    OK(io_server_register(NULL, 2, services, 0, &other));
    const io_request_t request = held(server, native(&out, IO_OUT, IO_COPY, bytes, sizeof bytes)).request;
    struct io_pinned_bytes pinned;
    FAILS(EINVAL, io_pin(server, request, 0, 0, 1, NULL));
    FAILS(EINVAL, io_pin(server, request, 1, 0, 1, &pinned));
    FAILS(EINVAL, io_pin(server, request, 0, 0, 101, &pinned));
    FAILS(EINVAL, io_pin(server, request, 0, 101, 0, &pinned));
    FAILS(EINVAL, io_pin(server, request, 0, 1, SIZE_MAX, &pinned));
    FAILS(EBADF, io_pin(server, request + 1000, 0, 0, 1, &pinned));
    FAILS(EBADF, io_pin(other, request, 0, 0, 1, &pinned)); /* another server's request */
    FAILS(EBADF, io_pin(99, request, 0, 0, 1, &pinned));
    FAILS(EBADF, io_unpin(0));
    OK(io_pin(server, request, 0, 0, 1, &pinned));
    const pid_t child = fork();
    if (child == 0) {
        struct io_pinned_bytes another;
        FAILS(ECHILD, io_pin(server, request, 0, 0, 1, &another));
        FAILS(ECHILD, io_unpin(pinned.pin));
        execlp("true", "true", (char *)NULL); /* so that leaks are not looked for */
        CHECK(!"exec");
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(io_unpin(pinned.pin));
    FAILS(EBADF, io_unpin(pinned.pin));
    /* An output that was kept is the server's own, and needs no pin. */
    void *kept;
    CHECK(io_keep(server, request, 0, &kept) >= 0);
    FAILS(EINVAL, io_pin(server, request, 0, 0, 1, &pinned));
    OK(io_free(kept));
    replied(server, request, 0);

    /* A service that may not access its buffers. */
    io_request_t blind;
    struct io_buffer_header *bufv[] = {&out.header};
    CHECK(io_request(server, 1, 1, bufv, IO_FOREVER, &blind) == IO_PENDING);
    CHECK(next(server).request == blind);
    FAILS(EINVAL, io_pin(server, blind, 0, 0, 1, &pinned));
    replied(server, blind, 0);

    /* A pin outlives its server. */
    const io_request_t last = held(other, native(&out, IO_OUT, IO_EMULATED_COPY, bytes, sizeof bytes)).request;
    OK(io_pin(other, last, 0, 0, 1, &pinned));
    OK(io_server_unregister(other));
    struct io_reply_message reply = {.request = last};
    OK(io_server(other, &reply, NULL, 0));
    CHECK(*(unsigned char *)pinned.segv[0].addr == 5);
    OK(io_unpin(pinned.pin));
    OK(io_sync(last, IO_NORMAL, 0, NULL, IO_FOREVER));
}

/* A client that has ended has what is pinned no more; the server still has it. */
static void departed(io_server_t server, pid_t client) {
    static unsigned char found[LENGTH];
    const io_request_t request = next(server).request;
    struct io_pinned_bytes pinned;
    OK(io_pin(server, request, 0, 0, LENGTH, &pinned));
    OK(kill(client, SIGKILL));
    CHECK(waitpid(client, NULL, 0) == client);
    struct io_message message;
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_DEPARTURE);
    reply(server, request, LENGTH);
    gathered(&pinned, found);
    CHECK(has(found, 0, LENGTH, 3));
    OK(io_unpin(pinned.pin));
}

static pid_t start_client(const char *name) {
    const pid_t client = fork();
    CHECK(client >= 0);
    if (client == 0) {
        io_server_t server;
        struct native out;
        OK(io_connect(0, name, 60000000000, &server));
        unsigned char *bytes = io_allocate(0, LENGTH);
        const struct io_segment all = {bytes, LENGTH};
        store(1, &all, 0, 3);
        struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, LENGTH)};
        io_request(server, 0, 1, bufv, IO_FOREVER, NULL); /* until it is killed */
        _exit(1);
    }
    return client;
}

int main(void) {
    char name[40];
    snprintf(name, sizeof name, "pins-%d", (int)getpid());
    const pid_t client = start_client(name); /* first: it forks */
    io_server_t server;
    OK(io_server_register(name, 2, services, 0, &server));
    departed(server, client);
    outputs(server);
    inputs(server);
    misuse(server);
    OK(io_server_unregister(server));
    return 0;
}
