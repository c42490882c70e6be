/* Private pools: buffers that a server fills before it is asked, and what is used wrongly of them. */
#include <sys/wait.h>
#include <unistd.h>

#include "requested.h"

enum { RECEIVE };
static const struct io_service_mapping services[] = {{.name = "receive", .flags = IO_WRITE}};

static size_t granule; /* of short buffers, in which packets come */

static io_pool_t pool_of(struct io_pool_options options) {
    io_pool_t pool;
    options.size = sizeof options;
    OK(io_pool_allocate(0, &options, &pool));
    return pool;
}

/* Takes a buffer, and fills all of it. */
static struct io_overlay_buffer arrive(io_pool_t pool, unsigned seed) {
    struct io_overlay_buffer taken;
    OK(io_pool_take(pool, &taken));
    store(taken.segc, taken.segv, 0, seed);
    return taken;
}

/* Pages change places with a whole buffer, which has the client's then, and is back in its pool. */
static void swaps(io_server_t server) {
    const size_t length = 2u << 20, offset = 100;
    const io_pool_t pool = pool_of((struct io_pool_options){.count = 2, .length = length, .offset = offset});
    unsigned char *room = io_allocate_at(0, offset, length);
    CHECK(io_pool_available(pool) == 2);
    struct native in;
    for (unsigned seed = 0; seed < 4; seed++) {
        const io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, length)).request;
        const struct io_overlay_buffer packet = arrive(pool, seed);
        CHECK(packet.place == SIZE_MAX && packet.length == length);
        CHECK((uintptr_t)packet.segv[0].addr % 4096 == offset);
        OK(io_overlay(server, request, 0, 0, 1, &packet.overlay));
        /* It may still be stored into. */
        *(unsigned char *)packet.segv[0].addr = 99;
        FAILS(EBADF, io_overlay_return(packet.overlay));
        CHECK(io_pool_available(pool) == 1);
        replied(server, request, length);
        CHECK(in.actual == length && room[0] == 99 && has(room + 1, 1, length - 1, seed));
        /* Only what is beside whole pages may be copied. */
        CHECK(in.receipt.swapped > 0 && in.receipt.effective == IO_EMULATED_COPY && in.receipt.copied < length / 2);
        CHECK(io_pool_available(pool) == 2);
    }
    /* By copy all is copied. */
    const io_request_t request = held(server, native(&in, IO_IN, IO_COPY, room, length)).request;
    const struct io_overlay_buffer packet = arrive(pool, 9);
    OK(io_overlay(server, request, 0, 0, 1, &packet.overlay));
    replied(server, request, length);
    CHECK(in.receipt.swapped == 0 && in.receipt.copied == length && has(room, 0, length, 9));
    OK(io_free(room));
    OK(io_pool_free(pool));
}

/* Packets whose headers the server takes off fill one element (thesis, figure 6.1); headers go to nobody. */
static void chains(io_server_t server) {
    const size_t header = 40, data = granule, count = 3;
    const io_pool_t pool =
        pool_of((struct io_pool_options){.count = count, .length = header + data, .offset = granule - header});
    unsigned char *room = io_allocate(0, count * data);
    struct native in;
    io_overlay_t packets[3];
    for (size_t i = 0; i < count; i++) {
        struct io_overlay_buffer packet = arrive(pool, (unsigned)i);
        OK(io_overlay_part(&packet, header, data));
        CHECK(packet.length == data && has(packet.segv[0].addr, header, packet.segv[0].length, (unsigned)i));
        packets[i] = packet.overlay;
    }
    const io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, count * data)).request;
    OK(io_overlay(server, request, 0, 0, count, packets));
    replied(server, request, count * data);
    for (size_t i = 0; i < count; i++)
        CHECK(has(room + i * data, header, data, (unsigned)i));
    CHECK(in.receipt.swapped == 3 && in.receipt.copied == 0);
    CHECK(io_pool_available(pool) == (int)count);
    OK(io_free(room));
    OK(io_pool_free(pool));
}

