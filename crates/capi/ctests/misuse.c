/* What is used wrongly gets an error, and harms nothing. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper.h"

/* Every call that names an interface, a server or a request fails with this errno. */
static void names_nothing(int error, io_interface_t interface, io_server_t server, io_request_t request) {
    struct io_thresholds thresholds;
    struct io_message message;
    struct io_layout layout = {0};
    io_server_t found;
    FAILS(error, io_get_thresholds(interface, &thresholds));
    FAILS(error, io_set_thresholds(interface, NULL));
    FAILS(error, io_set_limits(interface, 1, 1));
    FAILS(error, io_set_scheme(interface, IO_COPY));
    FAILS(error, io_doctor(interface, NULL, 0));
    FAILS(error, io_connect(interface, "nobody", 0, &found));
    FAILS(error, io_connect_with(interface, "nobody", NULL, &found));
    FAILS(error, io_descriptor(interface));
    FAILS(error, io_arm(interface));
    FAILS(error, io_collect(interface));
    FAILS(error, io_close(interface));
    errno = 0;
    CHECK(!io_allocate(interface, 1) && errno == error);
    errno = 0;
    CHECK(!io_allocate_at(interface, 1, 1) && errno == error);
    errno = 0;
    CHECK(!io_allocate_migrant(interface, 1, 1) && errno == error);
    FAILS(error, io_disconnect(server));
    FAILS(error, io_is_gone(server));
    FAILS(error, io_service(server, "store"));
    FAILS(error, io_preferred(server, STORE, NULL, 0, &layout));
    FAILS(error, io_layout_is_stale(server, &layout));
    FAILS(error, io_server_prefer(server, STORE, &layout));
    FAILS(error, io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    FAILS(error, io_flush(server, 0));
    FAILS(error, io_server_unregister(server));
    FAILS(error, io_server(server, NULL, &message, 0));
    FAILS(error, io_ready(server, 1, 0));
    FAILS(error, io_keep(server, 1, 0, &(void *){NULL}));
    FAILS(error, io_progress(server, 1, 0, 0));
    FAILS(error, io_is_aborted(server, 1));
    FAILS(error, io_anticipate(server, &(struct io_reply_message){.request = 1}));
    FAILS(error, io_server_watch(server, 0));
    FAILS(error, io_server_descriptor(server));
    FAILS(error, io_sync(request, IO_NORMAL, 0, NULL, 0));
    FAILS(error, io_wait_for_progress(request, 0, 0, 0, NULL));
    FAILS(error, io_abort(request));
}

int main(void) {
    io_server_t server;
    pthread_t thread = keeper_start(NULL, &server);
    size_t length = 1u << 20;
    unsigned char *bytes = io_allocate(0, length);
    CHECK(bytes);
    struct native out, in;
    struct io_buffer_header *bufv[2] = {native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length), NULL};
    io_request_t request;

    /* Handles that name nothing, or something else. */
    FAILS(EBADF, io_request(0, STORE, 1, bufv, IO_FOREVER, NULL));
    FAILS(EBADF, io_request(server + 1000, STORE, 1, bufv, IO_FOREVER, NULL));
    FAILS(EBADF, io_sync(0, IO_NORMAL, 0, NULL, 0));
    FAILS(EBADF, io_sync(server, IO_NORMAL, 0, NULL, 0));
    FAILS(EBADF, io_abort(12345));
    FAILS(EBADF, io_close(77777));
    FAILS(EBADF, io_disconnect(77777));
    FAILS(EBADF, io_server_unregister(77777));
    FAILS(EINVAL, io_disconnect(server));
    FAILS(EBADF, io_ready(server, 5, 0));
    errno = 0;
    CHECK(!io_allocate(77777, 10) && errno == EBADF);
    errno = 0;
    CHECK(!io_allocate(0, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!io_allocate(0, (size_t)1 << 60) && errno != 0);

    names_nothing(EBADF, 77777, 77777, 77777);
    errno = 0;
    CHECK(!io_allocate_at(0, 1, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!io_allocate_migrant(0, 0, 1) && errno == EINVAL);
    FAILS(EINVAL, io_connect(0, NULL, 0, &server));
    FAILS(EINVAL, io_service(server, NULL));

    /* More than may be pending. */
    OK(io_set_limits(0, 1u << 30, 1));
    CHECK(io_request(server, HOLD, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    FAILS(EAGAIN, io_request(server, STORE, 0, NULL, IO_FOREVER, &(io_request_t){0}));
    FAILS(ETIMEDOUT, io_flush(server, 0));
    OK(io_abort(request));
    OK(io_set_limits(0, 1u << 30, 65536));

    /* Headers and lists. */
    FAILS(EINVAL, io_request(server, STORE, 1, NULL, IO_FOREVER, NULL));
    FAILS(EINVAL, io_request(server, STORE, 2, bufv, IO_FOREVER, NULL));
    FAILS(EINVAL, io_request(server, 99, 1, bufv, IO_FOREVER, NULL));
    out.header.direction = 2;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.header.direction = IO_OUT;
    out.element.scheme = 10;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.scheme = IO_COPY;
    out.element.flags = 6;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.flags = 0;
    out.element.next_sg = &out.element;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.next_sg = NULL;
    out.element.location.native.addr = NULL;
    FAILS(EFAULT, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.location.native.addr = bytes;
    out.element.length = length + 1;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.length = SIZE_MAX;
    FAILS(EFAULT, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.length = length;
    out.element.location.native.lender = 4711;
    FAILS(EBADF, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    out.element.location.native.lender = 0;
    struct io_buffer_header argument = {.out_arg = "a", .out_arg_length = 1}, another = argument;
    struct io_buffer_header *arguments[] = {&argument, &another};
    FAILS(EINVAL, io_request(server, GREET, 2, arguments, IO_FOREVER, NULL));
    argument = (struct io_buffer_header){.in_arg_length = 5};
    FAILS(EFAULT, io_request(server, GREET, 1, arguments, IO_FOREVER, NULL));

    /* The direction that the service may not access, and inputs that overlap. */
    bufv[0] = native(&in, IO_IN, IO_EMULATED_COPY, bytes, length);
    bufv[1] = native(&out, IO_IN, IO_COPY, bytes + length / 2, 100);
    FAILS(EINVAL, io_request(server, FETCH, 2, bufv, IO_FOREVER, NULL));
    FAILS(EINVAL, io_request(server, FETCH, 2, bufv, IO_FOREVER, &request));

    /* An input that an output shares, or that is given twice with nothing between. */
    bufv[0] = native(&in, IO_IN, IO_COPY, bytes, length);
    bufv[1] = native(&out, IO_OUT, IO_EMULATED_SHARE, bytes + 10, 100);
    FAILS(EINVAL, io_request(server, HOLD, 2, bufv, IO_FOREVER, NULL));
    struct native empty;
    native(&in, IO_IN, IO_COPY, bytes, 100);
    in.element.next_sg = &empty.element;
    native(&empty, IO_IN, IO_COPY, bytes + 50, 0);
    empty.element.next_sg = &out.element;
    native(&out, IO_IN, IO_COPY, bytes + 60, 10);
    FAILS(EINVAL, io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));

    /* Migrant and native buffers in each other's place. */
    unsigned char *migrant = io_allocate_migrant(0, length, 1);
    struct io_region region = {.count = 1, .segmentv = {{bytes, length}}};
    bufv[0] = native(&out, IO_OUT, IO_MOVE, NULL, 0);
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL)); /* no region */
    out.element.location.region = &region;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL)); /* native */
    region.segmentv[0].addr = migrant + 1;
    FAILS(EFAULT, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    region.segmentv[0] = (struct io_segment){migrant, length - 1};
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    region.count = 0;
    FAILS(EINVAL, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    /* A failure gives the buffer back. */
    region = (struct io_region){.count = 1, .segmentv = {{migrant, length}}};
    memset(migrant, 7, length);
    FAILS(ENOSPC, io_request(server, FAIL, 1, bufv, IO_FOREVER, NULL));
    migrant = region.segmentv[0].addr;
    CHECK(migrant[0] == 7 && migrant[length - 1] == 7);
    /* A server that keeps the buffer leaves nothing to be freed. */
    struct io_region lost = {.count = 1, .segmentv = {{io_allocate_migrant(0, length, 1), length}}};
    out.element.location.region = &lost;
    FAILS(ETIMEDOUT, io_request(server, HOLD, 1, bufv, 1000000, NULL));
    OK(io_free(lost.segmentv[0].addr)); /* it came back, or is NULL */
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    out.element.location.region = &region;
    /* The same buffer twice in one request: refused, and still there. */
    struct native twice;
    bufv[1] = native(&twice, IO_OUT, IO_MOVE, NULL, 0);
    twice.element.location.region = &region;
    FAILS(EFAULT, io_request(server, STORE, 2, bufv, IO_FOREVER, NULL));
    CHECK(migrant[0] == 7);
    /* Named by a native scheme in a pending request, it can neither be moved nor freed. */
    bufv[0] = native(&in, IO_IN, IO_COPY, migrant, length);
    CHECK(io_request(server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    FAILS(EBUSY, io_request(server, STORE, 1, bufv + 1, IO_FOREVER, NULL));
    FAILS(EBUSY, io_free(migrant));
    OK(io_abort(request));
    OK(io_free(migrant));
    FAILS(EFAULT, io_free(migrant));
    FAILS(EFAULT, io_free(bytes + 1));
    OK(io_free(NULL));

    /* Output by copy may be freed as soon as the request has been made. */
    unsigned char *brief = io_allocate(0, length);
    memset(brief, 9, length);
    bufv[0] = native(&out, IO_OUT, IO_EMULATED_COPY, brief, length);
    CHECK(io_request(server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    OK(io_free(brief));
    OK(io_request(server, RELEASE, 0, NULL, IO_FOREVER, NULL));
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));
    unsigned char first = 0;
    bufv[0] = native(&in, IO_IN, IO_COPY, &first, 1);
    OK(io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));

    /* Delivery. */
    bufv[0] = native(&in, IO_IN, IO_COPY, bytes, length);
    CHECK(io_request(server, HOLD, 1, bufv, IO_FOREVER, &request) == IO_PENDING);
    FAILS(EINVAL, io_sync(request, 3, 0, NULL, 0));
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 1, NULL, 0));
    struct native elsewhere;
    struct io_buffer_header *twiceover[] = {native(&elsewhere, IO_IN, IO_COPY, bytes, 10), &out.header};
    native(&out, IO_IN, IO_COPY, bytes + 5, 10);
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 2, twiceover, 0));
    /* Data goes to native elements, inside their buffers. */
    struct io_buffer_header **to = twiceover;
    elsewhere.element.scheme = IO_MOVE;
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 1, to, 0));
    FAILS(EINVAL, io_sync(request, IO_REDIRECTED, 1, to, 0));
    elsewhere.element.scheme = IO_COPY;
    elsewhere.element.flags = 99;
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 1, to, 0));
    elsewhere.element.flags = 0;
    elsewhere.element.length = length + 1;
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 1, to, 0));
    elsewhere.header.direction = 5;
    FAILS(EINVAL, io_sync(request, IO_PEEKED, 1, to, 0));
    OK(io_abort(request));

    /* What is where buffers are, and in none: freed before, or passed. */
    unsigned char *gone = io_allocate(0, length);
    OK(io_free(gone));
    bufv[0] = native(&out, IO_OUT, IO_COPY, gone, length);
    FAILS(EFAULT, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    bufv[0] = native(&in, IO_IN, IO_EMULATED_COPY, gone, length);
    FAILS(EFAULT, io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
    /* Bytes that begin in no buffer, and reach into one. */
    unsigned char *after = io_allocate_at(0, 1000, length);
    bufv[0] = native(&in, IO_IN, IO_COPY, after - 1000, length);
    FAILS(EINVAL, io_request(server, FETCH, 1, bufv, IO_FOREVER, NULL));
    OK(io_free(after));
    /* One region cannot name two buffers that arrive. */
    struct io_region arrival = {.count = 1};
    struct native another_in;
    bufv[0] = native(&in, IO_IN, IO_MOVE, NULL, length);
    bufv[1] = native(&another_in, IO_IN, IO_MOVE, NULL, length);
    in.element.location.region = another_in.element.location.region = &arrival;
    FAILS(EINVAL, io_request(server, FETCH, 2, bufv, IO_FOREVER, NULL));

    /* Fragments of requests that nobody holds. */
    bufv[0] = native(&out, IO_OUT, IO_FRAGMENT, NULL, 10);
    out.element.location.fragment = (struct io_fragment_location){.server = server, .request = 99};
    FAILS(EBADF, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));

    /* Layouts for nobody. */
    struct io_layout layout = {.length = 1};
    FAILS(EINVAL, io_preferred(server, 99, NULL, 0, &layout));
    FAILS(EINVAL, io_preferred(server, STORE, NULL, 0, NULL));
    FAILS(EFAULT, io_preferred(server, STORE, NULL, 1, &layout));
    FAILS(EINVAL, io_layout_is_stale(server, NULL));
    FAILS(EINVAL, io_server_prefer(server, 99, &layout));

    /* Servers that are registered wrongly, replies to nothing. */
    io_server_t other;
    FAILS(EINVAL, io_server_register(NULL, 0, NULL, 0, &other));
    struct io_service_mapping many[257] = {{0}};
    FAILS(EINVAL, io_server_register(NULL, 257, many, 0, &other));
    FAILS(EINVAL, io_server_register("a/b", 1, keeper_services, 0, &other));
    struct io_service_mapping wrong = {.name = "a", .flags = 8};
    FAILS(EINVAL, io_server_register(NULL, 1, &wrong, 0, &other));
    wrong = (struct io_service_mapping){0};
    FAILS(EINVAL, io_server_register(NULL, 1, &wrong, 0, &other));
    struct io_reply_message reply = {.request = 3};
    FAILS(EBADF, io_server(server, &reply, NULL, 0));
    FAILS(EINVAL, io_set_scheme(0, IO_MOVE));
    CHECK(io_set_scheme(0, IO_COPY) == IO_EMULATED_COPY);
    bufv[0] = native(&out, IO_OUT, IO_DEFAULT, bytes, length);
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    CHECK(out.receipt.asked == IO_COPY && out.receipt.copied == length);
    CHECK(io_set_scheme(0, IO_EMULATED_COPY) == IO_COPY);
    struct io_options options = {.size = 3};
    io_interface_t interface;
    FAILS(EINVAL, io_open(&options, &interface));
    options = (struct io_options){.size = sizeof options, .pending_bytes = 1000, .thresholds = {.held = 1}};
    OK(io_open(&options, &interface));
    struct io_thresholds thresholds;
    OK(io_get_thresholds(interface, &thresholds));
    CHECK(thresholds.held == 1 && thresholds.output > 0);
    char text[20];
    CHECK(io_doctor(0, text, sizeof text) > 20 && strlen(text) == 19);
    for (int error = 0; error < 140; error++)
        CHECK(*io_strerror(error));

#ifdef __SANITIZE_ADDRESS__
    /* Its allocator is in a child as it is at the fork, locks included: let the threads that were started fall asleep. */
    usleep(200000);
#endif
    /* A child has nothing of its parent's, and can have its own. */
    pid_t child = fork();
    if (child == 0) {
        bufv[0] = native(&out, IO_OUT, IO_COPY, text, sizeof text);
        FAILS(ECHILD, io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
        FAILS(ECHILD, io_sync(request, IO_NORMAL, 0, NULL, 0));
        names_nothing(ECHILD, interface, server, request);
        FAILS(EFAULT, io_free(bytes));
        CHECK(bytes[0] == 0);
        io_server_t own;
        pthread_t serving = keeper_start(NULL, &own);
        CHECK(own != server);
        OK(io_request(own, STORE, 1, bufv, IO_FOREVER, NULL));
        bufv[0] = native(&out, IO_OUT, IO_COPY, bytes, length);
        FAILS(EFAULT, io_request(own, STORE, 1, bufv, IO_FOREVER, NULL));
        bufv[0] = native(&out, IO_IN, IO_COPY, bytes, length);
        FAILS(EFAULT, io_request(own, FETCH, 1, bufv, IO_FOREVER, NULL));
        keeper_end(&own, serving);
        /* No descriptors are left. */
        struct rlimit limit;
        OK(getrlimit(RLIMIT_NOFILE, &limit));
        rlim_t before = limit.rlim_cur;
        int next = dup(0);
        close(next);
        limit.rlim_cur = (rlim_t)next;
        OK(setrlimit(RLIMIT_NOFILE, &limit));
        FAILS(EMFILE, io_open(NULL, &interface));
        FAILS(EMFILE, io_server_register(NULL, 1, keeper_services, 0, &own));
        FAILS(EMFILE, io_connect(0, "nobody", 0, &own));
        FAILS(EMFILE, io_descriptor(0));
        limit.rlim_cur = before;
        OK(setrlimit(RLIMIT_NOFILE, &limit));
        /* So that leaks are not looked for: the child has lost what was on the stacks of its parent's threads. */
        execlp("true", "true", (char *)NULL);
        CHECK(!"exec");
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    OK(io_close(interface));
    FAILS(EBADF, io_close(interface));
    bufv[0] = native(&out, IO_OUT, IO_EMULATED_COPY, bytes, length);
    OK(io_request(server, STORE, 1, bufv, IO_FOREVER, NULL));
    OK(io_free(bytes));
    keeper_end(&server, thread);
    return 0;
}
