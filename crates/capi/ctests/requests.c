/* Requests by all schemes, synchronous and not, to a server of this program and to one in another process. */
#include <sys/wait.h>
#include <unistd.h>

#include "keeper.h"

static const size_t lengths[] = {1, 100, 4096, 70001, (1u << 20) + 5, 8u << 20};
static size_t lengths_count(void) { return is_brief() ? 4 : sizeof lengths / sizeof *lengths; }

static void fill(unsigned char *bytes, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void expect(const unsigned char *bytes, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char)(i * 7 + i / 251 + seed)) {
            fprintf(stderr, "byte %zu of %zu is %u\n", i, length, bytes[i]);
            exit(1);
        }
}

/* Stores and fetches by native schemes, in buffers of the library's and in others. */
static void natives(io_server_t server) {
    for (size_t l = 0; l < lengths_count(); l++)
        for (io_scheme_t scheme = IO_DEFAULT; scheme <= IO_EMULATED_SHARE; scheme++)
            for (int foreign = 0; foreign < 2; foreign++)
                for (int waits = 0; waits < 2; waits++) {
                    size_t length = lengths[l];
                    unsigned seed = (unsigned)(l * 100 + scheme * 10 + (unsigned)foreign);
                    unsigned char *bytes = foreign ? malloc(length) : io_allocate(0, length);
                    CHECK(bytes);
                    fill(bytes, length, seed);
                    struct native out, in;
                    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, scheme, bytes, length)};
                    io_request_t request = 0;
                    if (waits) {
                        out.element.flags = IO_HELD;
                        OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
                    } else {
                        CHECK(io_request(server, STORE, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
                        /* Copy's meaning: the server gets what was there. */
                        if (scheme <= IO_EMULATED_COPY)
                            memset(bytes, 0xee, length);
                        OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
                        FAILS(EBADF, io_sync(request, IO_NORMAL, 0, NULL, 0));
                    }
                    CHECK(out.actual == length);
                    CHECK(out.receipt.asked == (scheme ? scheme : IO_EMULATED_COPY));
                    memset(bytes, 0xdd, length);
                    bufv[0] = native(&in, IO_IN, scheme, bytes, length);
                    OK(io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
                    CHECK(in.actual == length);
                    expect(bytes, length, seed);
                    if (foreign)
                        free(bytes);
                    else
                        OK(io_free(bytes));
                }
}

static void migrants(io_server_t server) {
    for (size_t l = 0; l < lengths_count(); l++)
        for (io_scheme_t scheme = IO_MOVE; scheme <= IO_EMULATED_WEAK_MOVE; scheme++) {
            size_t length = lengths[l];
            int strong = scheme <= IO_EMULATED_MOVE;
            unsigned char *bytes = io_allocate_migrant(0, length, strong);
            CHECK(bytes);
            fill(bytes, length, scheme);
            struct io_region region = {.count = 1, .segmentv = {{bytes, length}}};
            struct native buffer;
            struct io_buffer_header *bufv[] = {native(&buffer, IO_OUT, scheme, NULL, 0)};
            buffer.element.location.region = &region;
            OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
            CHECK(buffer.actual == length);
            FAILS(EFAULT, io_free(bytes)); /* it was passed */
            FAILS(EFAULT, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
            bufv[0] = native(&buffer, IO_IN, scheme, NULL, length);
            buffer.element.location.region = &region;
            region = (struct io_region){.count = 1, .segmentv = {{NULL, 0}}};
            OK(io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
            CHECK(region.count == 1 && region.segmentv[0].addr && buffer.actual == length);
            CHECK(region.segmentv[0].length >= length);
            expect(region.segmentv[0].addr, length, scheme);
            OK(io_free(region.segmentv[0].addr));
        }
}

/* The data passes without copying where the machine allows it, and the receipt tells. */
static void mechanisms(io_server_t server) {
    size_t length = 8u << 20;
    unsigned char *bytes = io_allocate(0, length);
    fill(bytes, length, 1);
    struct native out;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    out.element.flags = IO_HELD;
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.effective == IO_EMULATED_COPY && out.receipt.copied == 0 && out.receipt.referenced > 0);
    CHECK(out.receipt.write_protected == 0 && !out.receipt.reason);
    /* Without IO_HELD another thread may store meanwhile, so the data is protected, or copied where it can't be. */
    out.element.flags = 0;
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    if (out.receipt.copied == 0)
        CHECK(out.receipt.write_protected > 0);
    else
        CHECK(out.receipt.effective == IO_COPY && out.receipt.reason && *out.receipt.reason);
    memset(bytes, 0, length);
    bufv[0] = native(&out, IO_IN, IO_EMULATED_COPY, bytes, length);
    OK(io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.copied == 0 && out.receipt.swapped > 0);
    expect(bytes, length, 1);
    unsigned char *ours = malloc(length);
    bufv[0] = native(&out, IO_OUT, IO_EMULATED_COPY, ours, 5000);
    memset(ours, 1, 5000);
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.copied == 5000 && out.receipt.reason);
    free(ours);
    OK(io_free(bytes));
}

/* One list with elements of several schemes; arguments; one buffer out and in. */
static void mixtures(io_server_t server) {
    size_t half = 300000;
    unsigned char *a = io_allocate(0, half), *b = malloc(half), *back = io_allocate(0, 2 * half);
    fill(a, half, 5);
    fill(b, half, 6);
    struct native first, second, in;
    struct io_buffer_header *bufv[] = {native(&first, IO_OUT, IO_EMULATED_COPY, a, half)};
    native(&second, IO_OUT, IO_COPY, b, half);
    first.element.next_sg = &second.element;
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    CHECK(first.actual == 2 * half && second.receipt.asked == IO_COPY && second.receipt.copied == half);
    bufv[0] = native(&in, IO_IN, IO_EMULATED_COPY, back, 2 * half);
    OK(io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
    expect(back, half, 5);
    expect(back + half, half, 6);
    /* The server stores what the buffer had, and gives it back into the same buffer. */
    struct native out;
    struct io_buffer_header *both[] = {native(&out, IO_OUT, IO_EMULATED_COPY, back, 2 * half),
                                       native(&in, IO_IN, IO_EMULATED_COPY, back, 2 * half)};
    fill(back, 2 * half, 9);
    io_request_t held;
    CHECK(io_request(server, HOLD, 2, both, IO_FOREVER, &held) == IO_PENDING);
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    OK(io_sync(held, IO_NORMAL, 0, NULL, IO_FOREVER));
    expect(back, 2 * half, 9);
    /* Arguments, by a header that has nothing else. */
    char answer[32] = "";
    struct io_buffer_header arguments = {
        .out_arg = "reader", .out_arg_length = 6, .in_arg = answer, .in_arg_length = sizeof answer};
    struct io_buffer_header *argumentv[] = {&arguments};
    OK(io_request(server, GREET, 1, argumentv, IO_FOREVER, NULL));
    CHECK(arguments.in_arg_actual == 12 && memcmp(answer, "hello reader", 12) == 0);
    arguments.in_arg_length = 4;
    FAILS(EMSGSIZE, io_request(server, GREET, 1, argumentv, IO_FOREVER, NULL));
    CHECK(strstr(io_error_text(), "12 bytes"));
    OK(io_free(a));
    OK(io_free(back));
    free(b);
}

/* Peeked, redirected and polled replies, aborts and timeouts. */
static void pendings(io_server_t server) {
    size_t length = 1u << 20;
    unsigned char *bytes = io_allocate(0, length), *other = io_allocate(0, length);
    fill(bytes, length, 3);
    struct native out, in, elsewhere;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    memset(bytes, 0x11, length);
    bufv[0] = native(&in, IO_IN, IO_EMULATED_COPY, bytes, length);
    struct io_buffer_header *otherv[] = {native(&elsewhere, IO_IN, IO_COPY, other, 1000)};
    io_request_t request;
    CHECK(io_request(server, FETCH, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    while (io_sync(request, IO_PEEKED, 1, otherv, 0) == IO_PENDING)
        ;
    CHECK(elsewhere.actual == 1000 && bytes[0] == 0x11 && bytes[length - 1] == 0x11);
    expect(other, 1000, 3);
    native(&elsewhere, IO_IN, IO_COPY, other, length);
    memset(other, 0, length);
    OK(io_sync(request, IO_REDIRECTED, 1, otherv, IO_FOREVER));
    CHECK(in.actual == length && bytes[0] == 0x11 && bytes[length - 1] == 0x11);
    expect(other, length, 3);
    /* A request that is held stays pending, and its buffer cannot be freed. */
    bufv[0] = native(&in, IO_IN, IO_EMULATED_COPY, bytes, length);
    CHECK(io_request(server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 0) == IO_PENDING);
    CHECK(io_sync(request, IO_NORMAL, 0, NULL, 1000000) == IO_PENDING);
    FAILS(EBUSY, io_free(bytes));
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    /* Abort and timeout leave the buffer as it was. */
    memset(bytes, 0x22, length);
    CHECK(io_request(server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    errno = 0;
    OK(io_abort(request));
    CHECK(errno == ECANCELED && strstr(io_error_text(), "aborted"));
    FAILS(EBADF, io_abort(request));
    FAILS(ETIMEDOUT, io_request(server, HOLD, 1, bufv, 2000000, NULL));
    CHECK(bytes[0] == 0x22 && bytes[length - 1] == 0x22);
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    FAILS(ENOSPC, io_request(server, FAIL, 0, NULL, IO_FOREVER, NULL));
    CHECK(strstr(io_error_text(), "the disk is full"));
    OK(io_flush(server, IO_FOREVER));
    OK(io_free(bytes));
    OK(io_free(other));
}

/* Threads that synchronize with the same request: one gets the result. */
static io_request_t shared_request;
static void *waiter(void *result) {
    int returned = io_sync(shared_request, IO_NORMAL, 0, NULL, IO_FOREVER);
    *(int *)result = returned == 0 ? 0 : errno;
    return NULL;
}

static void threads(io_server_t server) {
    CHECK(io_request(server, HOLD, 0, NULL, IO_FOREVER, &shared_request) == IO_PENDING);
    pthread_t all[4];
    int results[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, waiter, &results[i]) == 0);
    usleep(10000);
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    int good = 0;
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i], NULL);
        good += results[i] == 0;
        CHECK(results[i] == 0 || results[i] == EBADF);
    }
    CHECK(good == 1);
}

static void all(io_server_t server) {
    natives(server);
    migrants(server);
    mechanisms(server);
    mixtures(server);
    pendings(server);
    threads(server);
}

int main(void) {
    char directory[] = "/tmp/genie-c-XXXXXX";
    CHECK(mkdtemp(directory));
    setenv("GENIE_RUNTIME_DIR", directory, 1);
    /* The server's process comes first: a child of a process with threads would have its locks. */
    pid_t child = fork();
    if (child == 0) {
        io_server_t server;
        OK(io_server_register("keeper", sizeof keeper_services / sizeof *keeper_services, keeper_services, 0, &server));
        keeper_serve(server); /* until it is killed */
        return 1;
    }
    io_server_t here, there;
    pthread_t thread = keeper_start(NULL, &here);
    all(here);
    keeper_end(&here, thread);
    FAILS(EBADF, io_request(here, STORE, 0, NULL, IO_FOREVER, NULL));
    OK(io_connect(0, "keeper", 20000000000, &there));
    CHECK(io_service(there, "release") == RELEASE);
    FAILS(ENOENT, io_service(there, "releases"));
    FAILS(EINVAL, io_server_unregister(there)); /* as are all calls that only a server's own program may make */
    FAILS(EINVAL, io_server(there, NULL, NULL, 0));
    FAILS(EINVAL, io_ready(there, 1, 0));
    FAILS(EINVAL, io_is_aborted(there, 1));
    FAILS(EINVAL, io_server_descriptor(there));
    all(there);
    /* The server is killed with a request in its hands. */
    io_request_t request;
    CHECK(io_request(there, HOLD, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    kill(child, SIGKILL);
    FAILS(ECONNRESET, io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    FAILS(EPIPE, io_request(there, STORE, 0, NULL, IO_FOREVER, NULL));
    CHECK(io_is_gone(there) == 1);
    OK(io_disconnect(there));
    waitpid(child, NULL, 0);
    FAILS(ENOENT, io_connect(0, "keeper", 0, &there));
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}