/* One buffer has data for two requests, and for a header and what follows it. */
static void cuts(io_server_t server) {
    const size_t length = 6 * granule, first = 2 * granule + 10;
    const io_pool_t pool = pool_of((struct io_pool_options){.count = 1, .length = length});
    unsigned char *room = io_allocate(0, length), *other = io_allocate_at(0, first, length - first), front[10];
    struct io_overlay_buffer packet = arrive(pool, 1), rest, middle;
    OK(io_overlay_cut(&packet, first, &rest));
    CHECK(packet.length == first && rest.length == length - first && rest.overlay != packet.overlay);
    OK(io_overlay_cut(&packet, sizeof front, &middle));
    struct native in, body, later;
    struct io_buffer_header *header = native(&in, IO_IN, IO_COPY, front, sizeof front);
    native(&body, IO_IN, IO_EMULATED_COPY, room, first - sizeof front);
    in.element.next_sg = &body.element;
    const io_request_t request = held(server, header).request;
    const io_request_t waiting = held(server, native(&later, IO_IN, IO_EMULATED_COPY, other, length - first)).request;
    size_t lengths[3];
    for (size_t i = 0; i < 3; i++)
        CHECK(io_elements(server, request, 0, i, &lengths[i]) == 2);
    CHECK(lengths[0] == sizeof front && lengths[1] == first - sizeof front && lengths[2] == 0);
    OK(io_overlay(server, request, 0, 1, 1, &middle.overlay));
    OK(io_overlay(server, request, 0, 0, 1, &packet.overlay));
    OK(io_overlay(server, waiting, 0, 0, 1, &rest.overlay));
    replied(server, request, first);
    CHECK(has(front, 0, sizeof front, 1) && has(room, sizeof front, first - sizeof front, 1));
    CHECK(io_pool_available(pool) == 0); /* the rest of it is out */
    replied(server, waiting, length - first);
    CHECK(has(other, first, length - first, 1) && later.receipt.swapped > 0);
    CHECK(io_pool_available(pool) == 1);
    OK(io_free(room));
    OK(io_free(other));
    OK(io_pool_free(pool));
}

/* Frames keep their places: one whose pages a client has is taken again when the client has let them go. */
static void frames(io_server_t server) {
    const size_t length = 2u << 20;
    const struct io_pool_options options = {.count = 2, .length = length - granule, .offset = granule, .stride = length, .away = 2};
    const io_pool_t pool = pool_of(options);
    struct io_segment memory;
    OK(io_pool_memory(pool, &memory));
    CHECK(memory.length == 2 * length);
    unsigned char *room = io_allocate_at(0, granule, length - granule);
    struct io_overlay_buffer frame;
    OK(io_pool_take(pool, &frame));
    CHECK(frame.place % length == granule && frame.length == length - granule);
    CHECK(frame.segc == 1 && frame.segv[0].addr == (unsigned char *)memory.addr + frame.place);
    for (size_t i = 0; i < frame.length; i++) /* as a device does */
        ((unsigned char *)memory.addr)[frame.place + i] = byte(i, 5);
    struct native in;
    const io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, frame.length)).request;
    OK(io_overlay(server, request, 0, 0, 1, &frame.overlay));
    replied(server, request, frame.length);
    CHECK(has(room, 0, frame.length, 5) && in.receipt.swapped > 0 && io_pool_available(pool) == 1);
    OK(io_free(room));
    CHECK(io_pool_available(pool) == 2);
    OK(io_pool_free(pool));
}

/* Calls that name a pool or a buffer fail with this errno. */
static void names_nothing(int error, io_pool_t pool, io_overlay_t overlay, io_server_t server, io_request_t request) {
    struct io_overlay_buffer buffer = {.overlay = overlay}, rest;
    struct io_segment memory;
    FAILS(error, io_pool_available(pool));
    FAILS(error, io_pool_memory(pool, &memory));
    FAILS(error, io_pool_take(pool, &buffer));
    FAILS(error, io_pool_free(pool));
    buffer.overlay = overlay;
    FAILS(error, io_overlay_part(&buffer, 0, 0));
    FAILS(error, io_overlay_cut(&buffer, 0, &rest));
    FAILS(error, io_overlay_return(overlay));
    FAILS(error, io_overlay(server, request, 0, 0, 1, &overlay));
    if (error == ECHILD)
        FAILS(error, io_elements(server, request, 0, 0, NULL));
}

