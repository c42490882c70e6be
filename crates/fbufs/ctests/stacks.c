/* Streams of modules: what goes down comes up again, in order, as far as there is room. */
#include "modules.h"

#include "blocks.h"

#define PACKET "123456789012345678901234567890" /* of 30 bytes; queues are full from 100 on, and take more with 40 */

static queue_t *opened(void) {
    queue_t *head = uf_stream_open(&loop_driver, 1);
    CHECK(head && head->q_flag & QREADR);
    loop_budget = 1000;
    return head;
}

static void run(queue_t *head) {
    while (uf_stream_run(head) > 0) {
    }
}

/* A message comes up, with these bytes. */
static void comes(queue_t *head, const char *text) {
    mblk_t *mp = getq(head);
    CHECK(mp);
    is(mp, text);
    freemsg(mp);
}

static void through_a_stack(void) {
    queue_t *head = opened();
    OK(uf_stream_push(head, &count_module));
    struct counts *counts = WR(head)->q_next->q_ptr;
    OK(uf_stream_push(head, &queue_module));
    OK(uf_stream_push(head, &header_module));
    uchar_t *bytes = uf_allocate(100);
    memcpy(bytes + 48, "data", 4);
    mblk_t *mp = uf_esballoc(bytes + 48, 4), *shared = message("shared"), *kept = dupb(shared);
    putnext(WR(head), mp);
    putnext(WR(head), shared);
    CHECK(getq(head) == NULL);
    run(head);
    CHECK(counts->down == 2 && counts->down_bytes == 26 && counts->up == 2 && counts->up_bytes == 26);
    CHECK((mp = getq(head)) && mp->b_rptr == bytes + 48); /* in its place; the header, at a word's boundary, was in front */
    is(mp, "data");
    is(kept, "shared");
    freemsg(mp);
    comes(head, "shared");
    CHECK(getq(head) == NULL);
    freeb(kept);
    /* Nothing is queued where no service procedure is. */
    OK(uf_stream_pop(head));
    OK(uf_stream_pop(head));
    putnext(WR(head), message("bare"));
    run(head);
    comes(head, "bare");
    CHECK(counts->down == 3 && counts->down_bytes == 30);
    OK(uf_stream_close(head));
}

/* The driver stops, and so do those above, one after the other; when it goes on, they do, from the lower mark on. */
static void flow_control(void) {
    queue_t *head = opened();
    OK(uf_stream_push(head, &queue_module));
    OK(uf_stream_push(head, &count_module));
    queue_t *middle = backq(loop_queue);
    CHECK(middle == WR(head)->q_next->q_next && middle->q_next == loop_queue && backq(middle) == WR(head)->q_next);
    loop_budget = 0;
    int sent = 0;
    for (; canputnext(WR(head)); sent++)
        putnext(WR(head), message(PACKET));
    CHECK(sent == 4 && qsize(middle) == 4 && middle->q_count == 120 && middle->q_flag & QFULL && middle->q_flag & QWANTW);
    run(head);
    CHECK(qsize(middle) == 0 && qsize(loop_queue) == 4 && loop_queue->q_flag & QFULL && !(middle->q_flag & QFULL));
    for (; canputnext(WR(head)); sent++)
        putnext(WR(head), message(PACKET));
    run(head);
    CHECK(sent == 8 && qsize(middle) == 4 && qsize(loop_queue) == 4 && loop_queue->q_flag & QWANTW);
    CHECK(uf_stream_run(head) == 0); /* a message that was put back has not enabled the queue */
    loop_budget = 2;
    qenable(loop_queue);
    qenable(loop_queue); /* it runs once all the same */
    CHECK(uf_stream_run(head) == 1 && uf_stream_run(head) == 1 && uf_stream_run(head) == 0); /* then the way up */
    CHECK(loop_queue->q_count == 60 && qsize(middle) == 4 && !(loop_queue->q_flag & QFULL) && qsize(head) == 2);
    loop_budget = 1;
    qenable(loop_queue);
    CHECK(uf_stream_run(head) == 1 && loop_queue->q_count == 30 && !(loop_queue->q_flag & QWANTW));
    CHECK(uf_stream_run(head) == 2 && qsize(loop_queue) == 4 && qsize(middle) == 1);
    /* High priority passes all. */
    mblk_t *urgent = message("urgent");
    urgent->b_datap->db_type = M_PCPROTO;
    putnext(WR(head), urgent);
    loop_budget = 1000;
    run(head);
    CHECK(qsize(head) == 9);
    mblk_t *mp = getq(head);
    CHECK(mp && mp->b_datap->db_type == M_PCPROTO);
    freemsg(mp);
    for (int i = 0; i < 8; i++)
        comes(head, PACKET);
    /* A full head stops the way up. */
    head->q_hiwat = 60, head->q_lowat = 30;
    for (int i = 0; i < 10; i++) {
        putnext(WR(head), message(PACKET));
        run(head);
    }
    CHECK(qsize(head) == 2 && qsize(OTHERQ(middle)) == 4 && !canputnext(OTHERQ(middle)));
    for (int i = 0; i < 10; i++) {
        comes(head, PACKET);
        run(head);
    }
    CHECK(qsize(head) == 0 && getq(head) == NULL);
    OK(uf_stream_close(head));
}

