/* An event loop that serves and asks in one process. The server takes its time: it holds each request for a while, and replies at
 * the ticks of a timer, to the newest first. The client keeps several requests in flight, and takes replies as they come.
 *
 *     event_loop         makes 100 requests, 8 of them in flight
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <genie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { REQUESTS = 100, IN_FLIGHT = 8, LENGTH = 64 << 10 };

/* A call that must succeed: the library's, which says why it has failed, or another. */
static int must(int returned, const char *call, int is_io) {
    if (returned < 0) {
        fprintf(stderr, "%s: %s\n", call, is_io ? io_error_text() : strerror(errno));
        exit(1);
    }
    return returned;
}
#define IO(call) must(call, #call, 1)
#define OS(call) must(call, #call, 0)

/* The server: its service fills an input with the byte that is the argument. */

static io_server_t server;
static struct io_message held[IN_FLIGHT];
static int held_count;

/* Takes all messages that there are; after that, the server's descriptor is readable when there is another one. */
static void take_messages(void) {
    for (;;) {
        struct io_message message;
        IO(io_server(server, NULL, &message, 0));
        if (message.what == IO_NO_MESSAGE)
            return;
        if (message.what == IO_REQUEST)
            held[held_count++] = message; /* its pointers stay good until the reply */
    }
}

static void reply_to_newest(void) {
    const struct io_message *message = &held[--held_count];
    const struct io_server_buffer *buffer = message->bufv;
    IO(io_ready(server, message->request, 0));
    for (size_t i = 0; i < buffer->segc; i++)
        memset(buffer->segv[i].addr, *(const unsigned char *)message->argument, buffer->segv[i].length);
    struct io_reply_message reply = {
        .request = message->request, .actualc = 1, .actualv = &buffer->length, /* all of it was filled */
    };
    IO(io_server(server, &reply, NULL, 0));
}

/* The client: a request with all that has to stay where it is until it is over. */

static struct asked {
    io_request_t request; /* 0 if there is none */
    unsigned char number, *bytes;
    size_t actual;
    struct io_scatter_gather element;
    struct io_buffer_header header;
} asked[IN_FLIGHT];
static int asked_count, done_count, newest, overtaken;

static void ask(struct asked *slot) {
    slot->number = (unsigned char)asked_count++;
    memset(&slot->element, 0, sizeof slot->element);
    slot->element.scheme = IO_EMULATED_COPY;
    slot->element.location.native.addr = slot->bytes;
    slot->element.length = LENGTH;
    slot->header = (struct io_buffer_header){.direction = IO_IN,
                                             .first_sg = &slot->element,
                                             .actual_lengthp = &slot->actual,
                                             .out_arg = &slot->number,
                                             .out_arg_length = 1};
    struct io_buffer_header *headers[] = {&slot->header};
    IO(io_request(server, 0, 1, headers, IO_FOREVER, &slot->request));
}

/* Takes the replies that have come, and asks anew. */
static void take_replies(void) {
    IO(io_collect(0));
    for (struct asked *slot = asked; slot < asked + IN_FLIGHT; slot++) {
        if (!slot->request || IO(io_sync(slot->request, IO_NORMAL, 0, NULL, 0)) == IO_PENDING)
            continue;
        slot->request = 0;
        if (slot->actual != LENGTH || slot->bytes[0] != slot->number || slot->bytes[LENGTH - 1] != slot->number) {
            fprintf(stderr, "request %d got something else\n", slot->number);
            exit(1);
        }
        done_count++;
        if (slot->number < newest)
            overtaken++;
        else
            newest = slot->number;
        if (asked_count < REQUESTS)
            ask(slot);
    }
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    OS(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event));
}

int main(int argc, char **argv) {
    if (argc != 1) {
        fprintf(stderr, "usage: %s\n", argv[0]);
        return 2;
    }
    /* Without a name the server is for this program only. */
    static const struct io_service_mapping service = {.name = "fill", .flags = IO_WRITE};
    IO(io_server_register(NULL, 1, &service, 0, &server));
    int epoll = OS(epoll_create1(0)), timer = OS(timerfd_create(CLOCK_MONOTONIC, 0));
    const struct itimerspec tick = {.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000};
    OS(timerfd_settime(timer, 0, &tick, NULL));
    watch(epoll, timer);
    watch(epoll, IO(io_server_descriptor(server)));
    watch(epoll, IO(io_descriptor(0)));
    for (int i = 0; i < IN_FLIGHT; i++) {
        asked[i].bytes = io_allocate(0, LENGTH);
        IO(asked[i].bytes ? 0 : -1);
        ask(&asked[i]);
    }
    for (;;) {
        take_messages();
        /* A reply that comes between the last look and io_arm would be missed; so io_arm says 0, and this looks again. */
        do
            take_replies();
        while (IO(io_arm(0)) == 0);
        if (done_count == REQUESTS)
            break;
        /* If take_replies has asked anew, the server's descriptor is readable, and this does not sleep. */
        struct epoll_event event = {0};
        if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
            OS(-1);
        /* The library's descriptors are not to be read: the loop's head does what there is to do. */
        if (event.data.fd == timer) {
            uint64_t ticks;
            OS((int)read(timer, &ticks, sizeof ticks));
            if (held_count > 0)
                reply_to_newest();
        }
    }
    printf("%d replies, %d of them after that to a later request\n", done_count, overtaken);
    for (int i = 0; i < IN_FLIGHT; i++)
        IO(io_free(asked[i].bytes));
    IO(io_server_unregister(server));
    close(timer);
    close(epoll);
    return 0;
}