static void misuse(io_server_t server) {
    io_pool_t pool;
    struct io_pool_options options = {.size = sizeof options, .length = 4096};
    FAILS(EINVAL, io_pool_allocate(0, &options, &pool)); /* no buffer */
    options = (struct io_pool_options){.size = sizeof options, .count = 2};
    FAILS(EINVAL, io_pool_allocate(0, &options, &pool)); /* no bytes */
    options.length = 4096;
    FAILS(EINVAL, io_pool_allocate(0, &options, NULL));
    FAILS(EINVAL, io_pool_allocate(0, NULL, &pool));
    FAILS(EBADF, io_pool_allocate(99, &options, &pool));
    options.stride = 5000;
    options.offset = 905;
    FAILS(EINVAL, io_pool_allocate(0, &options, &pool)); /* too short a frame */
    options.offset = SIZE_MAX;
    FAILS(EINVAL, io_pool_allocate(0, &options, &pool));
    options.stride = options.offset = 0;
    options.length = SIZE_MAX / 2;
    FAILS(ENOMEM, io_pool_allocate(0, &options, &pool));
    options.stride = options.length;
    FAILS(EIO, io_pool_allocate(0, &options, &pool));
    options.stride = 0;
    options.length = 4096;
    options.size = 3;
    FAILS(EINVAL, io_pool_allocate(0, &options, &pool));
    options.size = sizeof options;
    OK(io_pool_allocate(0, &options, &pool));
    struct io_segment memory;
    FAILS(EINVAL, io_pool_memory(pool, &memory)); /* it is not of frames */
    FAILS(EINVAL, io_pool_take(pool, NULL));
    names_nothing(EBADF, 99, 99, server, 0);

    /* All buffers are out. */
    struct io_overlay_buffer first, second, third;
    OK(io_pool_take(pool, &first));
    OK(io_pool_take(pool, &second));
    FAILS(EAGAIN, io_pool_take(pool, &third));
    CHECK(io_pool_available(pool) == 0);
    const io_overlay_t given_back = second.overlay;
    OK(io_overlay_return(given_back));
    FAILS(EBADF, io_overlay_return(given_back));
    CHECK(io_pool_available(pool) == 1);
    OK(io_pool_take(pool, &second));
    CHECK(second.overlay != given_back);

    /* Parts that leave the buffer. */
    FAILS(EINVAL, io_overlay_part(&first, 0, 4097));
    FAILS(EINVAL, io_overlay_part(&first, 4097, 0));
    FAILS(EINVAL, io_overlay_part(&first, 1, SIZE_MAX));
    FAILS(EINVAL, io_overlay_part(NULL, 0, 0));
    FAILS(EINVAL, io_overlay_cut(&first, 4097, &third));
    FAILS(EINVAL, io_overlay_cut(&first, 1, NULL));
    CHECK(first.length == 4096 && first.segc > 0);

    /* Places where it cannot go: then it is still there. */
    unsigned char room[4096];
    struct native in;
    io_server_t other;
    OK(io_server_register(NULL, 1, services, 0, &other));
    io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    const io_overlay_t twice[] = {first.overlay, second.overlay, first.overlay};
    CHECK(io_elements(server, request, 0, 0, NULL) == 1);
    FAILS(EINVAL, io_elements(server, request, 1, 0, NULL));
    FAILS(EBADF, io_elements(other, request, 0, 0, NULL));
    FAILS(EINVAL, io_overlay(server, request, 0, 0, 0, twice));
    FAILS(EINVAL, io_overlay(server, request, 0, 0, 1, NULL));
    FAILS(EBADF, io_overlay(server, request, 0, 0, 3, twice));
    FAILS(EINVAL, io_overlay(server, request, 1, 0, 1, twice));
    FAILS(EINVAL, io_overlay(server, request, 0, 1, 1, twice));
    FAILS(EBADF, io_overlay(server, request + 1000, 0, 0, 1, twice));
    FAILS(EBADF, io_overlay(other, request, 0, 0, 1, twice)); /* another server's request */
    FAILS(EBADF, io_overlay(99, request, 0, 0, 1, twice));
    memset(first.segv[0].addr, 8, 4096);
    OK(io_overlay(server, request, 0, 0, 1, &first.overlay));
    FAILS(EINVAL, io_overlay(server, request, 0, 0, 1, &second.overlay)); /* the element has one */
    FAILS(EBADF, io_overlay_part(&first, 0, 1));
    struct io_reply_message untold = {.request = request};
    FAILS(EINVAL, io_server(server, &untold, NULL, 0));
    /* What is overlaid is also shown. */
    OK(io_ready(server, request, 0));
    replied(server, request, sizeof room);
    CHECK(room[0] == 8 && room[4095] == 8);

    /* The reply counts more than the buffer has: the client's buffer is as it was. */
    request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    OK(io_overlay_part(&second, 0, 100));
    memset(second.segv[0].addr, 9, 100);
    OK(io_overlay(server, request, 0, 0, 1, &second.overlay));
    reply(server, request, 101);
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER) == -1 && room[0] == 8);
    CHECK(io_pool_available(pool) == 2);
    OK(io_server_unregister(other));

    /* A child has nothing of it. */
    OK(io_pool_take(pool, &first));
    const pid_t child = fork();
    if (child == 0) {
        names_nothing(ECHILD, pool, first.overlay, server, 0);
        execlp("true", "true", (char *)NULL); /* so that leaks are not looked for */
        CHECK(!"exec");
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    /* A buffer outlives its pool. */
    OK(io_pool_free(pool));
    FAILS(EBADF, io_pool_free(pool));
    memset(first.segv[0].addr, 7, 4096);
    request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    OK(io_overlay(server, request, 0, 0, 1, &first.overlay));
    replied(server, request, sizeof room);
    CHECK(room[0] == 7);
    names_nothing(EBADF, pool, first.overlay, server, request);
}