static mblk_t *of(const char *text, int type, int band) {
    mblk_t *mp = message(text);
    mp->b_datap->db_type = (uchar_t)type;
    mp->b_band = (uchar_t)band;
    return mp;
}

/* The texts of a queue's messages, in order, from either end. */
static void queued(queue_t *q, const char *texts) {
    size_t at = 0, length = strlen(texts), count = 0;
    mblk_t *last = NULL;
    for (mblk_t *mp = q->q_first; mp; last = mp, mp = mp->b_next, at++) {
        CHECK(at < length && *mp->b_rptr == (uchar_t)texts[at] && mp->b_prev == last);
        count += msgdsize(mp) + (mp->b_datap->db_type == M_DATA ? 0 : 1);
    }
    CHECK(at == length && q->q_last == last && q->q_count == count && qsize(q) == (int)length);
}

static void order(void) {
    queue_t *head = opened(), *q = loop_queue;
    loop_budget = 0;
    mblk_t *two = of("2", M_DATA, 2), *high = of("H", M_PCPROTO, 0), *low = message("a");
    CHECK(putq(q, low) == 1 && putq(q, of("1", M_DATA, 1)) == 1 && putq(q, two) == 1);
    CHECK(putq(q, high) == 1 && putq(q, of("b", M_PROTO, 0)) == 1 && putq(q, of("I", M_HANGUP, 0)) == 1);
    queued(q, "HI21ab");
    CHECK(putbq(q, message("c")) == 1 && putbq(q, of("3", M_DATA, 2)) == 1 && putbq(q, of("J", M_ERROR, 0)) == 1);
    queued(q, "JHI321cab");
    mblk_t *d = message("d");
    CHECK(insq(q, two, d) == 0 && insq(q, high, d) == 0); /* too early */
    mblk_t *late = of("9", M_DATA, 9);
    CHECK(insq(q, NULL, late) == 0 && insq(q, low, late) == 0);
    CHECK(insq(q, low, d) == 1 && insq(q, NULL, message("e")) == 1);
    queued(q, "JHI321cdabe");
    freemsg(late);
    mblk_t *gone[] = {d, q->q_first, q->q_last};
    for (int i = 0; i < 3; i++) {
        rmvq(q, gone[i]);
        CHECK(!gone[i]->b_next && !gone[i]->b_prev);
        freemsg(gone[i]);
    }
    queued(q, "HI321cab");
    flushq(q, FLUSHDATA);
    queued(q, "I"); /* M_PCPROTO is data */
    flushq(q, FLUSHALL);
    queued(q, "");
    OK(uf_stream_close(head));
}

static void enabling(void) {
    queue_t *head = opened(), *q = loop_queue;
    CHECK(uf_stream_run(head) == 0 && q->q_flag & QWANTR);
    noenable(q);
    putq(q, message("a"));
    CHECK(!(q->q_flag & QENAB) && uf_stream_run(head) == 0);
    putq(q, of("H", M_PCPROTO, 0)); /* in any case */
    CHECK(q->q_flag & QENAB && uf_stream_run(head) == 1 && qsize(head) == 2);
    enableok(q);
    putq(q, message("b"));
    CHECK(uf_stream_run(head) == 1 && qsize(head) == 3);
    qenable(head); /* without a service procedure */
    CHECK(uf_stream_run(head) == 0);
    CHECK(RD(q) == q - 1 && WR(q) == q && OTHERQ(q) == RD(q) && OTHERQ(RD(q)) == q && RD(RD(q)) == RD(q));
    CHECK(backq(WR(head)) == NULL && backq(q) == WR(head) && backq(head) == RD(q) && canputnext(q) == 1);
    CHECK(putnext(q, message("nowhere")) == 0); /* it is freed */
    /* Messages of control, to a queue and to the next one. */
    flushq(head, FLUSHALL);
    CHECK(putnextctl(q, M_HANGUP) == 1 && putnextctl(RD(q), M_DATA) == 0 && putctl(RD(q), M_PROTO) == 0);
    CHECK(putnextctl(RD(q), M_HANGUP) == 1 && putnextctl1(RD(q), M_ERROR, 5) == 1);
    CHECK(putctl1(head, M_SIG, 6) == 1 && putctl(head, M_DELAY) == 1 && qsize(head) == 4);
    mblk_t *mp = getq(head);
    CHECK(mp->b_datap->db_type == M_HANGUP && mp->b_rptr == mp->b_wptr);
    freemsg(mp);
    mp = getq(head);
    CHECK(mp->b_datap->db_type == M_ERROR && mp->b_wptr - mp->b_rptr == 1 && *mp->b_rptr == 5);
    freemsg(mp);
    OK(uf_stream_close(head));
}

