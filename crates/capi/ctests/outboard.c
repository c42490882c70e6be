/* Outboard memory: data that a device transfers when the client takes it. */
#include <sys/wait.h>
#include <unistd.h>

#include "requested.h"

static const struct io_service_mapping services[] = {{.name = "transfer", .flags = IO_WRITE}};

/* A device, and what was done with its data. */
struct device {
    unsigned seed;
    int error;                 /* what the transfer fails with */
    const unsigned char *room; /* the client's */
    int transfers, was_there, frees;
};

static int transfer(void *context, size_t offset, size_t segc, const struct io_segment *segv) {
    struct device *device = context;
    device->transfers++;
    if (device->error)
        return device->error;
    store(segc, segv, offset, device->seed);
    if (device->room)
        device->was_there = has(device->room, offset, segv[0].length, device->seed);
    return 0;
}

static void freed(void *context) { ((struct device *)context)->frees++; }

static struct io_outboard_data data_of(struct device *device, size_t length, uint32_t flags) {
    return (struct io_outboard_data){
        .size = sizeof(struct io_outboard_data), .length = length, .flags = flags, .context = device, .transfer = transfer, .free = freed};
}

static const size_t LENGTH = 2u << 20;

/* By every scheme the data comes with one transfer, and is freed once. */
static void transfers(io_server_t server) {
    unsigned char *room = io_allocate(0, LENGTH);
    struct native in;
    for (io_scheme_t scheme = IO_COPY; scheme <= IO_EMULATED_SHARE; scheme++)
        for (uint32_t flags = 0; flags <= IO_NEVER_FAILS; flags++) {
            struct device device = {.seed = scheme + 10 * flags, .room = room};
            const io_request_t request = held(server, native(&in, IO_IN, scheme, room, LENGTH)).request;
            const struct io_outboard_data data = data_of(&device, LENGTH, flags);
            OK(io_outboard(server, request, 0, 0, &data));
            reply(server, request, LENGTH);
            /* Emulated copy waits until the client takes the reply. */
            CHECK(device.transfers == (scheme != IO_EMULATED_COPY) && (device.frees == 0));
            OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
            CHECK(in.actual == LENGTH && has(room, 0, LENGTH, device.seed));
            CHECK(device.transfers == 1 && device.frees == 1);
            CHECK(in.receipt.effective == scheme && in.receipt.copied == (scheme == IO_COPY ? LENGTH : 0));
            /* What never fails is transferred into the client's buffer; else pages change places. */
            const int is_direct = scheme >= IO_SHARE || (scheme == IO_EMULATED_COPY && flags);
            CHECK(device.was_there == is_direct);
            CHECK((in.receipt.swapped > 0) == (scheme == IO_EMULATED_COPY && !flags));
        }
    OK(io_free(room));
}

/* A transfer that fails leaves the client's buffer as it was. */
static void failures(io_server_t server) {
    unsigned char *room = io_allocate(0, LENGTH);
    memset(room, 1, LENGTH);
    struct native in;
    struct device device = {.error = ENOSPC};
    const struct io_outboard_data data = data_of(&device, LENGTH, 0);
    io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, LENGTH)).request;
    OK(io_outboard(server, request, 0, 0, &data));
    reply(server, request, LENGTH);
    FAILS(EIO, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(strstr(io_error_text(), "No space left on device"));
    CHECK(device.transfers == 1 && device.frees == 1 && room[0] == 1 && room[LENGTH - 1] == 1);

    /* One that fails at once has not linked the data, which is the program's; it can be tried again. */
    request = held(server, native(&in, IO_IN, IO_COPY, room, LENGTH)).request;
    FAILS(EIO, io_outboard(server, request, 0, 0, &data));
    CHECK(device.transfers == 2 && device.frees == 1);
    device.error = 0;
    OK(io_outboard(server, request, 0, 0, &data));
    replied(server, request, LENGTH);
    CHECK(has(room, 0, LENGTH, 0) && device.frees == 2);

    /* A request that fails, or is given up, transfers nothing. */
    request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, LENGTH)).request;
    OK(io_outboard(server, request, 0, 0, &data));
    struct io_reply_message error = {.request = request, .error = ENOSPC};
    OK(io_server(server, &error, NULL, 0));
    FAILS(ENOSPC, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(device.transfers == 3 && device.frees == 3);
    OK(io_free(room));
}

