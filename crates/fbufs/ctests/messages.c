/* Messages: headers are put in front, messages are cut and joined, and no byte is copied on the way. */
#include <stdint.h>
#include <sys/socket.h>

#include "check.h"

/* The message's bytes are these. */
static void is(mblk_t *mp, const char *text) {
    size_t at = 0, length = strlen(text);
    void *bytes;
    CHECK(uf_msgdsize(mp) == (ssize_t)length);
    for (int i = 0; at < length; i++) {
        ssize_t count = uf_block(mp, i, &bytes);
        CHECK(count >= 0 && memcmp(bytes, text + at, (size_t)count) == 0);
        at += (size_t)count;
    }
}

static char *block(mblk_t *mp, int index) {
    void *bytes;
    CHECK(uf_block(mp, index, &bytes) >= 0);
    return bytes;
}

static mblk_t *message(const char *text) {
    mblk_t *mp = uf_allocb(NULL, 64);
    CHECK(mp);
    OK(uf_append(mp, text, strlen(text)));
    return mp;
}

/* A stack of modules: a packet gets headers, and is cut where it is too long for the next module. */
static void down_a_stack(int to, int from, int passes) {
    char *bytes = uf_allocate(100);
    memcpy(bytes + 20, "payload", 7);
    mblk_t *mp = uf_esballoc(bytes + 20, 7);
    CHECK(mp);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 100)); /* it is the message's */
    OK(uf_prepend(mp, "tcp ", 4));
    OK(uf_prepend(mp, "ip ", 3));
    is(mp, "ip tcp payload");
    CHECK(block(mp, 0) == bytes + 13); /* in the buffer itself */
    OK(uf_adjmsg(mp, 3));
    is(mp, "tcp payload");
    mblk_t *rest = uf_split(mp, 7);
    CHECK(rest);
    is(mp, "tcp pay");
    is(rest, "load");
    CHECK(block(rest, 0) == bytes + 23);
    /* Both name the buffer, so a header gets a block of its own, and the bytes stay. */
    OK(uf_prepend(rest, "tcp ", 4));
    is(rest, "tcp load");
    CHECK(block(rest, 1) == bytes + 23);
    OK(uf_linkb(mp, rest));
    FAILS(EFAULT, uf_msgdsize(rest));
    is(mp, "tcp paytcp load");
    OK(uf_pullupmsg(mp, 15));
    is(mp, "tcp paytcp load");
    FAILS(EINVAL, uf_block(mp, 1, &(void *){0}));
    OK(uf_adjmsg(mp, -4));
    is(mp, "tcp paytcp ");
    char *place = block(mp, 0);
    CHECK(uf_putmsg(to, mp) == 11);
    FAILS(EFAULT, uf_freemsg(mp));
    void *all;
    CHECK(uf_get(from, &all) == 11 && memcmp(all, "tcp paytcp ", 11) == 0);
    CHECK(!passes || all == (void *)place);
    CHECK(uf_deallocate(all, 11) == NULL);
}

static void duplicates(void) {
    mblk_t *mp = message("abc"), *same = uf_dupmsg(mp);
    CHECK(same && same != mp && block(same, 0) == block(mp, 0));
    OK(uf_append(same, "de", 2));
    is(mp, "abc");
    is(same, "abcde");
    /* A shared buffer is copied, another one is not. */
    void *one, *other;
    char *place = block(mp, 0);
    CHECK(uf_msgbuf(same, &one) == 5 && memcmp(one, "abcde", 5) == 0 && one != (void *)place);
    FAILS(EFAULT, uf_freemsg(same));
    CHECK(uf_msgbuf(mp, &other) == 3 && other == (void *)place);
    CHECK(uf_deallocate(one, 5) == NULL && uf_deallocate(other, 3) == NULL);
}

