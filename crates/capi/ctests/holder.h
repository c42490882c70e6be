/* The holder: a server that keeps every request until the test says what to do with it. It is in the test's process, where the test's
 * thread drives it and never blocks; or in another one, which takes commands over a socket pair. */
#ifndef HOLDER_H
#define HOLDER_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { HOLD, ECHO }; /* services: keep the request; fill buffer 1 with what buffer 0 has, and reply */
static const struct io_service_mapping holder_services[] = {
    {.name = "hold", .flags = IO_READ | IO_WRITE},
    {.name = "echo", .flags = IO_READ | IO_WRITE},
};

/* What the holder does with a request. It replies with ECANCELED if the client aborts the request, unless it has been told KEEP. */
enum { READ, WRITE, SET_ACTUAL, PROGRESS, KEEP, REPLY, FAIL };
struct command {
    uint64_t what, number; /* the request's argument is its number */
    size_t buffer, offset, length;
};
#define FAILURE EDOM /* the error by which a request fails: no other call gives it */

#define HELD_MOST 64
#define BUFFERS_MOST 4
struct held {
    struct io_message message;
    uint64_t number;
    size_t actual[BUFFERS_MOST];
    int is_held, is_kept;
};

struct holder {
    io_server_t server;
    struct held held[HELD_MOST]; /* by their numbers */
};

/* The test's side. */
struct place {
    io_interface_t interface;
    io_server_t server;
    int control;          /* -1 if the holder is in this process */
    pid_t pid;            /* of the other process */
    struct holder holder; /* in this process */
    uint64_t next_number;
};

static void holder_reply(struct holder *holder, struct held *held, int error) {
    struct io_reply_message reply = {.request = held->message.request, .error = error, .error_text = "as it was told"};
    reply.actualc = held->message.bufc;
    reply.actualv = held->actual;
    OK(io_server(holder->server, &reply, NULL, 0));
    held->is_held = 0;
}

static void holder_echo(struct holder *holder, const struct io_message *message) {
    CHECK(message->bufc == 2);
    unsigned char *bytes = malloc(message->bufv[0].length + 1);
    OK(io_ready(holder->server, message->request, 1));
    size_t actual[] = {gather(&message->bufv[0], bytes), 0};
    actual[1] = scatter(&message->bufv[1], 0, bytes, actual[0]);
    free(bytes);
    struct io_reply_message reply = {.request = message->request, .actualc = 2, .actualv = actual};
    OK(io_server(holder->server, &reply, NULL, 0));
}

static void holder_keep(struct holder *holder, const struct io_message *message) {
    uint64_t number;
    CHECK(message->argument_length == sizeof number && message->bufc <= BUFFERS_MOST);
    memcpy(&number, message->argument, sizeof number);
    struct held *held = &holder->held[number % HELD_MOST];
    CHECK(!held->is_held);
    *held = (struct held){.message = *message, .number = number, .is_held = 1};
    for (size_t i = 0; i < message->bufc; i++)
        held->actual[i] = message->bufv[i].direction == IO_OUT ? message->bufv[i].length : 0;
}

/* Takes all messages that have come. */
static void holder_take(struct holder *holder) {
    struct io_message message;
    for (;;) {
        OK(io_server(holder->server, NULL, &message, 0));
        if (message.what == IO_NO_MESSAGE)
            return;
        if (message.what == IO_REQUEST)
            (message.service == ECHO ? holder_echo : holder_keep)(holder, &message);
        if (message.what != IO_ABORT)
            continue;
        for (struct held *held = holder->held; held < holder->held + HELD_MOST; held++)
            if (held->is_held && held->message.request == message.request && !held->is_kept)
                holder_reply(holder, held, ECANCELED);
    }
}

/* Tells of progress, after which a reply may not say less, and need not say anything. */
static void holder_progress(struct holder *holder, struct held *held, const struct command *command) {
    const io_request_t request = held->message.request;
    const size_t buffer = command->buffer, final = command->length;
    FAILS(EINVAL, io_progress(holder->server, request, held->message.bufc, 0));
    FAILS(EINVAL, io_progress(holder->server, request, buffer, held->message.bufv[buffer].length + 1));
    FAILS(EBADF, io_progress(holder->server, request + 1000, buffer, final));
    OK(io_progress(holder->server, request, buffer, final));
    FAILS(EINVAL, io_progress(holder->server, request, buffer, final - 1));
    held->actual[buffer] = final - 1;
    struct io_reply_message less = {.request = request, .actualc = held->message.bufc, .actualv = held->actual};
    FAILS(EINVAL, io_server(holder->server, &less, NULL, 0));
    held->actual[buffer] = SIZE_MAX;
}