static void misuse(io_server_t server) {
    unsigned char room[100];
    struct native in;
    struct device device = {0};
    struct io_outboard_data data = data_of(&device, sizeof room, 2);
    const io_request_t request = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    FAILS(EINVAL, io_outboard(server, request, 0, 0, NULL));
    FAILS(EINVAL, io_outboard(server, request, 0, 0, &data)); /* no such flag */
    data.flags = 0;
    data.size = 4;
    FAILS(EINVAL, io_outboard(server, request, 0, 0, &data));
    data.size = sizeof data;
    data.transfer = NULL;
    FAILS(EINVAL, io_outboard(server, request, 0, 0, &data));
    data.transfer = transfer;
    FAILS(EINVAL, io_outboard(server, request, 1, 0, &data));
    FAILS(EINVAL, io_outboard(server, request, 0, 1, &data));
    FAILS(EBADF, io_outboard(server, request + 1000, 0, 0, &data));
    FAILS(EBADF, io_outboard(99, request, 0, 0, &data));
    OK(io_outboard(server, request, 0, 0, &data));
    FAILS(EINVAL, io_outboard(server, request, 0, 0, &data)); /* it has its data */
    CHECK(device.frees == 0);
    FAILS(EINVAL, io_server(server, &(struct io_reply_message){.request = request}, NULL, 0)); /* how much of it? */
    replied(server, request, sizeof room);
    CHECK(device.frees == 1 && has(room, 0, sizeof room, 0));

    /* More than there is: nothing comes. */
    const io_request_t longer = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    data.length = 50;
    data.free = NULL;
    OK(io_outboard(server, longer, 0, 0, &data));
    reply(server, longer, 51);
    CHECK(io_sync(longer, IO_NORMAL, 0, NULL, IO_FOREVER) == -1 && has(room, 0, sizeof room, 0));

    /* A child has none of the requests. */
    const io_request_t last = held(server, native(&in, IO_IN, IO_EMULATED_COPY, room, sizeof room)).request;
    const pid_t child = fork();
    if (child == 0) {
        FAILS(ECHILD, io_outboard(server, last, 0, 0, &data));
        execlp("true", "true", (char *)NULL); /* so that leaks are not looked for */
        CHECK(!"exec");
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    replied(server, last, 0);
}

/* To a client in another process the data comes in the server's thread, with the reply. */
static void elsewhere(io_server_t server, pid_t client) {
    struct device device = {.seed = 3};
    const struct io_outboard_data data = data_of(&device, LENGTH, 0);
    const io_request_t request = next(server).request;
    OK(io_outboard(server, request, 0, 0, &data));
    CHECK(device.transfers == 0);
    reply(server, request, LENGTH);
    CHECK(device.transfers == 1 && device.frees == 1);
    int status;
    CHECK(waitpid(client, &status, 0) == client && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static pid_t start_client(const char *name) {
    const pid_t client = fork();
    CHECK(client >= 0);
    if (client == 0) {
        io_server_t server;
        struct native in;
        OK(io_connect(0, name, 60000000000, &server));
        unsigned char *room = io_allocate(0, LENGTH);
        struct io_buffer_header *bufv[] = {native(&in, IO_IN, IO_EMULATED_COPY, room, LENGTH)};
        OK(io_request(server, 0, 1, bufv, IO_FOREVER, NULL));
        CHECK(in.actual == LENGTH && has(room, 0, LENGTH, 3));
        OK(io_disconnect(server));
        OK(io_free(room));
        exit(0);
    }
    return client;
}

int main(void) {
    char name[40];
    snprintf(name, sizeof name, "outboard-%d", (int)getpid());
    const pid_t client = start_client(name); /* first: it forks */
    io_server_t server;
    OK(io_server_register(name, 1, services, 0, &server));
    elsewhere(server, client);
    OK(io_set_thresholds(0, &(struct io_thresholds){1, 1, 1, 1}));
    transfers(server);
    failures(server);
    misuse(server);
    OK(io_server_unregister(server));
    return 0;
}
