/* What tests of messages need. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <sys/stream.h>

#include "check.h"

/* The message's bytes are these. */
static inline void is(mblk_t *mp, const char *text) {
    size_t at = 0, length = strlen(text);
    for (; mp; mp = mp->b_cont) {
        size_t count = (size_t)(mp->b_wptr - mp->b_rptr);
        CHECK(at + count <= length && (count == 0 || memcmp(mp->b_rptr, text + at, count) == 0));
        at += count;
    }
    CHECK(at == length);
}

static inline mblk_t *message(const char *text) {
    size_t length = strlen(text);
    mblk_t *mp = allocb(length, BPRI_MED);
    CHECK(mp);
    memcpy(mp->b_wptr, text, length);
    mp->b_wptr += length;
    return mp;
}

/* The message with a header in front: in the first block's headroom, if nobody shares its buffer, else in a block of its own. */
static inline mblk_t *prepended(mblk_t *mp, const char *header) {
    size_t length = strlen(header);
    if (mp->b_datap->db_ref > 1 || (size_t)(mp->b_rptr - mp->b_datap->db_base) < length) {
        mblk_t *first = message(header);
        linkb(first, mp);
        return first;
    }
    mp->b_rptr -= length;
    memcpy(mp->b_rptr, header, length);
    return mp;
}

#endif