/* A client in another process gets a copy. */
static void elsewhere(io_server_t server, pid_t client) {
    const io_pool_t pool = pool_of((struct io_pool_options){.count = 1, .length = 100000});
    const struct io_overlay_buffer packet = arrive(pool, 3);
    const io_request_t request = next(server).request;
    OK(io_overlay(server, request, 0, 0, 1, &packet.overlay));
    reply(server, request, 100000);
    CHECK(io_pool_available(pool) == 1);
    int status;
    CHECK(waitpid(client, &status, 0) == client && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(io_pool_free(pool));
}

static pid_t start_client(const char *name) {
    const pid_t client = fork();
    CHECK(client >= 0);
    if (client == 0) {
        io_server_t server;
        struct native in;
        OK(io_connect(0, name, 60000000000, &server));
        unsigned char *room = io_allocate(0, 100000);
        struct io_buffer_header *bufv[] = {native(&in, IO_IN, IO_EMULATED_COPY, room, 100000)};
        OK(io_request(server, RECEIVE, 1, bufv, IO_FOREVER, NULL));
        CHECK(in.actual == 100000 && has(room, 0, 100000, 3));
        OK(io_disconnect(server));
        OK(io_free(room));
        exit(0);
    }
    return client;
}

int main(void) {
    char name[40];
    snprintf(name, sizeof name, "overlays-%d", (int)getpid());
    const pid_t client = start_client(name); /* first: it forks */
    io_server_t server;
    OK(io_server_register(name, 1, services, 0, &server));
    elsewhere(server, client);
    granule = (size_t)sysconf(_SC_PAGESIZE);
    OK(io_set_thresholds(0, &(struct io_thresholds){1, 1, 1, 1}));
    swaps(server);
    chains(server);
    cuts(server);
    frames(server);
    misuse(server);
    OK(io_server_unregister(server));
    return 0;
}