/* Where there is room for a part, that part is written, and the message keeps the rest. */
static void nonblocking(int to, int from, int passes) {
    OK(uf_set_nonblocking(to, 1));
    size_t filled = 0, found = 0, length = passes ? 1 : 30000;
    mblk_t *mp;
    ssize_t count;
    void *all;
    do {
        CHECK((mp = uf_esballoc(uf_allocate(length), length)));
        if (passes) { /* a message of three fbufs, for which 256 have no room in the end */
            mblk_t *second = uf_esballoc(uf_allocate(length), length), *third = uf_esballoc(uf_allocate(length), length);
            CHECK(second && third && uf_linkb(mp, second) == 0 && uf_linkb(mp, third) == 0);
        }
        count = uf_putmsg(to, mp);
        CHECK(count > 0 || (count == -1 && errno == EAGAIN && !passes));
        count = count < 0 ? 0 : count;
        filled += (size_t)count;
    } while (count == (passes ? 3 : (ssize_t)length));
    CHECK(!passes || (filled == 256 && count == 1));
    size_t rest = (size_t)uf_msgdsize(mp);
    CHECK(rest == (passes ? 2 : length - (size_t)count));
    FAILS(EAGAIN, uf_putmsg(to, mp));
    CHECK(uf_msgdsize(mp) == (ssize_t)rest);
    while (found < filled + rest) {
        CHECK((count = uf_read(from, &all, 8192)) > 0 && uf_deallocate(all, (size_t)count) == NULL);
        found += (size_t)count;
        if (found == filled)
            CHECK(uf_putmsg(to, mp) == (ssize_t)rest);
    }
    FAILS(EFAULT, uf_freemsg(mp));
    OK(uf_set_nonblocking(to, 0));
}

static void misuse(void) {
    mblk_t *mp = message("abc"), *wrong[] = {NULL, (mblk_t *)12345678, (mblk_t *)-1};
    void *bytes;
    for (int i = 0; i < 3; i++) {
        mblk_t *no = wrong[i];
        FAILS(EFAULT, uf_freemsg(no));
        FAILS(EFAULT, uf_prepend(no, "x", 1));
        FAILS(EFAULT, uf_append(no, "x", 1));
        FAILS_WITH(NULL, EFAULT, uf_split(no, 0));
        FAILS(EFAULT, uf_linkb(no, mp));
        FAILS(EFAULT, uf_linkb(mp, no));
        FAILS_WITH(NULL, EFAULT, uf_dupmsg(no));
        FAILS(EFAULT, uf_adjmsg(no, 0));
        FAILS(EFAULT, uf_pullupmsg(no, 0));
        FAILS(EFAULT, uf_msgdsize(no));
        FAILS(EFAULT, uf_block(no, 0, &bytes));
        FAILS(EFAULT, uf_putmsg(1, no));
        FAILS(EFAULT, uf_msgbuf(no, &bytes));
    }
    FAILS(EFAULT, uf_linkb(mp, mp));
    FAILS(EFAULT, uf_prepend(mp, NULL, 1));
    FAILS(ENOMEM, uf_prepend(mp, "x", SIZE_MAX - 100));
    FAILS(ENOMEM, uf_append(mp, "x", SIZE_MAX - 100));
    FAILS(EFAULT, uf_block(mp, 0, NULL));
    FAILS(EFAULT, uf_msgbuf(mp, NULL));
    FAILS(EINVAL, uf_block(mp, -1, &bytes));
    FAILS(EINVAL, uf_block(mp, 1, &bytes));
    FAILS_WITH(NULL, EINVAL, uf_split(mp, 4));
    FAILS(EINVAL, uf_adjmsg(mp, 4));
    FAILS(EINVAL, uf_adjmsg(mp, -4));
    FAILS(EINVAL, uf_pullupmsg(mp, 4));
    FAILS(EBADF, uf_putmsg(-1, mp));
    FAILS_WITH(NULL, EINVAL, uf_allocb(NULL, -1));
    FAILS_WITH(NULL, EINVAL, uf_allocb((void *)4711, 1));
    FAILS_WITH(NULL, EFAULT, uf_esballoc(&bytes, 1));
    is(mp, "abc");
    OK(uf_freemsg(mp));
}

int main(void) {
    /* Nothing may be left of all this: the pool has room for few buffers at once. */
    struct uf_settings settings = {.quota = 64u << 10};
    OK(uf_configure(&settings));
    int fds[2], sockets[2];
    OK(uf_pair(fds));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    for (int turn = 0; turn < 50; turn++) {
        down_a_stack(fds[0], fds[1], 1);
        down_a_stack(sockets[0], sockets[1], 0);
        duplicates();
        misuse();
    }
    void *all = uf_allocate(64u << 10);
    CHECK(all && uf_deallocate(all, 64u << 10) == NULL);
    OK(uf_pair(fds)); /* nothing was ever written to it */
    nonblocking(fds[0], fds[1], 1);
    nonblocking(sockets[0], sockets[1], 0);
    CHECK((all = uf_allocate(64u << 10)));
    return 0;
}
