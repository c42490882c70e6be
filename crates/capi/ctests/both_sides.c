/* A program that is server and client in one loop, and replies in anticipation. */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "any", .flags = IO_READ | IO_WRITE}};
static char mine[40], theirs[40];

/* The other program: for each request that it gets it makes one of its own, of the one that asked, and only then replies. */
static void peer(void) {
    io_server_t server, back = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    OK(io_server_register(theirs, 1, services, 0, &server));
    struct io_message message;
    for (;;) {
        OK(io_server(server, NULL, &message, 1));
        if (message.what == IO_DEPARTURE)
            break;
        if (message.what != IO_REQUEST)
            continue;
        if (!back)
            OK(io_connect(0, mine, 60000000000, &back));
        OK(io_request(back, 0, 0, NULL, IO_FOREVER, NULL));
        struct io_reply_message reply = {.request = message.request};
        OK(io_server(server, &reply, NULL, 0));
    }
    OK(io_disconnect(back));
    OK(io_server_unregister(server));
    exit(0);
}

static void reply(io_server_t server, const struct io_message *message) {
    struct io_reply_message reply = {.request = message->request};
    OK(io_server(server, &reply, NULL, 0));
}

/* One thread waits in one call, or by one descriptor, for the request of the peer's and for the peer's reply: it would wait for ever if
 * it were woken by one of the two only. */
static void one_wait(io_server_t server, io_server_t other, int by_descriptor) {
    struct pollfd watched = {.fd = io_server_descriptor(server), .events = POLLIN};
    for (int round = 0; round < 50; round++) {
        io_request_t request;
        int is_asked = 0, result = IO_PENDING;
        CHECK(io_request(other, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
        while (result == IO_PENDING) {
            struct io_message message;
            OK(io_server(server, NULL, &message, !by_descriptor));
            switch (message.what) {
            case IO_REQUEST:
                CHECK(!is_asked);
                is_asked = 1;
                reply(server, &message);
                break;
            case IO_REPLIES:
                result = io_sync(request, IO_NORMAL, 0, NULL, 0);
                break;
            case IO_NO_MESSAGE:
                CHECK(by_descriptor && poll(&watched, 1, 60000) == 1);
                break;
            default:
                CHECK(!"a message of another kind");
            }
        }
        CHECK(result == 0 && is_asked);
    }
}

/* The program asks itself, and waits in one call. */
static void alone(io_server_t server) {
    io_request_t request;
    CHECK(io_request(server, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message;
    for (int result = IO_PENDING; result == IO_PENDING;) {
        OK(io_server(server, NULL, &message, 1));
        if (message.what == IO_REQUEST)
            reply(server, &message);
        if (message.what == IO_REPLIES)
            result = io_sync(request, IO_NORMAL, 0, NULL, 0);
    }
}

static struct io_message next(io_server_t server) {
    struct io_message message;
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_REQUEST);
    return message;
}

/* The client goes on, and stores, while the server still reads what it was sent. */
static void anticipated(io_server_t server) {
    const size_t length = 1u << 20;
    unsigned char *bytes = io_allocate(0, length);
    memset(bytes, 'a', length);
    struct native out, in;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length), NULL};
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message = next(server);
    size_t actual[] = {length, 0};
    struct io_reply_message early = {.request = message.request, .actualc = 1, .actualv = actual, .error = EIO};
    FAILS(EINVAL, io_anticipate(server, &early));
    FAILS(EINVAL, io_anticipate(server, NULL));
    early.error = 0;
    early.argument = "much";
    early.argument_length = 4;
    OK(io_progress(server, message.request, 0, 1));
    FAILS(EMSGSIZE, io_anticipate(server, &early));
    OK(io_progress(server, message.request, 0, 2)); /* what was refused has made no more final */
    early.argument_length = 0;
    OK(io_anticipate(server, &early));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(out.actual == length);
    memset(bytes, 'b', length);
    FAILS(EINVAL, io_anticipate(server, &early));
    FAILS(EINVAL, io_ready(server, message.request, 1));
    FAILS(ETIMEDOUT, io_flush(server, 0));
    unsigned char *found = malloc(length);
    CHECK(gather(&message.bufv[0], found) == length && found[0] == 'a' && found[length - 1] == 'a');
    reply(server, &message);
    FAILS(EBADF, io_anticipate(server, &early));
    OK(io_flush(server, IO_FOREVER));

    /* The client awaits an input: the request is held as before. */
    bufv[1] = native(&in, IO_IN, IO_EMULATED_COPY, found, 10);
    CHECK(io_request(server, 0, 2, bufv, IO_FOREVER, &request) == IO_PENDING);
    message = next(server);
    early = (struct io_reply_message){.request = message.request};
    FAILS(EINVAL, io_anticipate(server, &early));
    OK(io_ready(server, message.request, 1));
    actual[1] = scatter(&message.bufv[1], 0, bytes, 10);
    early.actualc = 2;
    early.actualv = actual;
    OK(io_progress(server, message.request, 1, 1));
    FAILS(EINVAL, io_anticipate(server, &early));
    OK(io_progress(server, message.request, 1, 2));
    OK(io_server(server, &early, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == 10 && found[9] == 'b');
    free(found);
    OK(io_free(bytes));
}

int main(void) {
    snprintf(mine, sizeof mine, "mine-%d", (int)getpid());
    snprintf(theirs, sizeof theirs, "theirs-%d", (int)getpid());
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        peer();
    io_server_t server, other;
    OK(io_server_register(mine, 1, services, 0, &server));
    anticipated(server);
    FAILS(EBADF, io_server_watch(77777, 0));
    FAILS(EBADF, io_server_watch(server, 77777));
    OK(io_server_watch(server, 0));
    OK(io_server_watch(server, 0));
    alone(server);
    OK(io_connect(0, theirs, 60000000000, &other));
    FAILS(EINVAL, io_server_watch(other, 0));
    one_wait(server, other, 0);
    one_wait(server, other, 1);
    OK(io_disconnect(other));
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(io_server_unregister(server));
    return 0;
}
