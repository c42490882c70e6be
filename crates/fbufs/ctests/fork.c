/* A child made by fork has nothing of its parent's, finds that out by errors, and works with a pool of its own. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "blocks.h"

static unsigned char *bytes;
static mblk_t *mp;
static char *mapped;
static int channel[2], room, listener;
static const struct uf_settings settings = {.limit = 64u << 20};

static void child(void *ignored) {
    (void)ignored;
    void *all;
    /* Zeros are there, and stores go nowhere. */
    for (size_t i = 0; i < 9000; i++)
        CHECK(bytes[i] == 0);
    bytes[0] = 99;
    CHECK(mapped[0] == 0);
    FAILS(EFAULT, uf_write(1, bytes, 9000));
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 9000));
    FAILS(EFAULT, uf_write(1, mapped, 1));
    FAILS(EFAULT, uf_unmap(mapped, 10));
    FAILS(ESTALE, uf_putmsg(1, mp));
    FAILS(ESTALE, uf_msgbuf(mp, &all));
    CHECK(copymsg(mp) == NULL);
    freemsg(mp);
    unsigned char *own = filled(100, 2);
    CHECK(own != bytes);
    FAILS(ESTALE, uf_write(channel[0], own, 100));
    FAILS(ESTALE, uf_read(channel[1], &all, 1));
    FAILS(ESTALE, uf_explain(channel[0], NULL));
    FAILS(ESTALE, uf_set_nonblocking(channel[0], 1));
    FAILS(ESTALE, uf_accept(listener));
    FAILS(EINVAL, uf_accept(1));
    /* The child's copies can be closed; the parent's channel stays open. */
    OK(uf_close(channel[0]));
    OK(uf_close(channel[1]));
    OK(uf_close(listener));
    int fds[2];
    OK(uf_pair(fds));
    CHECK(uf_write(fds[0], own, 100) == 100);
    CHECK(uf_read(fds[1], &all, 100) == 100);
    expect(all, 100, 0, 2);
    OK(uf_join("children"));
    /* And so on. */
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        FAILS(EFAULT, uf_write(1, all, 100));
        FAILS(ESTALE, uf_write(fds[0], uf_allocate(1), 1));
        OK(uf_join("children"));
        _exit(0);
    }
    ends(grandchild);
}

/* While a thread changes the process's table of descriptors. */
static void *change(void *is_over) {
    int fds[2];
    while (!atomic_load((atomic_int *)is_over))
        CHECK(uf_pair(fds) == 0 && uf_close(fds[0]) == 0 && uf_close(fds[1]) == 0);
    return NULL;
}

/* Makes children while a thread runs. */
static void fork_beside(const char *name, void *(*beside)(void *), void (*part)(void)) {
#ifdef __SANITIZE_ADDRESS__
    /* A thread that allocates has one of its locks now and then. A child forked at that moment waits for it for ever. */
    skip(name, "AddressSanitizer's allocator does not know fork");
    return;
#endif
    (void)name;
    pthread_t thread;
    atomic_int is_over = 0;
    CHECK(pthread_create(&thread, NULL, beside, &is_over) == 0);
    for (int i = 0; i < 300; i++) {
        pid_t forked = fork();
        CHECK(forked >= 0);
        if (forked == 0) {
            part();
            _exit(0);
        }
        ends(forked);
    }
    atomic_store(&is_over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void never_takes_a_channel_for_a_socket(void) {
    FAILS(ESTALE, uf_write(channel[0], uf_allocate(100), 100));
    FAILS(ESTALE, uf_explain(room, NULL));
}

static void *configure(void *is_over) {
    while (!atomic_load((atomic_int *)is_over))
        OK(uf_configure(&settings));
    return NULL;
}

/* Its parent's thread may have been in uf_configure: the child does not wait for that thread, which it lacks. */
static void configures(void) {
    alarm(60);
    OK(uf_configure(&settings));
}

int main(void) {
    char path[100];
    snprintf(path, sizeof path, "%s/listener", directory());
    fork_beside("fork beside uf_configure", configure, configures); /* first: there is no pool yet */
    OK(uf_join("parents"));
    listener = uf_listen(path);
    CHECK(listener >= 0);
    OK(uf_pair(channel));
    room = uf_room(channel[0]);
    bytes = filled(9000, 1);
    mp = prepended(message("parent's"), "a ");
    int self = open("/proc/self/exe", O_RDONLY);
    mapped = uf_mmap(NULL, 10, PROT_READ, MAP_SHARED, self, 0);
    CHECK(mapped != MAP_FAILED && mapped[0] == 0x7f);
    ends(process(child, NULL));
    expect(bytes, 9000, 0, 1);
    is(mp, "a parent's");
    freemsg(mp);
    CHECK(uf_write(channel[0], bytes, 9000) == 9000);
    void *all;
    CHECK(uf_get(channel[1], &all) == 9000 && all == bytes);
    expect(all, 9000, 0, 1);
    CHECK(mapped[0] == 0x7f);
    fork_beside("fork beside uf_pair", change, never_takes_a_channel_for_a_socket);
    remove_directory();
    return 0;
}
