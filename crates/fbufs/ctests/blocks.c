/* The routines for message blocks, each with what is at its edges. */
#include <limits.h>
#include <stdint.h>

#include "blocks.h"

static const char *const NOTHING = "";

/* A message of blocks that have these texts. */
static mblk_t *chained(const char *first, const char *second, const char *third) {
    mblk_t *mp = message(first);
    linkb(mp, message(second));
    linkb(mp, message(third));
    return mp;
}

static void allocating(void) {
    mblk_t *mp = allocb(0, BPRI_LO);
    CHECK(mp && mp->b_rptr == mp->b_wptr && mp->b_rptr == mp->b_datap->db_base);
    CHECK(mp->b_datap->db_type == M_DATA && mp->b_datap->db_ref == 1 && mp->b_band == 0);
    CHECK(!mp->b_next && !mp->b_prev && !mp->b_cont && msgdsize(mp) == 0);
    freeb(mp);
    mp = allocb(5000, BPRI_HI);
    CHECK(mp->b_datap->db_lim - mp->b_datap->db_base >= 5000);
    freeb(mp);
    static frtn_t none;
    uchar_t byte;
    CHECK(esballoc(NULL, 1, BPRI_LO, &none) == NULL && esballoc(&byte, 1, BPRI_LO, NULL) == NULL);
    CHECK((mp = esballoc(&byte, 0, BPRI_LO, &none)) && mp->b_datap->db_lim == &byte); /* and nothing is called */
    freeb(mp);
}

/* A routine that lies in the memory which it frees. */
struct own {
    frtn_t routine;
    uchar_t bytes[100];
};

static void freeing_with_the_last_block(void) {
    struct own *own = malloc(sizeof *own);
    CHECK(own);
    own->routine = (frtn_t){(void (*)(char *))free, (char *)own};
    mblk_t *mp = esballoc(own->bytes, sizeof own->bytes, BPRI_LO, &own->routine);
    memcpy(mp->b_wptr, "own", 3);
    mp->b_wptr += 3;
    mblk_t *second = dupb(mp), *third = dupb(second);
    CHECK(own->bytes == third->b_rptr && mp->b_datap == third->b_datap && mp->b_datap->db_ref == 3);
    freeb(second);
    freeb(mp);
    CHECK(third->b_datap->db_ref == 1);
    is(third, "own");
    freemsg(third);
}

static void duplicating_and_copying(void) {
    mblk_t *mp = chained("one ", NOTHING, "three");
    mp->b_datap->db_type = M_PROTO;
    mp->b_band = 3;
    mp->b_rptr += 2;
    mblk_t *one = dupb(mp), *same = dupmsg(mp), *copy = copymsg(mp);
    CHECK(!one->b_cont && one->b_band == 3 && one->b_datap == mp->b_datap && mp->b_datap->db_ref == 3);
    is(one, "e ");
    is(same, "e three");
    is(copy, "e three");
    CHECK(copy->b_datap->db_type == M_PROTO && copy->b_band == 3 && copy->b_datap->db_ref == 1);
    CHECK(copy->b_rptr - copy->b_datap->db_base == 2 && copy->b_cont->b_rptr == copy->b_cont->b_wptr);
    copy->b_rptr[0] = 'E';
    is(mp, "e three");
    freemsg(mp);
    is(same, "e three");
    freemsg(same);
    freemsg(copy);
    freeb(one);
    CHECK(dupmsg(NULL) == NULL && copymsg(NULL) == NULL);
}