static void flushing(void) {
    queue_t *head = opened();
    OK(uf_stream_push(head, &queue_module));
    loop_budget = 2;
    for (int i = 0; i < 3; i++)
        putnext(WR(head), message(PACKET));
    run(head);
    putnext(WR(head), message(PACKET));
    CHECK(qsize(head) == 2 && qsize(loop_queue) == 1 && qsize(WR(head)->q_next) == 1);
    CHECK(putnextctl1(RD(loop_queue), M_FLUSH, FLUSHR | FLUSHW) == 1);
    CHECK(qsize(head) == 0 && qsize(loop_queue) == 0 && qsize(WR(head)->q_next) == 0 && loop_flushed == FLUSHW);
    run(head);
    loop_budget = 2;
    putnext(WR(head), message("again"));
    putnext(WR(head), message("write"));
    run(head);
    CHECK(qsize(loop_queue) == 2); /* it had not found its queue empty, so messages do not enable it */
    qenable(loop_queue);
    run(head);
    CHECK(putnextctl1(WR(head), M_FLUSH, FLUSHW) == 1 && qsize(head) == 2 && loop_flushed == FLUSHW);
    CHECK(putnextctl1(WR(head), M_FLUSH, FLUSHR) == 1 && qsize(head) == 0 && loop_flushed == FLUSHR);
    OK(uf_stream_close(head));
}

static int frees;

static void count(char *ignored) {
    (void)ignored;
    frees++;
}

static void opening_and_closing(void) {
    struct streamtab nothing = {NULL, NULL, NULL, NULL};
    FAILS_WITH(NULL, ENXIO, uf_stream_open(&loop_driver, 0));
    FAILS_WITH(NULL, EINVAL, uf_stream_open(NULL, 1));
    FAILS_WITH(NULL, EINVAL, uf_stream_open(&nothing, 1));
    FAILS_WITH(NULL, EINVAL, uf_stream_open(&header_module, 1)); /* it is no driver */
    FAILS(EFAULT, uf_stream_push(NULL, &queue_module));
    FAILS(EFAULT, uf_stream_pop(NULL));
    FAILS(EFAULT, uf_stream_run(NULL));
    FAILS(EFAULT, uf_stream_close(NULL));
    queue_t *head = opened();
    FAILS(ENXIO, uf_stream_push(head, &loop_driver));
    FAILS(EINVAL, uf_stream_push(head, &nothing));
    FAILS(EINVAL, uf_stream_pop(head));
    OK(uf_stream_push(head, &queue_module));
    /* What is on queues, enabled or not, is freed with them: fbufs and the program's own memory. */
    static uchar_t memory[10];
    static frtn_t routine = {count, NULL};
    mblk_t *own = esballoc(memory, sizeof memory, BPRI_LO, &routine);
    frees = 0;
    putnext(WR(head), message(PACKET));
    putnext(WR(head), own);
    CHECK(WR(head)->q_next->q_flag & QENAB);
    OK(uf_stream_pop(head));
    CHECK(frees == 1 && uf_stream_run(head) == 0);
    putnext(WR(head), message("down"));
    putnext(loop_queue - 1, message("up"));
    CHECK(loop_queue->q_flag & QENAB && qsize(head) == 1);
    OK(uf_stream_close(head));
}

int main(void) {
    struct uf_settings settings = {.quota = 256u << 10};
    OK(uf_configure(&settings));
    for (int turn = 0; turn < 20; turn++) {
        through_a_stack();
        flow_control();
        order();
        enabling();
        flushing();
        opening_and_closing();
    }
    void *all = uf_allocate(256u << 10); /* nothing was left */
    CHECK(all && uf_deallocate(all, 256u << 10) == NULL);
    return 0;
}
