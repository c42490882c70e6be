/* A server registers its clients: when one ends, however it does, the server is called, and the client's buffers are back. */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include <sys/stream.h>

#include "check.h"

static char path[100];
static atomic_uintptr_t called, called_too;
static atomic_int stray;

static void gone(void *handle) {
    called = (uintptr_t)handle;
}

static void gone_too(void *handle) {
    called_too = (uintptr_t)handle;
    uf_deregister(handle, gone_too); /* a callback may end its registration */
}

static void never(void *handle) {
    (void)handle;
    stray = 1;
}

static void client(void *ignored) {
    (void)ignored;
    OK(uf_join("served"));
    int fd = uf_connect(path);
    CHECK(fd >= 0 && uf_allocate(2u << 20));
    char *bytes = uf_allocate(sizeof(pid_t));
    memcpy(bytes, &(pid_t){getpid()}, sizeof(pid_t));
    CHECK(uf_write(fd, bytes, sizeof(pid_t)) == sizeof(pid_t));
    /* The server's message, in a buffer of the pool that both have. */
    void *all;
    CHECK(uf_get(fd, &all) == 5 && memcmp(all, "hello", 5) == 0);
    char *done = uf_allocate(1);
    CHECK(uf_write(fd, done, 1) == 1);
    pause();
}

static _Atomic(void *) handles[2];
static atomic_int begun, ended;

static void gone_with_the_other(void *handle) {
    begun++;
    while (begun < 2)
        usleep(1000);
    uf_deregister(handle == handles[0] ? handles[1] : handles[0], gone_with_the_other);
    ended++;
}

static void join_and_pause(void *to) {
    OK(uf_join("served"));
    CHECK(write(*(int *)to, "j", 1) == 1);
    pause();
}

/* Two callbacks that run at once end each other's registration: neither waits for the other. */
static void each_ends_the_other(void) {
    int fds[2];
    pid_t children[2];
    char byte;
    OK(pipe(fds));
    for (int i = 0; i < 2; i++) {
        children[i] = process(join_and_pause, &fds[1]);
        CHECK(read(fds[0], &byte, 1) == 1);
        CHECK((handles[i] = uf_register(&children[i], gone_with_the_other)));
    }
    for (int i = 0; i < 2; i++)
        CHECK(kill(children[i], SIGKILL) == 0 && waitpid(children[i], NULL, 0) == children[i]);
    while (ended < 2)
        usleep(1000);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        uf_deregister(handles[i], gone_with_the_other);
        CHECK(errno == EINVAL);
    }
}

static void wait_for(atomic_uintptr_t *number, void *handle) {
    while (*number != (uintptr_t)handle)
        usleep(1000);
}

static void serve(int listener) {
    pid_t child = process(client, NULL);
    int fd = uf_accept(listener);
    void *all, *handle, *second, *third;
    pid_t number;
    CHECK(fd >= 0 && uf_get(fd, &all) == sizeof number);
    memcpy(&number, all, sizeof number);
    CHECK(number == child && uf_deallocate(all, sizeof number) == NULL);
    CHECK((handle = uf_register(&number, gone)) && (second = uf_register(&number, gone_too)));
    CHECK((third = uf_register(&number, never)) && handle != second && second != third);
    mblk_t *mp = uf_allocb(handle, 10);
    CHECK(mp);
    memcpy(mp->b_wptr, "hello", 5);
    mp->b_wptr += 5;
    CHECK(uf_putmsg(fd, mp) == 5);
    CHECK(uf_get(fd, &all) == 1 && uf_deallocate(all, 1) == NULL);
    uf_deregister(third, never);
    errno = 0;
    uf_deregister(third, never);
    CHECK(errno == EINVAL);
    errno = 0;
    uf_deregister(handle, never); /* another's */
    CHECK(errno == EINVAL);
    FAILS_WITH(NULL, EINVAL, uf_allocb(third, 1));
    /* The client has half of the pool, which is not to be had before it ends. */
    FAILS_WITH(NULL, ENOMEM, uf_allocate(3u << 20));
    CHECK(called == 0 && called_too == 0);
    OK(kill(child, SIGKILL));
    wait_for(&called, handle);
    wait_for(&called_too, second);
    all = uf_allocate(4u << 20);
    CHECK(all && uf_deallocate(all, 1) == NULL);
    errno = 0;
    uf_deregister(second, gone_too); /* it has done so itself */
    CHECK(errno == EINVAL);
    uf_deregister(handle, gone);
    CHECK(waitpid(child, NULL, 0) == child);
    called = called_too = 0;
    OK(uf_close(fd));
}

int main(void) {
    snprintf(path, sizeof path, "%s/served", directory());
    struct uf_settings settings = {.limit = 4u << 20};
    OK(uf_configure(&settings));
    pid_t self = getpid(), parent = getppid(), none = -1;
    FAILS_WITH(NULL, ESRCH, uf_register(&self, gone)); /* no group yet */
    OK(uf_join("served"));
    FAILS_WITH(NULL, ESRCH, uf_register(&parent, gone));
    FAILS_WITH(NULL, ESRCH, uf_register(&none, gone));
    FAILS_WITH(NULL, EFAULT, uf_register(NULL, gone));
    FAILS_WITH(NULL, EFAULT, uf_register(&self, NULL));
    int listener = uf_listen(path);
    CHECK(listener >= 0);
    for (int turn = 0; turn < 10; turn++)
        serve(listener);
    each_ends_the_other();
    /* One that is registered until the end, of a process that lives, is never called. */
    CHECK(uf_register(&self, never));
    CHECK(!stray);
    remove_directory();
    return 0;
}