static void linking(void) {
    mblk_t *mp = message("a"), *second = message("b"), *third = message("c"), *other = message("d");
    linkb(mp, second);
    linkb(mp, third);
    is(mp, "abc");
    CHECK(rmvb(mp, other) == (mblk_t *)-1 && rmvb(mp, NULL) == (mblk_t *)-1);
    is(mp, "abc");
    CHECK(rmvb(mp, second) == mp && second->b_cont == NULL);
    is(mp, "ac");
    CHECK(rmvb(mp, third) == mp);
    is(mp, "a");
    linkb(mp, second);
    CHECK(rmvb(mp, mp) == second && mp->b_cont == NULL); /* the first one */
    CHECK(rmvb(second, second) == NULL);                 /* the only one */
    linkb(second, third);
    CHECK(unlinkb(second) == third && unlinkb(second) == NULL);
    freemsg(mp);
    freeb(second);
    freeb(third);
    freeb(other);
}

static void counting(void) {
    mblk_t *mp = chained("header", "data", "more");
    CHECK(msgdsize(mp) == 14);
    mp->b_datap->db_type = M_PROTO;
    CHECK(msgdsize(mp) == 8 && msgdsize(NULL) == 0);
    CHECK(datamsg(M_DATA) && datamsg(M_PROTO) && datamsg(M_PCPROTO) && datamsg(M_DELAY));
    CHECK(!datamsg(M_FLUSH) && !datamsg(M_IOCTL) && !datamsg(M_HANGUP));
    freemsg(mp);
}

static void adjusting(void) {
    mblk_t *mp = chained("abc", NOTHING, "defg");
    CHECK(adjmsg(mp, 0) == 1 && adjmsg(mp, 8) == 0 && adjmsg(mp, -8) == 0);
    CHECK(adjmsg(mp, SSIZE_MAX) == 0 && adjmsg(mp, -SSIZE_MAX - 1) == 0);
    is(mp, "abcdefg");
    CHECK(adjmsg(mp, 1) == 1);
    is(mp, "bcdefg");
    CHECK(adjmsg(mp, 3) == 1); /* all of the first block, and a part of the last one */
    is(mp, "efg");
    CHECK(adjmsg(mp, -3) == 1);
    is(mp, NOTHING);
    CHECK(adjmsg(mp, 1) == 0 && adjmsg(mp, -1) == 0 && adjmsg(mp, 0) == 1);
    freemsg(mp);
    mp = chained("abc", "de", "fg");
    CHECK(adjmsg(mp, -3) == 1); /* all of the last one, and a part of another */
    is(mp, "abcd");
    freemsg(mp);
    /* Blocks of another type do not count. */
    mp = chained("pr", "oto", "data");
    mp->b_datap->db_type = mp->b_cont->b_datap->db_type = M_PROTO;
    CHECK(adjmsg(mp, 6) == 0 && adjmsg(mp, -6) == 0 && adjmsg(mp, -4) == 1);
    is(mp, "pdata");
    freemsg(mp);
}

static int is_aligned(mblk_t *mp) {
    return (uintptr_t)mp->b_rptr % sizeof(size_t) == 0;
}

