/* Modules in the manner of STREAMS. They know no more of the library than sys/stream.h. */
#include <sys/types.h>

#include <sys/stream.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "modules.h"

static int nothing_open(queue_t *q, dev_t *devp, int flag, int sflag, cred_t *credp) {
    (void)devp, (void)flag, (void)credp;
    if (sflag != MODOPEN)
        return EINVAL;
    qprocson(q);
    return 0;
}

static int nothing_close(queue_t *q, int flag, cred_t *credp) {
    (void)flag, (void)credp;
    qprocsoff(q);
    return 0;
}

/* Flushes a module's queues and passes the message on. */
static int flush(queue_t *q, mblk_t *mp) {
    if (*mp->b_rptr & FLUSHR)
        flushq(RD(q), FLUSHDATA);
    if (*mp->b_rptr & FLUSHW)
        flushq(WR(q), FLUSHDATA);
    return putnext(q, mp);
}

/* --- headers --------------------------------------------------------------------------------------------------- */

static struct module_info header_info = {0x4801, "header", 0, INFPSZ, 0, 0};

static int header_wput(queue_t *q, mblk_t *mp) {
    size_t length = strlen(HEADER);
    if (mp->b_datap->db_type != M_DATA)
        return putnext(q, mp);
    if (mp->b_datap->db_ref > 1 || mp->b_rptr - mp->b_datap->db_base < (ssize_t)length) {
        mblk_t *first = allocb(length, BPRI_MED);
        if (!first) {
            freemsg(mp);
            return 0;
        }
        first->b_rptr = first->b_wptr = first->b_rptr + length;
        linkb(first, mp);
        mp = first;
    }
    mp->b_rptr -= length;
    memcpy(mp->b_rptr, HEADER, length);
    return putnext(q, mp);
}

static int header_rput(queue_t *q, mblk_t *mp) {
    size_t length = strlen(HEADER);
    if (mp->b_datap->db_type == M_DATA) {
        if (!pullupmsg(mp, (ssize_t)length) || memcmp(mp->b_rptr, HEADER, length) != 0) {
            freemsg(mp);
            return 0;
        }
        adjmsg(mp, (ssize_t)length);
    }
    return putnext(q, mp);
}

static struct qinit header_rinit = {header_rput, NULL, nothing_open, nothing_close, NULL, &header_info, NULL};
static struct qinit header_winit = {header_wput, NULL, NULL, NULL, NULL, &header_info, NULL};
struct streamtab header_module = {&header_rinit, &header_winit, NULL, NULL};

/* --- counts ---------------------------------------------------------------------------------------------------- */

static struct module_info count_info = {0x4802, "count", 0, INFPSZ, 0, 0};

static int count_open(queue_t *q, dev_t *devp, int flag, int sflag, cred_t *credp) {
    if (!(q->q_ptr = WR(q)->q_ptr = calloc(1, sizeof(struct counts))))
        return ENOMEM;
    return nothing_open(q, devp, flag, sflag, credp);
}

static int count_close(queue_t *q, int flag, cred_t *credp) {
    free(q->q_ptr);
    return nothing_close(q, flag, credp);
}

static int count_wput(queue_t *q, mblk_t *mp) {
    struct counts *counts = q->q_ptr;
    counts->down++;
    counts->down_bytes += msgdsize(mp);
    return putnext(q, mp);
}

static int count_rput(queue_t *q, mblk_t *mp) {
    struct counts *counts = q->q_ptr;
    counts->up++;
    counts->up_bytes += msgdsize(mp);
    return putnext(q, mp);
}

static struct qinit count_rinit = {count_rput, NULL, count_open, count_close, NULL, &count_info, NULL};
static struct qinit count_winit = {count_wput, NULL, NULL, NULL, NULL, &count_info, NULL};
struct streamtab count_module = {&count_rinit, &count_winit, NULL, NULL};

/* --- queues ---------------------------------------------------------------------------------------------------- */

static struct module_info queue_info = {0x4803, "queue", 0, INFPSZ, 100, 40};

static int queue_put(queue_t *q, mblk_t *mp) {
    if (mp->b_datap->db_type == M_FLUSH)
        return flush(q, mp);
    if (mp->b_datap->db_type >= QPCTL)
        return putnext(q, mp);
    return putq(q, mp);
}

static int queue_srv(queue_t *q) {
    mblk_t *mp;
    while ((mp = getq(q))) {
        if (!canputnext(q)) {
            putbq(q, mp);
            break;
        }
        putnext(q, mp);
    }
    return 0;
}

static struct qinit queue_rinit = {queue_put, queue_srv, nothing_open, nothing_close, NULL, &queue_info, NULL};
static struct qinit queue_winit = {queue_put, queue_srv, NULL, NULL, NULL, &queue_info, NULL};
struct streamtab queue_module = {&queue_rinit, &queue_winit, NULL, NULL};

/* --- the driver ------------------------------------------------------------------------------------------------ */

int loop_budget, loop_flushed;
queue_t *loop_queue;
unsigned char *loop_place;

static struct module_info loop_info = {0x4804, "loop", 0, INFPSZ, 100, 40};

static int loop_open(queue_t *q, dev_t *devp, int flag, int sflag, cred_t *credp) {
    (void)flag, (void)credp;
    if (sflag == MODOPEN || *devp == 0)
        return ENXIO;
    loop_queue = WR(q);
    qprocson(q);
    return 0;
}

static int loop_wput(queue_t *q, mblk_t *mp) {
    if (mp->b_datap->db_type != M_FLUSH)
        return putq(q, mp);
    loop_flushed = *mp->b_rptr;
    if (*mp->b_rptr & FLUSHW)
        flushq(q, FLUSHALL);
    if (*mp->b_rptr & FLUSHR) {
        *mp->b_rptr &= (uchar_t)~FLUSHW;
        return qreply(q, mp);
    }
    freemsg(mp);
    return 0;
}

static int loop_wsrv(queue_t *q) {
    mblk_t *mp;
    for (; loop_budget > 0 && (mp = getq(q)); loop_budget--) {
        if (!canputnext(RD(q))) {
            putbq(q, mp);
            break;
        }
        loop_place = mp->b_rptr;
        qreply(q, mp);
    }
    return 0;
}

/* The way up is free again. */
static int loop_rsrv(queue_t *q) {
    qenable(WR(q));
    return 0;
}

/* Nothing is below. */
static int loop_rput(queue_t *q, mblk_t *mp) {
    (void)q;
    freemsg(mp);
    return 0;
}

static struct qinit loop_rinit = {loop_rput, loop_rsrv, loop_open, nothing_close, NULL, &loop_info, NULL};
static struct qinit loop_winit = {loop_wput, loop_wsrv, NULL, NULL, NULL, &loop_info, NULL};
struct streamtab loop_driver = {&loop_rinit, &loop_winit, NULL, NULL};