/* `bytes` are those to be written, or have room for those that are read. */
static void holder_obey(struct holder *holder, const struct command *command, unsigned char *bytes) {
    struct held *held = &holder->held[command->number % HELD_MOST];
    struct pollfd arrivals = {.fd = io_server_descriptor(holder->server), .events = POLLIN};
    for (holder_take(holder); !held->is_held || held->number != command->number; holder_take(holder))
        CHECK(poll(&arrivals, 1, 60000) == 1);
    const struct io_server_buffer *buffer = &held->message.bufv[command->buffer];
    switch (command->what) {
    case READ:
        CHECK(buffer->direction == IO_OUT && buffer->length == command->length);
        CHECK(gather(buffer, bytes) == command->length);
        break;
    case WRITE:
        if (buffer->segc == 0)
            OK(io_ready(holder->server, held->message.request, command->buffer));
        CHECK(scatter(buffer, command->offset, bytes, command->length) == command->length);
        break;
    case SET_ACTUAL:
        held->actual[command->buffer] = command->length;
        break;
    case PROGRESS:
        holder_progress(holder, held, command);
        break;
    case KEEP:
        held->is_kept = 1;
        break;
    default:
        holder_reply(holder, held, command->what == FAIL ? FAILURE : 0);
    }
}

/* Moves bytes over the socket pair; returns 0 if the other side has closed its end. */
static int carry(ssize_t (*move)(int, unsigned char *, size_t), int control, void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t part = move(control, (unsigned char *)bytes + done, length - done);
        if (part <= 0)
            return 0;
        done += (size_t)part;
    }
    return 1;
}
static ssize_t in(int control, unsigned char *bytes, size_t length) { return recv(control, bytes, length, 0); }
static ssize_t out(int control, unsigned char *bytes, size_t length) { return send(control, bytes, length, MSG_NOSIGNAL); }

/* Serves in a process of its own until the test's side closes its end. */
static void holder_serve(struct holder *holder, int control) {
    struct pollfd watched[] = {{.fd = control, .events = POLLIN},
                               {.fd = io_server_descriptor(holder->server), .events = POLLIN}};
    struct command command;
    for (;;) {
        holder_take(holder);
        CHECK(poll(watched, 2, -1) > 0);
        if (!watched[0].revents)
            continue;
        if (!carry(in, control, &command, sizeof command))
            return;
        size_t answered = command.what == READ ? command.length : 0;
        unsigned char *bytes = calloc(1, command.length + 1);
        CHECK(command.what != WRITE || carry(in, control, bytes, command.length));
        holder_obey(holder, &command, bytes);
        /* What was read, and one byte more: it is done. */
        CHECK(carry(out, control, bytes, answered + 1));
        free(bytes);
    }
}

/* Tells the holder what to do with a request, and waits until it is done. */
static void tell(struct place *place, uint64_t what, uint64_t number, size_t buffer, size_t offset, void *bytes, size_t length) {
    struct command command = {what, number, buffer, offset, length};
    if (place->control < 0) {
        holder_obey(&place->holder, &command, bytes);
        return;
    }
    unsigned char done;
    CHECK(carry(out, place->control, &command, sizeof command));
    CHECK(what != WRITE || carry(out, place->control, bytes, length));
    CHECK(what != READ || carry(in, place->control, bytes, length));
    CHECK(carry(in, place->control, &done, 1));
}

/* Starts the holder, and makes the test's process its client. The library must not have been used before if the holder is to be in
 * another process. */
static void place_open(struct place *place, int is_elsewhere, const struct io_options *options) {
    *place = (struct place){.control = -1};
    char name[40];
    snprintf(name, sizeof name, "holder-%d", (int)getpid());
    const size_t count = sizeof holder_services / sizeof *holder_services;
    if (!is_elsewhere) {
        OK(io_server_register(NULL, count, holder_services, 0, &place->holder.server));
        place->server = place->holder.server;
        return;
    }
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    place->pid = fork();
    CHECK(place->pid >= 0);
    if (place->pid == 0) {
        close(pair[0]);
        OK(io_server_register(name, count, holder_services, 0, &place->holder.server));
        holder_serve(&place->holder, pair[1]);
        OK(io_server_unregister(place->holder.server));
        exit(0);
    }
    close(pair[1]);
    place->control = pair[0];
    if (options)
        OK(io_open(options, &place->interface));
    OK(io_connect(place->interface, name, 60000000000, &place->server));
}

static void place_close(struct place *place) {
    if (place->control < 0) {
        OK(io_server_unregister(place->server));
        return;
    }
    OK(io_disconnect(place->server));
    if (place->interface)
        OK(io_close(place->interface));
    close(place->control);
    int status;
    CHECK(waitpid(place->pid, &status, 0) == place->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
