/* Batches: a server that sleeps is woken once for several requests, and never too late for a thread that looks for a reply. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const struct io_service_mapping services[] = {{.name = "any", .flags = IO_READ | IO_WRITE}};
static io_server_t server, client;
static char name[40];
static atomic_int is_connected;

static void *connecting(void *nothing) {
    OK(io_connect(0, name, 60000000000, &client));
    is_connected = 1;
    return nothing;
}

/* Serves what was asked, until there is nothing more; returns how many requests that were. */
static int serve(void) {
    struct io_message message;
    for (int count = 0;;) {
        OK(io_server(server, NULL, &message, 0));
        if (message.what == IO_NO_MESSAGE)
            return count;
        if (message.what != IO_REQUEST)
            continue;
        struct io_reply_message reply = {.request = message.request};
        OK(io_server(server, &reply, NULL, 0));
        count++;
    }
}

static int is_woken(void) {
    struct pollfd watched = {.fd = io_server_descriptor(server), .events = POLLIN};
    return poll(&watched, 1, 0);
}

static io_request_t submit(void) {
    io_request_t request;
    CHECK(io_request(client, 0, 0, NULL, IO_FOREVER, &request) == IO_PENDING);
    return request;
}

static void *ends_in_a_batch(void *request) {
    OK(io_begin_batch());
    *(io_request_t *)request = submit();
    CHECK(!is_woken());
    return NULL;
}

int main(void) {
    snprintf(name, sizeof name, "batches-%d", (int)getpid());
    OK(io_server_register(name, 1, services, 0, &server));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, connecting, NULL) == 0);
    alarm(120);
    while (!is_connected) {
        serve();
        poll(&(struct pollfd){.fd = io_server_descriptor(server), .events = POLLIN}, 1, 10);
    }
    CHECK(pthread_join(thread, NULL) == 0);

    /* The connection is made before the server looks at the client's ring, and it does when it has served a request. */
    io_request_t first = submit();
    while (serve() == 0)
        poll(&(struct pollfd){.fd = io_server_descriptor(server), .events = POLLIN}, 1, 10);
    OK(io_sync(first, IO_NORMAL, 0, NULL, IO_FOREVER));

    FAILS(EINVAL, io_end_batch());
    for (int round = 0; round < 3; round++) {
        io_request_t requests[3];
        serve();
        CHECK(!is_woken());
        OK(io_begin_batch());
        FAILS(EBUSY, io_begin_batch());
        for (int i = 0; i < 3; i++)
            requests[i] = submit();
        CHECK(!is_woken());
        if (round == 0)
            OK(io_end_batch());
        else if (round == 1)
            CHECK(io_sync(requests[2], IO_NORMAL, 0, NULL, 0) == IO_PENDING); /* looks for a reply */
        else
            io_collect(0);
        CHECK(is_woken());
        CHECK(serve() == 3);
        for (int i = 0; i < 3; i++)
            OK(io_sync(requests[i], IO_NORMAL, 0, NULL, IO_FOREVER));
        if (round > 0)
            OK(io_end_batch());
    }

    /* A batch is its thread's, and ends with it. */
    io_request_t request, other;
    serve();
    CHECK(pthread_create(&thread, NULL, ends_in_a_batch, &request) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(is_woken());
    FAILS(EINVAL, io_end_batch());
    CHECK(serve() == 1);
    OK(io_sync(request, IO_NORMAL, 0, NULL, IO_FOREVER));

    /* A child made by fork has begun none, and does not end its parent's. */
    OK(io_begin_batch());
    other = submit();
    pid_t child = fork();
    if (child == 0) {
        FAILS(EINVAL, io_end_batch());
        OK(io_begin_batch());
        OK(io_end_batch());
        /* Does not exit: valgrind would miss what the stacks of the parent's threads have. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!is_woken());
    OK(io_end_batch());
    CHECK(is_woken());
    CHECK(serve() == 1);
    OK(io_sync(other, IO_NORMAL, 0, NULL, IO_FOREVER));
    OK(io_disconnect(client));
    OK(io_server_unregister(server));
    return 0;
}
