/* Event loops: what does not block is waited for by poll and epoll, and no wake-up is lost. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "check.h"

enum { MESSAGES = 100000, GUARD = 60000 /* ms: a test that hangs ends */ };

enum { POLL, LEVEL, EDGE, WAYS };

static char path[100];

static void wait_by_poll(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&polled, 1, GUARD) == 1 && polled.revents);
}

/* Both sides work in bursts, so that each finds the other one awake, asleep, and about to fall asleep. */
static void pause_now_and_then(unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    unsigned chance = *seed >> 16;
    if (chance % 64 == 0)
        usleep(chance % 3 * 20);
}

static void writer(void *ignored) {
    (void)ignored;
    OK(uf_join("loops"));
    int fd = uf_connect(path), room;
    unsigned seed = 1;
    CHECK(fd >= 0 && (room = uf_room(fd)) >= 0);
    OK(uf_set_nonblocking(fd, 1));
    for (int i = 0; i < MESSAGES; i++) {
        int *message = uf_allocate(sizeof i);
        CHECK(message);
        *message = i;
        while (uf_write(fd, message, sizeof i) != sizeof i) {
            CHECK(errno == EAGAIN);
            wait_by_poll(room);
        }
        pause_now_and_then(&seed);
    }
    /* It is waited for, too, that the other end is closed. */
    void *none;
    ssize_t count;
    while ((count = uf_get(fd, &none)) != 0) {
        CHECK(count == -1 && errno == EAGAIN);
        wait_by_poll(fd);
    }
    OK(uf_close(fd));
}

/* Reads until EAGAIN; returns whether there is more to come. */
static int read_all(int fd, int *next, unsigned *seed) {
    void *bytes;
    ssize_t count;
    while ((count = uf_get(fd, &bytes)) > 0) {
        CHECK(count == sizeof *next && memcmp(bytes, next, sizeof *next) == 0);
        CHECK(uf_deallocate(bytes, (size_t)count) == NULL);
        *next += 1;
        pause_now_and_then(seed);
    }
    CHECK(count == 0 || errno == EAGAIN);
    return count != 0 && *next < MESSAGES;
}

static void reader(int listener, int way) {
    pid_t child = process(writer, NULL);
    int fd = uf_accept(listener), poller = epoll_create1(0), next = 0;
    unsigned seed = (unsigned)way + 2;
    CHECK(fd >= 0 && poller >= 0);
    OK(uf_set_nonblocking(fd, 1));
    struct epoll_event event = {.events = way == EDGE ? EPOLLIN | EPOLLRDHUP | EPOLLET : EPOLLIN};
    OK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event));
    while (read_all(fd, &next, &seed)) {
        if (way == POLL)
            wait_by_poll(fd);
        else
            CHECK(epoll_wait(poller, &event, 1, GUARD) == 1);
    }
    CHECK(next == MESSAGES);
    OK(close(poller));
    OK(uf_close(fd));
    ends(child);
}

static void is_readable(int fd, int readable) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&polled, 1, 0) == readable);
}

static void one_by_one(void) {
    int fds[2], sockets[2];
    void *bytes;
    OK(uf_pair(fds));
    OK(uf_set_nonblocking(fds[0], 1));
    OK(uf_set_nonblocking(fds[1], 1));
    for (int turn = 0; turn < 3; turn++) {
        FAILS(EAGAIN, uf_get(fds[1], &bytes));
        is_readable(fds[1], 0);
        CHECK(uf_write(fds[0], filled(10, 1), 10) == 10);
        is_readable(fds[1], 1);
        CHECK(uf_read(fds[1], &bytes, 4) == 4 && uf_deallocate(bytes, 4) == NULL);
        CHECK(uf_read(fds[1], &bytes, 10) == 6 && uf_deallocate(bytes, 6) == NULL);
    }
    int room = uf_room(fds[0]);
    CHECK(room >= 0 && uf_room(fds[0]) == room);
    while (uf_write(fds[0], filled(1, 1), 1) == 1)
        continue;
    CHECK(errno == EAGAIN);
    is_readable(room, 0);
    for (int i = 0; i < 64; i++) /* so many are waited for */
        CHECK(uf_get(fds[1], &bytes) == 1);
    is_readable(room, 1);
    OK(uf_close(fds[1]));
    is_readable(room, 1);
    is_readable(fds[0], 1);
    OK(uf_close(fds[0]));
    FAILS(EBADF, uf_room(fds[0]));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    FAILS(EINVAL, uf_room(sockets[0]));
    FAILS(EBADF, uf_room(-1));
}

int main(void) {
    snprintf(path, sizeof path, "%s/loops", directory());
    one_by_one();
    OK(uf_join("loops"));
    int listener = uf_listen(path);
    CHECK(listener >= 0);
    for (int way = POLL; way < WAYS; way++)
        reader(listener, way);
    OK(uf_close(listener));
    remove_directory();
    return 0;
}
