/* Buffers that are given by value, totals, thresholds at run time, and the promise about the kernel. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "any", .flags = IO_READ | IO_WRITE}};
static const size_t length = 1u << 20;

/* The next request of the server's, which this thread serves. */
static struct io_message next(io_server_t server) {
    struct io_message message;
    do
        OK(io_server(server, NULL, &message, 1));
    while (message.what != IO_REQUEST);
    return message;
}

static void reply(io_server_t server, const struct io_message *message, const size_t *actual) {
    struct io_reply_message reply = {.request = message->request, .actualc = actual ? message->bufc : 0, .actualv = actual};
    OK(io_server(server, &reply, NULL, 0));
}

static struct io_buffer_header *given(struct native *buffer, uint32_t direction, io_scheme_t scheme, void *addr, size_t count) {
    native(buffer, direction, scheme, addr, count);
    buffer->element.flags = IO_OWNED;
    return &buffer->header;
}

/* Nothing is copied, and nothing protected, whoever asks: not even an asynchronous output. */
static void output(io_server_t server, io_scheme_t scheme) {
    unsigned char *bytes = io_allocate(0, length);
    memset(bytes, 7, length);
    struct native out, other;
    struct io_buffer_header *bufv[] = {given(&out, IO_OUT, scheme, bytes, length)};
    for (int again = 0; again < 3; again++) { /* the thread remembers the buffer */
        io_request_t request, none = 0;
        CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
        /* It is the request's. */
        FAILS(EBUSY, io_free(bytes));
        struct io_buffer_header *others[] = {native(&other, IO_OUT, IO_EMULATED_COPY, bytes + 5, 10)};
        FAILS(EBUSY, io_request(server, 0, 1, others, IO_FOREVER, &none));
        others[0] = given(&other, IO_OUT, IO_EMULATED_COPY, bytes, 10);
        FAILS(EBUSY, io_request(server, 0, 1, others, IO_FOREVER, &none));
        CHECK(other.element.location.native.addr == bytes);
        struct io_message message = next(server);
        CHECK(message.bufv[0].length == length && *(unsigned char *)message.bufv[0].segv[0].addr == 7);
        reply(server, &message, NULL);
        OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
        CHECK(out.element.location.native.addr == bytes && bytes[length - 1] == 7);
        CHECK(out.receipt.copied == (scheme == IO_COPY ? length : 0));
        CHECK(out.receipt.write_protected == 0 && out.receipt.faults == 0);
        CHECK(scheme == IO_COPY || out.receipt.referenced > 0);
    }
    OK(io_free(bytes));
}

/* A part of a buffer is filled, and it is back at its address. */
static void input(io_server_t server, io_scheme_t scheme) {
    unsigned char *bytes = io_allocate(0, length), data[300];
    memset(bytes, 1, length);
    memset(data, 9, sizeof data);
    struct native in;
    struct io_buffer_header *bufv[] = {given(&in, IO_IN, scheme, bytes + 4096, sizeof data)};
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    FAILS(EBUSY, io_free(bytes));
    struct io_message message = next(server);
    OK(io_ready(server, message.request, 0));
    size_t actual[] = {scatter(&message.bufv[0], 0, data, sizeof data)};
    reply(server, &message, actual);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(in.actual == sizeof data && in.element.location.native.addr == bytes + 4096);
    CHECK(memcmp(bytes + 4096, data, sizeof data) == 0 && bytes[4095] == 1 && bytes[4096 + sizeof data] == 1);
    OK(io_free(bytes));
}

/* What is wrong with a request leaves the program what it has. */
static void refused(io_server_t server) {
    unsigned char *bytes = io_allocate(0, length), *migrant = io_allocate_migrant(0, length, 1), own[10];
    struct native out, in;
    struct io_buffer_header *bufv[] = {given(&out, IO_OUT, IO_EMULATED_COPY, bytes, length),
                                       native(&in, IO_IN, 99, bytes, length)};
    io_request_t request;
    FAILS(EINVAL, io_request(server, 0, 2, bufv, IO_FOREVER, &request));
    FAILS(EINVAL, io_request(server, 99, 1, bufv, IO_FOREVER, &request));
    CHECK(out.element.location.native.addr == bytes);
    given(&out, IO_OUT, IO_EMULATED_COPY, bytes + 1, length);
    FAILS(EINVAL, io_request(server, 0, 1, bufv, IO_FOREVER, &request));
    given(&out, IO_OUT, IO_EMULATED_COPY, migrant, length);
    FAILS(EINVAL, io_request(server, 0, 1, bufv, IO_FOREVER, &request));
    given(&out, IO_OUT, IO_EMULATED_COPY, own, sizeof own);
    FAILS(EFAULT, io_request(server, 0, 1, bufv, IO_FOREVER, &request));
    given(&out, IO_OUT, IO_EMULATED_MOVE, bytes, length);
    FAILS(EINVAL, io_request(server, 0, 1, bufv, IO_FOREVER, &request));
    struct io_segment segment = {bytes, length};
    memset(segment.addr, 3, segment.length); /* it is the program's still */
    OK(io_free(migrant));
    OK(io_free(bytes));
}