static void pulling_up(void) {
    mblk_t *mp = chained("abc", "def", "ghi"), *second = mp->b_cont, *kept = dupb(second);
    uchar_t *place = mp->b_rptr;
    mp->b_band = 2;
    CHECK(pullupmsg(mp, 10) == 0 && pullupmsg(mp, -2) == 0);
    CHECK(pullupmsg(mp, 3) == 1 && mp->b_rptr == place); /* it lies there already */
    CHECK(pullupmsg(mp, 5) == 1 && mp->b_rptr != place && is_aligned(mp) && mp->b_band == 2);
    CHECK(mp->b_wptr - mp->b_rptr == 5 && mp->b_cont == second && second->b_wptr - second->b_rptr == 1);
    is(mp, "abcdefghi");
    is(kept, "def"); /* which shares the second block's buffer */
    CHECK(pullupmsg(mp, 6) == 1 && mp->b_wptr - mp->b_rptr == 6); /* and the second block is gone */
    CHECK(kept->b_datap->db_ref == 1 && mp->b_cont->b_cont == NULL);
    CHECK(pullupmsg(mp, -1) == 1 && mp->b_cont == NULL);
    is(mp, "abcdefghi");
    /* A header of odd length: the bytes move to a boundary, all of the block's. */
    mp->b_rptr += 1;
    CHECK(pullupmsg(mp, 2) == 1 && is_aligned(mp));
    is(mp, "bcdefghi");
    freemsg(mp);
    freeb(kept);
    /* A shared first block: the other one stays as it is. */
    mp = message("abc");
    kept = dupb(mp);
    linkb(mp, message("def"));
    CHECK(pullupmsg(mp, -1) == 1 && mp->b_datap->db_ref == 1 && kept->b_datap->db_ref == 1);
    mp->b_rptr[0] = 'A';
    is(kept, "abc");
    freemsg(mp);
    freeb(kept);
    /* Nothing at all, and nothing of this type. */
    mp = chained(NOTHING, NOTHING, NOTHING);
    CHECK(pullupmsg(mp, -1) == 1 && pullupmsg(mp, 0) == 1 && pullupmsg(mp, 1) == 0);
    freemsg(mp);
    mp = chained("proto", "data", NOTHING);
    mp->b_datap->db_type = M_PROTO;
    CHECK(pullupmsg(mp, 6) == 0 && pullupmsg(mp, -1) == 1 && mp->b_cont && mp->b_datap->db_type == M_PROTO);
    is(mp, "protodata");
    freemsg(mp);
}

static void pulling_up_into_another(void) {
    mblk_t *mp = chained("abc", "def", "ghi"), *all, *part;
    mp->b_band = 1;
    CHECK((all = msgpullup(mp, -1)) && all->b_cont == NULL && all->b_band == 1 && is_aligned(all));
    CHECK((part = msgpullup(mp, 4)) && part->b_wptr - part->b_rptr == 4);
    CHECK(mp->b_cont->b_cont && mp->b_datap->db_ref == 1 && msgpullup(mp, 10) == NULL && msgpullup(mp, -2) == NULL);
    part->b_cont->b_rptr[0] = 'E'; /* copied, too */
    is(mp, "abcdefghi");
    is(all, "abcdefghi");
    is(part, "abcdEfghi");
    freemsg(all);
    freemsg(part);
    mp->b_datap->db_type = M_PROTO;
    CHECK(msgpullup(mp, 4) == NULL && (all = msgpullup(mp, -1)));
    CHECK(all->b_datap->db_type == M_PROTO && all->b_wptr - all->b_rptr == 3 && all->b_cont->b_datap->db_type == M_DATA);
    is(all, "abcdefghi");
    freemsg(all);
    CHECK((all = msgpullup(mp, 0)));
    CHECK(all->b_rptr == all->b_wptr);
    is(all, "abcdefghi");
    freemsg(all);
    freemsg(mp);
}

/* Without room nothing has changed, and nothing is left behind. */
static void without_room(void) {
    mblk_t *mp = chained("abc", "def", "ghi");
    void *rest = uf_allocate(60 << 10), *page;
    while ((page = uf_allocate(1)))
        *(void **)page = rest, rest = page;
    CHECK(errno == EDQUOT && allocb(1, BPRI_HI) == NULL && copymsg(mp) == NULL);
    CHECK(pullupmsg(mp, -1) == 0 && msgpullup(mp, 1) == NULL);
    is(mp, "abcdefghi");
    mblk_t *same = dupmsg(mp); /* which needs none */
    freemsg(mp);
    is(same, "abcdefghi");
    freemsg(same);
    CHECK(rest);
}

int main(void) {
    struct uf_settings settings = {.quota = 64u << 10};
    OK(uf_configure(&settings));
    for (int turn = 0; turn < 20; turn++) {
        allocating();
        freeing_with_the_last_block();
        duplicating_and_copying();
        linking();
        counting();
        adjusting();
        pulling_up();
        pulling_up_into_another();
    }
    void *all = uf_allocate(64u << 10); /* nothing was left */
    CHECK(all && uf_deallocate(all, 64u << 10) == NULL);
    without_room();
    return 0;
}
