/* Buffers go from one process to another without being copied.
 *
 *     share receive PATH SENDERS     waits for so many senders, and says how much came
 *     share send PATH BUFFERS        sends so many buffers of 64 KiB
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* Ends the program where a call fails. */
#define MUST(call) checked((call), #call)
static ssize_t checked(ssize_t result, const char *call) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", call, uf_error_text());
        exit(1);
    }
    return result;
}

enum { LENGTH = 64 << 10 };

static void send_all(const char *path, int count) {
    int fd = (int)MUST(uf_connect_timeout(path, 10000)); /* the receiver may listen a little later */
    for (int i = 0; i < count; i++) {
        char *buffer = uf_allocate_for(fd, LENGTH);
        MUST(buffer ? 0 : -1);
        memset(buffer, i, LENGTH);
        MUST(uf_write(fd, buffer, LENGTH)); /* from here on it is the receiver's */
    }
    MUST(uf_close(fd)); /* what was written can still be read */
}

static long long received;

/* Takes all that there is now; returns 1 when the sender has closed its end, and 0 when there may be more later. */
static int take_all(int fd) {
    void *buffer;
    ssize_t count;
    while ((count = uf_get(fd, &buffer)) > 0) {
        received += count; /* work on the bytes here: nobody else has them */
        uf_deallocate(buffer, (size_t)count);
    }
    if (count < 0 && errno == EAGAIN)
        return 0; /* epoll reports the next buffer */
    MUST(count);
    MUST(uf_close(fd));
    return 1;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    MUST(uf_set_nonblocking(fd, 1));
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        exit(1);
}

static void receive(const char *path, int senders) {
    int listener = (int)MUST(uf_listen(path)), epoll = epoll_create1(0), fd;
    struct epoll_event event;
    watch(epoll, listener);
    while (senders > 0) {
        if (epoll_wait(epoll, &event, 1, -1) != 1)
            continue;
        if (event.data.fd != listener) {
            senders -= take_all(event.data.fd);
            continue;
        }
        while ((fd = uf_accept(listener)) >= 0) {
            watch(epoll, fd);
            senders -= take_all(fd); /* until EAGAIN: from then on epoll reports what comes */
        }
        if (errno != EAGAIN)
            MUST(fd);
    }
    MUST(uf_close(listener));
    printf("%lld bytes\n", received);
}

int main(int argc, char **argv) {
    if (argc != 4 || (strcmp(argv[1], "send") && strcmp(argv[1], "receive"))) {
        fprintf(stderr, "usage: share receive PATH SENDERS, or share send PATH BUFFERS\n");
        return 2;
    }
    MUST(uf_join("share")); /* all fbufs of this process are of the group's pool from now on */
    if (argv[1][0] == 's')
        send_all(argv[2], atoi(argv[3]));
    else
        receive(argv[2], atoi(argv[3]));
    return 0;
}