/* A server that does not let the buffer go keeps it; the program knows. */
static void kept(io_server_t server) {
    unsigned char *bytes = io_allocate(0, length);
    memset(bytes, 7, length);
    struct native out;
    struct io_buffer_header *bufv[] = {given(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message = next(server);
    OK(io_abort(request));
    CHECK(out.element.location.native.addr == NULL);
    FAILS(EFAULT, io_free(bytes));
    CHECK(*(unsigned char *)message.bufv[0].segv[0].addr == 7);
    reply(server, &message, NULL);
}

/* The total is of all elements of all headers. */
static void totals(io_server_t server) {
    unsigned char *bytes = io_allocate(0, length), own[500] = {0};
    struct native one, two;
    struct io_receipt total;
    struct io_buffer_header *bufv[] = {given(&one, IO_OUT, IO_EMULATED_COPY, bytes, length),
                                       native(&two, IO_OUT, IO_COPY, own, sizeof own)};
    struct io_scatter_gather third = two.element;
    third.receiptp = NULL; /* one that the program does not ask for counts, too */
    two.element.next_sg = &third;
    one.header.totalp = &total;
    io_request_t request;
    CHECK(io_request(server, 0, 2, bufv, IO_FOREVER, &request) == IO_PENDING);
    struct io_message message = next(server);
    reply(server, &message, NULL);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(total.copied == 2 * sizeof own && total.referenced == one.receipt.referenced && total.referenced > 0);
    CHECK(total.asked == IO_DEFAULT && total.effective == IO_DEFAULT && one.receipt.copied == 0);
    two.element.scheme = third.scheme = IO_EMULATED_COPY; /* of memory that is not the library's */
    CHECK(io_request(server, 0, 2, bufv, IO_FOREVER, &request) == IO_PENDING);
    message = next(server);
    reply(server, &message, NULL);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(total.asked == IO_EMULATED_COPY && total.effective == IO_DEFAULT && total.reason);
    OK(io_free(bytes));
}

static struct io_receipt sent(io_interface_t interface, io_server_t server) {
    unsigned char *bytes = io_allocate(interface, length);
    memset(bytes, 7, length);
    struct native out;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    out.element.flags = IO_HELD;
    OK(io_request(server, 0, 1, bufv, IO_FOREVER, NULL));
    OK(io_free(bytes));
    return out.receipt;
}

/* Thresholds are heeded as soon as they are changed, for servers in other processes, too. */
static void thresholds(io_interface_t interface, io_server_t elsewhere) {
    struct io_thresholds before, now, wanted = {.held = SIZE_MAX};
    OK(io_get_thresholds(interface, &before));
    CHECK(sent(interface, elsewhere).copied == 0);
    OK(io_set_thresholds(interface, &wanted));
    OK(io_get_thresholds(interface, &now));
    CHECK(now.held == SIZE_MAX && now.output == before.output && now.input == before.input);
    CHECK(sent(interface, elsewhere).copied == length);
    OK(io_set_thresholds(interface, NULL));
    OK(io_get_thresholds(interface, &now));
    CHECK(memcmp(&now, &before, sizeof now) == 0);
    CHECK(sent(interface, elsewhere).copied == 0);
    FAILS(EBADF, io_set_thresholds(77777, NULL));
}

/* With the promise, an ordinary user's asynchronous output is protected where the kernel lets it catch the program's stores. */
static void promised(const char *name) {
    struct io_options options = {.size = sizeof options, .thresholds = {.output = 1}, .flags = IO_KERNEL_NEVER_STORES};
    io_interface_t interface;
    OK(io_open(&options, &interface));
    char text[300];
    CHECK(io_doctor(interface, text, sizeof text) > 0);
    io_server_t server;
    OK(io_connect(interface, name, 60000000000, &server));
    unsigned char *bytes = io_allocate(interface, length);
    memset(bytes, 7, length);
    struct native out;
    struct io_buffer_header *bufv[] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length)};
    io_request_t request;
    CHECK(io_request(server, 0, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    if (strstr(text, "is protected"))
        CHECK(out.receipt.copied == 0 && out.receipt.write_protected > 0);
    else
        fprintf(stderr, "SKIP promised: %s\n", text);
    OK(io_free(bytes));
    OK(io_disconnect(server));
    OK(io_close(interface));
    options.flags = 2;
    FAILS(EINVAL, io_open(&options, &interface));
    options = (struct io_options){.size = offsetof(struct io_options, flags)}; /* as an earlier version knew them */
    OK(io_open(&options, &interface));
    OK(io_close(interface));
}

int main(void) {
    char name[40];
    snprintf(name, sizeof name, "by-value-%d", (int)getpid());
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        io_server_t server;
        OK(io_server_register(name, 1, services, 0, &server));
        for (;;) {
            struct io_message message = next(server);
            reply(server, &message, NULL);
        }
    }
    io_server_t server, elsewhere;
    OK(io_connect(0, name, 60000000000, &elsewhere));
    OK(io_server_register(NULL, 1, services, 0, &server));
    for (io_scheme_t scheme = IO_COPY; scheme <= IO_EMULATED_SHARE; scheme++) {
        output(server, scheme);
        input(server, scheme);
    }
    refused(server);
    kept(server);
    totals(server);
    thresholds(0, elsewhere);
    promised(name);
    OK(io_disconnect(elsewhere));
    OK(io_server_unregister(server));
    OK(kill(child, SIGKILL));
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}
