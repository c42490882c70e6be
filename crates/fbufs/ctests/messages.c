/* Messages: headers are put in front, messages are cut and joined, and no byte is copied on the way. */
#include <sys/socket.h>
#include <sys/stream.h>

#include "blocks.h"

/* A stack of modules: a packet gets headers, and is cut where it is too long for the next module. */
static void down_a_stack(int to, int from, int passes) {
    uchar_t *bytes = uf_allocate(100);
    memcpy(bytes + 20, "payload", 7);
    mblk_t *mp = uf_esballoc(bytes + 20, 7);
    CHECK(mp && mp->b_datap->db_base == bytes && mp->b_datap->db_lim == bytes + 4096);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 100)); /* it is the message's */
    CHECK(prepended(mp, "tcp ") == mp && prepended(mp, "ip ") == mp);
    is(mp, "ip tcp payload");
    CHECK(mp->b_rptr == bytes + 13); /* in the buffer itself */
    CHECK(adjmsg(mp, 3) == 1);
    is(mp, "tcp payload");
    mblk_t *rest = dupmsg(mp);
    CHECK(adjmsg(rest, 7) == 1 && adjmsg(mp, -4) == 1);
    is(mp, "tcp pay");
    is(rest, "load");
    CHECK(rest->b_rptr == bytes + 23);
    /* Both name the buffer, so a header gets a block of its own, and the bytes stay. */
    rest = prepended(rest, "tcp ");
    is(rest, "tcp load");
    CHECK(rest->b_cont->b_rptr == bytes + 23);
    linkb(mp, rest);
    is(mp, "tcp paytcp load");
    CHECK(pullupmsg(mp, 15) == 1 && mp->b_cont == NULL);
    is(mp, "tcp paytcp load");
    CHECK(adjmsg(mp, -4) == 1);
    uchar_t *place = mp->b_rptr;
    CHECK(uf_putmsg(to, mp) == 11);
    void *all;
    CHECK(uf_get(from, &all) == 11 && memcmp(all, "tcp paytcp ", 11) == 0);
    CHECK(!passes || all == (void *)place);
    CHECK(uf_deallocate(all, 11) == NULL);
}

static void duplicates(void) {
    mblk_t *mp = message("abc"), *same = dupmsg(mp);
    CHECK(same && same != mp && same->b_rptr == mp->b_rptr && mp->b_datap->db_ref == 2);
    linkb(same, message("de"));
    is(mp, "abc");
    is(same, "abcde");
    /* A shared buffer is copied, another one is not. */
    void *one, *other;
    uchar_t *place = mp->b_rptr;
    CHECK(uf_msgbuf(same, &one) == 5 && memcmp(one, "abcde", 5) == 0 && one != (void *)place);
    CHECK(uf_msgbuf(mp, &other) == 3 && other == (void *)place);
    CHECK(uf_deallocate(one, 5) == NULL && uf_deallocate(other, 3) == NULL);
}

static int frees;

static void count(char *argument) {
    CHECK(strcmp(argument, "counted") == 0);
    frees++;
}

/* Memory that is no fbuf is written from its place, or copied where fbufs are needed, and freed after the last block of it. */
static void own_memory(int to, int from) {
    static uchar_t memory[1000];
    static char argument[] = "counted";
    static frtn_t routine = {count, argument};
    frees = 0;
    memset(memory, 'm', sizeof memory);
    mblk_t *mp = esballoc(memory, sizeof memory, BPRI_MED, &routine);
    CHECK(mp && mp->b_rptr == memory && mp->b_wptr == memory && mp->b_datap->db_lim == memory + sizeof memory);
    mp->b_wptr += 900;
    mblk_t *kept = dupb(mp), *copy = copyb(mp);
    CHECK(copy->b_rptr != memory && copy->b_datap->db_frtnp == NULL && memcmp(copy->b_rptr, memory, 900) == 0);
    linkb(mp, copy);
    CHECK(uf_putmsg(to, mp) == 1800 && frees == 0);
    void *all;
    for (size_t found = 0, count; found < 1800; found += count) {
        CHECK((count = (size_t)uf_get(from, &all)) > 0);
        for (size_t i = 0; i < count; i++)
            CHECK(((char *)all)[i] == 'm');
        CHECK(uf_deallocate(all, count) == NULL);
    }
    CHECK(uf_msgbuf(kept, &all) == 900 && all != (void *)memory && frees == 1);
    CHECK(uf_deallocate(all, 900) == NULL);
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
            CHECK(second && third);
            linkb(mp, second);
            linkb(mp, third);
        }
        count = uf_putmsg(to, mp);
        CHECK(count > 0 || (count == -1 && errno == EAGAIN && !passes));
        count = count < 0 ? 0 : count;
        filled += (size_t)count;
    } while (count == (passes ? 3 : (ssize_t)length));
    CHECK(!passes || (filled == 256 && count == 1));
    size_t rest = msgdsize(mp);
    CHECK(rest == (passes ? 2 : length - (size_t)count));
    FAILS(EAGAIN, uf_putmsg(to, mp));
    CHECK(msgdsize(mp) == rest);
    while (found < filled + rest) {
        CHECK((count = uf_read(from, &all, 8192)) > 0 && uf_deallocate(all, (size_t)count) == NULL);
        found += (size_t)count;
        if (found == filled)
            CHECK(uf_putmsg(to, mp) == (ssize_t)rest);
    }
    OK(uf_set_nonblocking(to, 0));
}

static void misuse(void) {
    mblk_t *mp = message("abc");
    void *all;
    FAILS(EFAULT, uf_putmsg(1, NULL));
    FAILS(EFAULT, uf_msgbuf(NULL, &all));
    FAILS(EFAULT, uf_msgbuf(mp, NULL));
    FAILS(EBADF, uf_putmsg(-1, mp));
    FAILS_WITH(NULL, EINVAL, uf_allocb(NULL, -1));
    FAILS_WITH(NULL, EINVAL, uf_allocb((void *)4711, 1));
    FAILS_WITH(NULL, EFAULT, uf_esballoc(&all, 1));
    FAILS_WITH(NULL, EDQUOT, allocb((size_t)-1, BPRI_HI));
    /* Bytes beside the buffer are never written, nor those of the blocks in front. */
    mblk_t *wrong = message("def");
    linkb(mp, wrong);
    wrong->b_wptr = wrong->b_datap->db_lim + 1;
    FAILS(EINVAL, uf_putmsg(1, mp));
    wrong->b_wptr = wrong->b_rptr - 1;
    FAILS(EINVAL, uf_msgbuf(mp, &all));
    wrong->b_wptr = wrong->b_rptr;
    is(mp, "abc");
    freemsg(mp);
    freemsg(NULL);
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
        own_memory(fds[0], fds[1]);
        own_memory(sockets[0], sockets[1]);
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
