/* Servers: messages, several threads, event loops, aborts, departures and subcontracting. */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "keeper.h"

static const struct io_service_mapping slow[] = {{.name = "slow", .flags = IO_READ | IO_WRITE}};

/* A server that is driven by poll, and by one thread with its client. */
static void loops(void) {
    io_server_t server;
    OK(io_server_register(NULL, 1, slow, 0, &server));
    struct io_message message;
    OK(io_server(server, NULL, &message, 0));
    CHECK(message.what == IO_NO_MESSAGE);
    struct pollfd watched = {.fd = io_server_descriptor(server), .events = POLLIN};
    CHECK(watched.fd >= 0 && poll(&watched, 1, 0) == 0);
    unsigned char *bytes = io_allocate(0, 300000);
    memset(bytes, 5, 300000);
    struct native out, in;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, 300000),
                                       native(&in, IO_IN, IO_EMULATED_COPY, bytes, 300000)};
    io_request_t request;
    CHECK(io_request(server, 0, 2, bufv, IO_FOREVER, &request) == IO_PENDING);
    CHECK(poll(&watched, 1, 60000) == 1);
    OK(io_server(server, NULL, &message, 0));
    CHECK(message.what == IO_REQUEST && message.request == request && message.service == 0 && message.bufc == 2);
    CHECK(message.pid == (uint32_t)getpid() && message.uid == getuid() && message.client != 0);
    CHECK(message.bufv[0].direction == IO_OUT && message.bufv[0].length == 300000 && message.bufv[0].segc > 0);
    CHECK(message.bufv[1].direction == IO_IN && message.bufv[1].length == 300000 && message.bufv[1].segc == 0);
    CHECK(*(unsigned char *)message.bufv[0].segv[0].addr == 5);
    FAILS(EINVAL, io_ready(server, request, 0));
    FAILS(EINVAL, io_ready(server, request, 2));
    FAILS(EINVAL, io_progress(server, request, 1, 1)); /* it is not ready */
    size_t unfilled[2] = {0, 5};
    struct io_reply_message early = {.request = request, .actualc = 2, .actualv = unfilled};
    FAILS(EINVAL, io_server(server, &early, NULL, 0));
    OK(io_ready(server, request, 1));
    CHECK(message.bufv[1].segc > 0);
    CHECK(io_is_aborted(server, request) == 0);
    /* Wrong replies leave it held. An input that was made ready is told how much of it came. */
    struct io_reply_message untold = {.request = request};
    FAILS(EINVAL, io_server(server, &untold, NULL, 0));
    CHECK(strstr(io_error_text(), "made ready"));
    size_t none[2] = {0, SIZE_MAX};
    untold.actualc = 2;
    untold.actualv = none;
    FAILS(EINVAL, io_server(server, &untold, NULL, 0));
    struct io_reply_message negative = {.request = request, .error = -5};
    FAILS(EINVAL, io_server(server, &negative, NULL, 0));
    size_t actual[3] = {0, 300001, 0};
    struct io_reply_message reply = {.request = request, .actualc = 3, .actualv = actual};
    FAILS(EINVAL, io_server(server, &reply, NULL, 0));
    reply.actualc = 2;
    FAILS(EINVAL, io_server(server, &reply, NULL, 0));
    size_t come = 1;
    CHECK(io_wait_for_progress(request, 1, 0, 0, &come) == IO_PENDING && come == 0);
    OK(io_progress(server, request, 1, 500));
    CHECK(io_wait_for_progress(request, 1, 0, IO_FOREVER, &come) == IO_PENDING && come == 500);
    unsigned char fresh[1000];
    memset(fresh, 6, sizeof fresh);
    actual[1] = scatter(&message.bufv[1], 0, fresh, sizeof fresh);
    OK(io_server(server, &reply, &message, 0));
    CHECK(message.what == IO_NO_MESSAGE);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == 1000 && bytes[0] == 6 && bytes[999] == 6 && bytes[1000] == 5);
    FAILS(EBADF, io_server(server, &reply, NULL, 0));

    /* Aborts: of a request that no message has brought yet, and of one that is held. */
    CHECK(io_request(server, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    OK(io_abort(request));
    OK(io_server(server, NULL, &message, 0));
    CHECK(message.what == IO_NO_MESSAGE);
    CHECK(io_request(server, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    OK(io_server(server, NULL, &message, 0));
    CHECK(message.what == IO_REQUEST);
    OK(io_abort(request)); /* which takes the abort_timeout */
    OK(io_server(server, NULL, &message, 0));
    CHECK(message.what == IO_ABORT && message.request == request);
    reply = (struct io_reply_message){.request = request, .error = ECANCELED};
    OK(io_server(server, &reply, NULL, 0));

    /* A request that is still pending when its server ends. */
    CHECK(io_request(server, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    OK(io_server_unregister(server));
    FAILS(EREMOTEIO, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    FAILS(EBADF, io_server(server, NULL, &message, 0));
    OK(io_free(bytes));
}

/* What a server keeps is its own, whatever becomes of the request and of the client's buffer. */
static void keeps(void) {
    io_server_t server;
    OK(io_server_register(NULL, 1, slow, 0, &server));
    const size_t length = 300000;
    unsigned char *bytes = io_allocate(0, length), room[10];
    memset(bytes, 5, length);
    struct native out, in;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length),
                                       native(&in, IO_IN, IO_COPY, room, sizeof room)};
    io_request_t request;
    CHECK(io_request(server, 0, 2, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message;
    OK(io_server(server, NULL, &message, 1));
    void *place = NULL;
    FAILS(EINVAL, io_keep(server, message.request, 0, NULL));
    FAILS(EINVAL, io_keep(server, message.request, 1, &place));
    FAILS(EINVAL, io_keep(server, message.request, 2, &place));
    FAILS(EBADF, io_keep(server, message.request + 1, 0, &place));
    CHECK(!place && message.bufv[0].segc > 0);
    CHECK(io_keep(server, message.request, 0, &place) == 1);
    CHECK(place && message.bufv[0].segc == 0);
    unsigned char *kept = place;
    FAILS(EINVAL, io_keep(server, message.request, 0, &place));
    struct io_reply_message reply = {.request = message.request};
    OK(io_server(server, &reply, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    memset(bytes, 6, length);
    OK(io_free(bytes));
    for (size_t i = 0; i < length; i++)
        CHECK(kept[i] == 5);
    memset(kept, 7, length);

    /* It is passed as any other memory, but not given away, nor freed meanwhile. */
    bufv[0] = native(&out, IO_OUT, IO_EMULATED_SHARE, kept, length);
    out.element.flags = IO_OWNED;
    FAILS(EINVAL, io_request(server, 0, 1, bufv, IO_FOREVER, &request));
    out.element.flags = 0;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    FAILS(EBUSY, io_free(kept));
    OK(io_server(server, NULL, &message, 1));
    CHECK(message.bufv[0].length == length && *(unsigned char *)message.bufv[0].segv[0].addr == 7);
    reply.request = message.request;
    OK(io_server(server, &reply, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    OK(io_server_unregister(server));
    CHECK(kept[0] == 7 && kept[length - 1] == 7);
    OK(io_free(kept));
    FAILS(EFAULT, io_free(kept));
}

/* A server that forwards the middle of what it gets to the keeper. */
static void subcontracts(void) {
    io_server_t keeper, server;
    pthread_t thread = keeper_start(NULL, &keeper);
    OK(io_server_register(NULL, 1, slow, 0, &server));
    unsigned char *bytes = io_allocate(0, 1u << 20);
    for (size_t i = 0; i < 1u << 20; i++)
        bytes[i] = (unsigned char)(i / 4096);
    struct native out, part;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, 1u << 20)};
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message;
    OK(io_server(server, NULL, &message, 1));
    struct io_buffer_header *parts[] = {native(&part, IO_OUT, IO_FRAGMENT, NULL, 8192)};
    part.element.location.fragment =
        (struct io_fragment_location){.server = server, .request = message.request, .buffer = 0, .offset = 40960};
    OK(io_request(keeper, STORE, 1, parts, IO_FOREVER, NULL));
    CHECK(part.actual == 8192);
    /* In the wrong direction, or beyond the end. */
    part.header.direction = IO_IN;
    FAILS(EINVAL, io_request(keeper, FETCH, 1, parts, IO_FOREVER, NULL));
    part.header.direction = IO_OUT;
    part.element.location.fragment.offset = (1u << 20) - 1;
    FAILS(EINVAL, io_request(keeper, STORE, 1, parts, IO_FOREVER, NULL));
    struct io_reply_message reply = {.request = message.request};
    OK(io_server(server, &reply, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    unsigned char back[8192];
    struct native in;
    bufv[0] = native(&in, IO_IN, IO_COPY, back, sizeof back);
    OK(io_request(keeper, FETCH, 1, bufv, IO_FOREVER, NULL));
    CHECK(back[0] == 10 && back[4095] == 10 && back[4096] == 11 && back[8191] == 11);
    OK(io_free(bytes));
    OK(io_server_unregister(server));
    keeper_end(&keeper, thread);
}

/* A contractor passes an input on, and says how much came to it. */
static void forwarded_input(void) {
    io_server_t keeper, server;
    pthread_t thread = keeper_start(NULL, &keeper);
    static const struct io_service_mapping passes[] = {{.name = "passes", .flags = 0}};
    OK(io_server_register(NULL, 1, passes, 0, &server));
    unsigned char stored[5000], bytes[5000] = {0};
    memset(stored, 3, sizeof stored);
    struct native out, in, part;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_COPY, stored, sizeof stored)};
    OK(io_request(keeper, STORE, 1, bufv, IO_FOREVER, NULL));
    bufv[0] = native(&in, IO_IN, IO_COPY, bytes, sizeof bytes);
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message;
    OK(io_server(server, NULL, &message, 1));
    size_t actual = sizeof bytes;
    struct io_reply_message reply = {.request = message.request, .actualc = 1, .actualv = &actual};
    FAILS(EINVAL, io_server(server, &reply, NULL, 0)); /* nobody has filled it */
    bufv[0] = native(&part, IO_IN, IO_FRAGMENT, NULL, sizeof bytes);
    part.element.location.fragment = (struct io_fragment_location){.server = server, .request = message.request};
    OK(io_request(keeper, FETCH, 1, bufv, IO_FOREVER, NULL));
    OK(io_server(server, &reply, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == sizeof bytes && memcmp(bytes, stored, sizeof bytes) == 0);
    OK(io_server_unregister(server));
    keeper_end(&keeper, thread);
}

/* A server that prefers a layout, and then another one. */
static void layouts(void) {
    static const struct io_service_mapping pooled[] = {
        {.name = "pooled", .flags = IO_WRITE, .preferred_offset = 100, .preferred_length = 8192},
        {.name = "any", .flags = IO_WRITE}};
    io_server_t server;
    OK(io_server_register(NULL, 2, pooled, 0, &server));
    struct io_layout layout, another;
    CHECK(io_preferred(server, 1, "port", 4, &another) == 0 && another.length == 0);
    CHECK(io_preferred(server, 0, "port", 4, &layout) == 1);
    CHECK(layout.offset == 100 && layout.length == 8192 && layout.header_length == 0 && layout.trailer_length == 0);
    CHECK(io_layout_is_stale(server, &layout) == 0);
    OK(io_server_prefer(server, 0, &(struct io_layout){.offset = 20, .length = 1460, .header_length = 14, .trailer_length = 4}));
    CHECK(io_layout_is_stale(server, &layout) == 1 && io_layout_is_stale(server, &another) == 1);
    CHECK(io_preferred(server, 0, "port", 4, &layout) == 1 && io_layout_is_stale(server, &layout) == 0);
    CHECK(layout.offset == 20 && layout.length == 1460 && layout.header_length == 14 && layout.trailer_length == 4);
    OK(io_server_prefer(server, 0, NULL));
    CHECK(io_preferred(server, 0, NULL, 0, &layout) == 0);
    OK(io_server_unregister(server));
}

/* A reply that is refused leaves nothing behind, and a request that is held outlives its server. */
static void held(void) {
    io_server_t server;
    OK(io_server_register(NULL, 1, slow, 0, &server));
    unsigned char *bytes = io_allocate(0, 300000), given[2000];
    memset(bytes, 5, 300000);
    memset(given, 6, sizeof given);
    struct native out, in, other;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_SHARE, bytes, 300000),
                                       native(&in, IO_IN, IO_COPY, given, 1000),
                                       native(&other, IO_IN, IO_COPY, given + 1000, 1000)};
    io_request_t request, waiting;
    CHECK(io_request(server, 0, 3, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message;
    OK(io_server(server, NULL, &message, 1));
    OK(io_ready(server, request, 1));
    const struct io_segment *shown = message.bufv[1].segv;
    memset(shown->addr, 7, shown->length);
    OK(io_ready(server, request, 1));
    CHECK(message.bufv[1].segv == shown);
    size_t actual[] = {0, 100, 50};
    struct io_reply_message reply = {.request = request, .actualc = 3, .actualv = actual};
    FAILS(EINVAL, io_server(server, &reply, NULL, 0)); /* of buffer 2, which is not ready */
    size_t none[] = {0, 0};
    reply = (struct io_reply_message){.request = request, .argument_length = 1, .actualc = 2, .actualv = none};
    FAILS(EFAULT, io_server(server, &reply, NULL, 0));

    CHECK(io_request(server, 0, 0, NULL, IO_FOREVER, &waiting) == IO_PENDING);
    OK(io_server_unregister(server));
    FAILS(EREMOTEIO, io_sync(waiting, IO_NORMAL, 0, NULL, IO_FOREVER)); /* no message has brought it */
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 0) == IO_PENDING);
    CHECK(((unsigned char *)message.bufv[0].segv->addr)[299999] == 5 || message.bufv[0].segc > 1);
    FAILS(EBADF, io_server_unregister(server));
    FAILS(ECANCELED, io_server(server, NULL, &message, 1));
    reply = (struct io_reply_message){.request = request, .actualc = 2, .actualv = none};
    FAILS(ECANCELED, io_server(server, &reply, &message, 1));
    FAILS(EBADF, io_server(server, &reply, NULL, 0));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == 0 && other.actual == 0 && given[0] == 6);
    OK(io_free(bytes));
}

/* Many clients' threads, and several server threads. */
static io_server_t crowded;
static void *serve(void *count) {
    struct io_message message;
    struct io_reply_message reply, *last = NULL;
    while (io_server(crowded, last, &message, 1) == 0) {
        last = NULL;
        if (message.what == IO_REQUEST) {
            ++*(int *)count;
            reply = (struct io_reply_message){.request = message.request};
            last = &reply;
        }
    }
    CHECK(errno == ECANCELED || errno == EBADF); /* unregistered while this thread waited, or before */
    return NULL;
}

static void *ask(void *unused) {
    (void)unused;
    unsigned char bytes[100] = {0};
    for (int i = 0; i < 500; i++) {
        struct native out;
        struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_DEFAULT, bytes, sizeof bytes)};
        OK(io_request(crowded, 0, 1, bufv, IO_FOREVER, NULL));
    }
    return NULL;
}

static void crowds(void) {
    OK(io_server_register(NULL, 1, slow, 0, &crowded));
    pthread_t servers[3], clients[4];
    int counts[3] = {0};
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&servers[i], NULL, serve, &counts[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&clients[i], NULL, ask, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(clients[i], NULL);
    OK(io_server_unregister(crowded));
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(servers[i], NULL);
        sum += counts[i];
    }
    CHECK(sum == 2000);
}

/* A client of another process that leaves. */
static void departures(void) {
    char directory[] = "/tmp/genie-c-XXXXXX";
    CHECK(mkdtemp(directory));
    setenv("GENIE_RUNTIME_DIR", directory, 1);
    io_server_t server;
    pid_t child = fork();
    if (child == 0) {
        io_server_t found;
        OK(io_connect(0, "leaving", 20000000000, &found));
        OK(io_request(found, 0, 0, NULL, IO_FOREVER, NULL));
        _exit(0);
    }
    OK(io_server_register("leaving", 1, slow, 0, &server));
    io_server_t again;
    FAILS(EADDRINUSE, io_server_register("leaving", 1, slow, 0, &again));
    struct io_message message;
    OK(io_server(server, NULL, &message, 1));
    CHECK(message.what == IO_REQUEST && message.pid == (uint32_t)child && *message.client_name);
    uint64_t client = message.client;
    struct io_reply_message reply = {.request = message.request};
    OK(io_server(server, &reply, &message, 1));
    CHECK(message.what == IO_DEPARTURE && message.client == client);
    OK(io_server_unregister(server));
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK(system(command) == 0);
}

/* Threads that name a server while it is disconnected, and connected anew: each connection ends, once. */
static _Atomic io_server_t current;
static _Atomic int is_over;
static _Atomic size_t departed;

static void *count_departures(void *server) {
    struct io_message message;
    while (io_server(*(io_server_t *)server, NULL, &message, 1) == 0) {
        struct io_reply_message reply = {.request = message.request};
        if (message.what == IO_REQUEST)
            OK(io_server(*(io_server_t *)server, &reply, NULL, 0));
        departed += message.what == IO_DEPARTURE;
    }
    return NULL;
}

static void *name_it(void *done) {
    unsigned char byte = 1;
    struct native out;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_COPY, &byte, 1)};
    while (!is_over) {
        if (io_request(current, 0, 1, bufv, IO_FOREVER, NULL) == 0)
            ++*(_Atomic size_t *)done;
        else {
            CHECK(errno == EBADF);
            usleep(50); /* so that it is connected anew */
        }
    }
    return NULL;
}

static void reconnections(void) {
    enum { THREADS = 3, TIMES = 300 };
    io_server_t server;
    pthread_t serving, threads[THREADS];
    _Atomic size_t done = 0;
    char runtime[] = "/tmp/genie-c-XXXXXX", command[64];
    CHECK(mkdtemp(runtime) && setenv("GENIE_RUNTIME_DIR", runtime, 1) == 0);
    OK(io_server_register("again", 1, slow, 0, &server));
    CHECK(pthread_create(&serving, NULL, count_departures, &server) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, name_it, &done) == 0);
    for (size_t i = 0; i < TIMES; i++) {
        io_server_t connected;
        OK(io_connect(0, "again", IO_FOREVER, &connected));
        current = connected;
        for (size_t before = done; done < before + 5;)
            sched_yield();
        OK(io_disconnect(connected));
        FAILS(EBADF, io_disconnect(connected));
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    while (departed < TIMES)
        usleep(1000);
    CHECK(departed == TIMES);
    OK(io_server_unregister(server));
    CHECK(pthread_join(serving, NULL) == 0);
    snprintf(command, sizeof command, "rm -r %s", runtime);
    CHECK(system(command) == 0);
}

int main(void) {
    departures(); /* first: it forks */
    loops();
    keeps();
    subcontracts();
    forwarded_input();
    layouts();
    held();
    crowds();
    if (!is_brief()) /* valgrind has too few addresses for so many */
        reconnections();
    return 0;
}
