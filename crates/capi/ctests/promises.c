/* What each semantics promises (thesis 2.1, 3.3, 4, 7.4), through the C interface: for every scheme that makes the promise, with the
 * server in this process and in another one, and with the machine's thresholds and such as avoid every copy.
 *
 * A promise is a function that is called for each scheme, kind of memory, offset and length. Each configuration runs in a process of its
 * own, so that a promise that is broken, or ends the process, does not keep others from being tried. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "passes.h"

static const struct {
    size_t offset, length;
} slices[] = {
    {0, 1},      {5, 1},      {1, 100},     {0, 4096},      {4095, 4098},
    {17, 70001}, {0, 131072}, {2097150, 5}, {0, 4u << 20}, {4097, (2u << 20) + 5},
};

static const struct configuration configurations[] = {
    {"a server in this process", 0, 0},
    {"a server in another process", 1, 0},
    {"a server in another process, thresholds of 1 byte", 1, 1},
};

/* Strong output. */

static void output_hides_later_stores(const struct trial *t) {
    for (uint32_t flags = 0; flags <= IO_HELD; flags++) { /* IO_HELD means nothing here, since the request is asynchronous */
        struct area area = area_new(t);
        unsigned char *before = area_data(&area);
        struct pass pass;
        compose(&pass, IO_OUT, t->scheme, &area);
        pass.elements[0].flags = pass.elements[1].flags = flags;
        submit(&pass);
        area_store(&area);
        seen(&pass, before, t->length, "the output");
        area_check(&area, "the client's memory");
        finish(&pass, t->length);
        CHECK(pass.receipts[0].asked == t->scheme);
        area_check(&area, "the client's memory after the reply");
        area_store(&area);
        free(before);
        area_free(&area);
    }
}

static void output_hides_later_kernel_reads(const struct trial *t) {
    struct area area = area_new(t);
    unsigned char *before = area_data(&area);
    struct pass pass;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    for (size_t i = 0; i < area.count; i++) {
        struct piece *piece = &area.pieces[i];
        int file = memfd_create("after", 0);
        CHECK(file >= 0);
        pattern(piece->expected, piece->room);
        CHECK(write(file, piece->expected, piece->room) == (ssize_t)piece->room && lseek(file, 0, SEEK_SET) == 0);
        CHECK(read(file, piece->base, piece->room) == (ssize_t)piece->room);
        close(file);
    }
    seen(&pass, before, t->length, "the output");
    area_check(&area, "the client's memory");
    finish(&pass, t->length);
    free(before);
    area_free(&area);
}

static void output_outlives_its_buffer(const struct trial *t) {
    struct area area = area_new(t);
    unsigned char *before = area_data(&area);
    struct pass pass;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    area_release(&area);
    /* Memory that is allocated now is not what the server reads. */
    for (int i = 0; i < 2; i++) {
        struct area other = area_new(t);
        seen(&pass, before, t->length, "the output");
        area_check(&other, "another buffer");
        area_free(&other);
    }
    finish(&pass, t->length);
    free(before);
    area_free(&area);
}

static void outputs_of_one_buffer_keep_their_contents(const struct trial *t) {
    enum { OUTPUTS = 4 };
    struct area area = area_new(t);
    struct pass passes[OUTPUTS];
    unsigned char *contents[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) {
        contents[i] = area_data(&area);
        submit_native(&passes[i], IO_OUT, t->scheme, &area);
        area_store(&area);
    }
    static const int order[OUTPUTS] = {2, 0, 3, 1}; /* other than they were made in */
    for (int done = 0; done < OUTPUTS; done++) {
        for (int i = done; i < OUTPUTS; i++)
            seen(&passes[order[i]], contents[order[i]], t->length, "one of several outputs");
        finish(&passes[order[done]], t->length);
        area_store(&area);
    }
    for (int i = 0; i < OUTPUTS; i++)
        free(contents[i]);
    area_free(&area);
}

static void overlapping_outputs_keep_their_contents(const struct trial *t) {
    for (io_scheme_t other = IO_COPY; other <= IO_EMULATED_COPY; other++) {
        struct area area = area_new(t), end = area;
        size_t cut = end.pieces[0].length / 2;
        end.pieces[0].offset += cut;
        end.pieces[0].length -= cut;
        end.length -= cut;
        unsigned char *first = area_data(&area);
        struct pass one, two;
        submit_native(&one, IO_OUT, t->scheme, &area);
        area_store(&area);
        unsigned char *second = area_data(&end);
        submit_native(&two, IO_OUT, other, &end);
        area_store(&area);
        seen(&one, first, area.length, "the first of two outputs that overlap");
        seen(&two, second, end.length, "the second of two outputs that overlap");
        finish(&one, area.length);
        area_store(&area);
        seen(&two, second, end.length, "the second output after the first");
        finish(&two, end.length);
        area_check(&area, "the client's memory");
        free(first);
        free(second);
        area_free(&area);
    }
}

static void failed_output_leaves_the_buffer(const struct trial *t) {
    struct area area = area_new(t);
    struct pass pass;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    fail(&pass);
    fails(&pass);
    area_check(&area, "the client's memory");
    area_store(&area);
    area_check(&area, "the client's memory, stored into");
    area_free(&area);
}

static void output_hides_later_input(const struct trial *t) {
    struct area area = area_new(t);
    unsigned char *before = area_data(&area);
    struct pass pass, input;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    /* An input that changes places with the output's granules gives these to the next one. */
    for (int i = 0; i < 4; i++) {
        unsigned char *after = new_pattern(t->length);
        submit_native(&input, IO_IN, i % 2 ? IO_COPY : IO_EMULATED_COPY, &area);
        deliver(&input, after, t->length);
        synchronize(&input, t->length);
        area_expect(&area, after, t->length);
        area_check(&area, "the client's memory, after an input");
        seen(&pass, before, t->length, "the output, after an input");
        free(after);
    }
    finish(&pass, t->length);
    free(before);
    area_free(&area);
}

static void output_hides_a_later_share(const struct trial *t) {
    for (io_scheme_t share = IO_SHARE; share <= IO_EMULATED_SHARE; share++) {
        struct area area = area_new(t);
        unsigned char *before = area_data(&area);
        struct pass pass, shared;
        submit_native(&pass, IO_OUT, t->scheme, &area);
        area_store(&area);
        unsigned char *during = area_data(&area), *after = new_pattern(t->length);
        submit_native(&shared, IO_OUT, share, &area);
        seen(&shared, during, t->length, "the shared output");
        finish(&shared, t->length);
        submit_native(&shared, IO_IN, share, &area);
        deliver(&shared, after, t->length);
        seen(&pass, before, t->length, "the output");
        synchronize(&shared, t->length);
        area_expect(&area, after, t->length);
        area_check(&area, "the client's memory");
        area_store(&area);
        seen(&pass, before, t->length, "the output, after a store");
        finish(&pass, t->length);
        free(before);
        free(during);
        free(after);
        area_free(&area);
    }
}

/* Strong input. */

static void input_comes_with_the_reply(const struct trial *t) {
    struct area area = area_new(t);
    unsigned char *after = new_pattern(t->length);
    struct pass pass;
    submit_native(&pass, IO_IN, t->scheme, &area);
    fill(&pass, after, t->length / 2);
    area_check(&area, "the client's memory, when half was written");
    deliver(&pass, after, t->length);
    area_check(&area, "the client's memory, before io_sync");
    synchronize(&pass, t->length);
    area_expect(&area, after, t->length);
    area_check(&area, "the client's memory");
    area_store(&area);
    free(after);
    area_free(&area);
}

static void failed_input_leaves_the_buffer(const struct trial *t) {
    enum { BY_THE_SERVER, BY_TIMEOUT, BY_ABORT, BY_ABORT_THAT_IS_NOT_OBEYED, WAYS };
    /* An abort that is not obeyed takes the interface's abort_timeout, as does one of a request to this thread: one length will do, and
     * none where the time is long. */
    int ways = t->length != 70001 ? BY_TIMEOUT + 1 : configuration->is_avoiding ? BY_ABORT + 1 : WAYS;
    for (int way = 0; way < ways; way++) {
        struct area area = area_new(t);
        unsigned char *after = new_pattern(t->length);
        struct pass pass;
        compose(&pass, IO_IN, t->scheme, &area);
        if (way == BY_TIMEOUT) {
            pass.actual = 1;
            FAILS(ETIMEDOUT, request(&pass, 1000000, NULL));
            CHECK(pass.actual == 0);
        } else {
            submit(&pass);
            fill(&pass, after, t->length);
            set_actual(&pass, t->length);
            if (way == BY_ABORT_THAT_IS_NOT_OBEYED)
                tell(&place, KEEP, pass.number, 0, 0, NULL, 0);
        }
        if (way == BY_THE_SERVER) {
            fail(&pass);
            fails(&pass);
        }
        if (way == BY_ABORT || way == BY_ABORT_THAT_IS_NOT_OBEYED)
            OK(io_abort(pass.request));
        area_check(&area, "the client's memory");
        if (way == BY_ABORT_THAT_IS_NOT_OBEYED) {
            deliver(&pass, after, t->length);
            area_check(&area, "the client's memory, after a late reply");
        }
        area_store(&area);
        area_check(&area, "the client's memory, stored into");
        free(after);
        area_free(&area);
    }
}

static void input_may_be_shorter_than_asked(const struct trial *t) {
    const size_t actuals[] = {0, 1, t->length / 2, 4096, 4097, t->length - 1};
    for (size_t i = 0; i < sizeof actuals / sizeof *actuals; i++) {
        if (actuals[i] >= t->length)
            continue;
        struct area area = area_new(t);
        unsigned char *after = new_pattern(t->length);
        struct pass pass;
        submit_native(&pass, IO_IN, t->scheme, &area);
        fill(&pass, after, t->length); /* more than it will pass */
        set_actual(&pass, actuals[i]);
        finish(&pass, actuals[i]);
        area_expect(&area, after, actuals[i]);
        area_check(&area, "the client's memory");
        free(after);
        area_free(&area);
    }
}

static void elements_may_meet_in_one_granule(const struct trial *t) {
    if (t->kind == MIXED)
        return; /* its elements are in two buffers */
    for (io_scheme_t other = IO_COPY; other <= IO_EMULATED_COPY; other++) {
        struct area area = area_new(t), parts = area;
        size_t gap = t->length > 8 ? 3 : 0;
        parts.count = 2;
        parts.length -= gap;
        parts.pieces[1] = parts.pieces[0];
        parts.pieces[0].length = parts.length / 2;
        parts.pieces[1].length = parts.length - parts.pieces[0].length;
        parts.pieces[1].offset += parts.pieces[0].length + gap;
        unsigned char *after = new_pattern(parts.length);
        struct pass pass;
        compose(&pass, IO_IN, t->scheme, &parts);
        pass.elements[1].scheme = other;
        submit(&pass);
        deliver(&pass, after, parts.length);
        synchronize(&pass, parts.length);
        area_expect(&parts, after, parts.length);
        area_check(&area, "the client's memory");
        free(after);
        area_free(&area);
    }
}

static void peeked_input_stays_pending(const struct trial *t) {
    struct area area = area_new(t), other = area_at(t->kind, t->offset, t->length);
    unsigned char *after = new_pattern(t->length);
    struct pass pass, peek;
    submit_native(&pass, IO_IN, t->scheme, &area);
    CHECK(io_sync(pass.request, IO_PEEKED, 1, (struct io_buffer_header *[]){compose(&peek, IO_IN, IO_COPY, &other)}, 0) ==
          IO_PENDING);
    deliver(&pass, after, t->length);
    for (size_t most = 100; most <= t->length + 100; most += t->length) {
        struct io_buffer_header *bufv[] = {compose(&peek, IO_IN, IO_COPY, &other)};
        size_t peeked = 0;
        const unsigned char *from = after;
        for (size_t i = 0; i < other.count; from += other.pieces[i++].length) {
            struct piece *piece = &other.pieces[i];
            if (peek.elements[i].length > most)
                peek.elements[i].length = most;
            memcpy(piece->expected + piece->offset, from, peek.elements[i].length);
            peeked += peek.elements[i].length;
        }
        OK(io_sync(pass.request, IO_PEEKED, 1, bufv, IO_FOREVER));
        CHECK(peek.actual == peeked);
        area_check(&other, "what was peeked at");
        area_check(&area, "the client's memory, when it has peeked");
    }
    synchronize(&pass, t->length);
    area_expect(&area, after, t->length);
    area_check(&area, "the client's memory");
    free(after);
    area_free(&area);
    area_free(&other);
}

static void redirected_input_leaves_the_buffer(const struct trial *t) {
    for (enum kind kind = OURS; kind <= FOREIGN; kind++) {
        struct area area = area_new(t), other = area_at(t->kind == MIXED ? MIXED : kind, t->offset + 1, t->length);
        unsigned char *after = new_pattern(t->length);
        struct pass pass, elsewhere;
        submit_native(&pass, IO_IN, t->scheme, &area);
        deliver(&pass, after, t->length);
        struct io_buffer_header *bufv[] = {compose(&elsewhere, IO_IN, t->scheme, &other)};
        size_t own = 0; /* what goes where the request said, since there are fewer elements elsewhere */
        if (t->kind == MIXED && kind == FOREIGN) {
            elsewhere.elements[0].next_sg = NULL;
            own = area.pieces[1].length;
            memcpy(area.pieces[1].expected + area.pieces[1].offset, after + t->length - own, own);
        }
        OK(io_sync(pass.request, IO_REDIRECTED, 1, bufv, IO_FOREVER));
        CHECK(pass.actual == t->length);
        area_expect(&other, after, t->length - own);
        area_check(&other, "where the data was redirected to");
        area_check(&area, "the buffer that the request named");
        free(after);
        area_free(&area);
        area_free(&other);
    }
}

static void redirection_is_all_or_nothing(const struct trial *t) {
    struct area area = area_new(t), other = area_new(t);
    unsigned char *after = new_pattern(t->length);
    struct pass pass, elsewhere;
    submit_native(&pass, IO_IN, t->scheme, &area);
    deliver(&pass, after, t->length);
    struct io_buffer_header *bufv[] = {compose(&elsewhere, IO_IN, t->scheme, &other)};
    elsewhere.elements[other.count - 1].length--;
    FAILS(EINVAL, io_sync(pass.request, IO_REDIRECTED, 1, bufv, IO_FOREVER));
    CHECK(pass.actual == 0);
    area_check(&other, "where the data was redirected to");
    area_check(&area, "the buffer that the request named");
    free(after);
    area_free(&area);
    area_free(&other);
}

/* There and back, and how. */

static void synchronous_requests_pass_every_byte(const struct trial *t) {
    if (place.control < 0)
        return; /* this thread would wait for itself */
    for (uint32_t flags = 0; flags <= IO_HELD; flags++) {
        struct area from = area_new(t), to = area_at(t->kind, t->offset / 2, t->length);
        unsigned char *data = area_data(&from);
        struct pass out, in;
        struct io_buffer_header *bufv[] = {compose(&out, IO_OUT, t->scheme, &from), compose(&in, IO_IN, t->scheme, &to)};
        out.elements[0].flags = out.elements[1].flags = flags;
        OK(io_request(place.server, ECHO, 2, bufv, IO_FOREVER, NULL));
        CHECK(out.actual == t->length && in.actual == t->length);
        area_expect(&to, data, t->length);
        area_check(&to, "the input");
        area_check(&from, "the output's memory");
        free(data);
        area_free(&from);
        area_free(&to);
    }
}

/* Where memory cannot be protected, output that is not held is copied. */
static int can_protect(void) {
    static int is_told;
    char text[300];
    CHECK(io_doctor(place.interface, text, sizeof text) < (int)sizeof text);
    int can = !strstr(text, "output is copied");
    if (!can && !is_told++)
        fprintf(stderr, "SKIP emulated_copy_avoids_copies of output, %s: %s\n", configuration->name, text);
    return can;
}

static void emulated_copy_avoids_copies(const struct trial *t) {
    struct area area = area_new(t);
    /* Whole buffers of some granules are longer than any machine's thresholds. */
    int is_long = t->offset == 0 && area.pieces[0].length >= 4u << 20;
    unsigned char *after = new_pattern(t->length);
    struct pass pass;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    finish(&pass, t->length);
    const struct io_receipt *receipt = &pass.receipts[0];
    if (t->kind == FOREIGN)
        CHECK(receipt->copied == t->length && receipt->effective == IO_COPY && *receipt->reason);
    else if (area.pieces[0].length > 0 && (is_long || configuration->is_avoiding) && can_protect())
        CHECK(receipt->copied == 0 && receipt->effective == t->scheme && receipt->write_protected > 0 && !receipt->reason);
    submit_native(&pass, IO_IN, t->scheme, &area);
    deliver(&pass, after, t->length);
    synchronize(&pass, t->length);
    if (t->kind == FOREIGN)
        CHECK(receipt->copied == t->length && *receipt->reason);
    else if (t->kind == OURS && (is_long || (configuration->is_avoiding && (t->offset == 0 || can_protect())))) {
        CHECK(receipt->effective == t->scheme && receipt->swapped > 0);
        /* What lies beside the data on its granules is copied. */
        CHECK(t->offset > 0 || (receipt->copied == 0 && !receipt->reason));
    }
    free(after);
    area_free(&area);
}

/* Share. */

static void share_passes_every_byte(const struct trial *t) {
    struct area area = area_new(t);
    unsigned char *before = area_data(&area), *after = new_pattern(t->length);
    struct pass pass;
    submit_native(&pass, IO_OUT, t->scheme, &area);
    seen(&pass, before, t->length, "the output");
    finish(&pass, t->length);
    submit_native(&pass, IO_IN, t->scheme, &area);
    deliver(&pass, after, t->length);
    synchronize(&pass, t->length);
    area_expect(&area, after, t->length);
    area_check(&area, "the client's memory");
    submit_native(&pass, IO_OUT, t->scheme, &area);
    fail(&pass);
    fails(&pass);
    area_check(&area, "the client's memory, after a failed output");
    free(before);
    free(after);
    area_free(&area);
}

static void share_is_in_place(const struct trial *t) {
    if (t->kind != OURS || t->offset > 0)
        return;
    struct area area = area_new(t);
    unsigned char *after = new_pattern(t->length);
    struct pass pass;
    const struct io_receipt *receipt = &pass.receipts[0];
    submit_native(&pass, IO_OUT, t->scheme, &area);
    finish(&pass, t->length);
    CHECK(receipt->copied == 0 && receipt->effective == t->scheme && receipt->referenced > 0 && !receipt->reason);
    submit_native(&pass, IO_IN, t->scheme, &area);
    fill(&pass, after, t->length);
    same(area.pieces[0].base, after, t->length, "the client's memory, before the reply");
    deliver(&pass, after, t->length);
    synchronize(&pass, t->length);
    CHECK(receipt->copied == 0 && receipt->effective == t->scheme && !receipt->reason);
    free(after);
    area_free(&area);
}

/* Migrant buffers. */

static int is_strong(io_scheme_t scheme) { return scheme <= IO_EMULATED_MOVE; }

/* A migrant buffer with a pattern, of which `copyp` becomes a copy. */
static unsigned char *migrant_new(const struct trial *t, unsigned char **copyp) {
    unsigned char *buffer = io_allocate_migrant(place.interface, t->length, is_strong(t->scheme));
    CHECK(buffer);
    *copyp = new_pattern(t->length);
    memcpy(buffer, *copyp, t->length);
    return buffer;
}

static void submit_migrant(struct pass *pass, uint32_t direction, io_scheme_t scheme, void *buffer, size_t length) {
    compose(pass, direction, scheme, NULL);
    pass->region = (struct io_region){.count = 1, .segmentv = {{buffer, buffer ? length : 0}}};
    pass->elements[0].location.region = &pass->region;
    pass->elements[0].length = length;
    submit(pass);
}

/* The buffer that a migrant input has brought, which has so many bytes. */
static unsigned char *arrived(const struct pass *pass, size_t length) {
    CHECK(pass->region.count == 1 && pass->region.segmentv[0].addr && pass->region.segmentv[0].length == length);
    return pass->region.segmentv[0].addr;
}

/* How many pages the kernel can read for this process; it fails with EFAULT for one that is hidden. */
static size_t visible(unsigned char *buffer, size_t length) {
    size_t count = 0;
    char byte;
    struct iovec here = {&byte, 1};
    for (size_t at = 0; at < length; at += 4096) {
        ssize_t found = process_vm_readv(getpid(), &here, 1, &(struct iovec){buffer + at, 1}, 1, 0);
        CHECK(found == 1 || errno == EFAULT);
        count += found == 1;
    }
    return count;
}

static void migrants_are_passed_on(const struct trial *t) {
    unsigned char *bytes, *buffer = migrant_new(t, &bytes);
    struct pass pass;
    submit_migrant(&pass, IO_OUT, t->scheme, buffer, t->length);
    FAILS(EFAULT, io_free(buffer));
    seen(&pass, bytes, t->length, "the output");
    finish(&pass, t->length);
    CHECK(!pass.region.segmentv[0].addr && pass.receipts[0].copied == 0 && pass.receipts[0].effective == t->scheme);
    FAILS(EFAULT, io_free(buffer));
    free(bytes);
}

static void several_migrants_are_passed_in_one_element(const struct trial *t) {
    enum { SEGMENTS = 3 };
    struct io_region *region = calloc(1, sizeof *region + (SEGMENTS - 1) * sizeof region->segmentv[0]);
    struct io_segment *segments = region->segmentv;
    unsigned char *all = malloc(SEGMENTS * t->length), *bytes, *buffers[SEGMENTS];
    for (size_t i = 0; i < SEGMENTS; i++) {
        buffers[i] = migrant_new(t, &bytes);
        segments[i] = (struct io_segment){buffers[i], t->length};
        memcpy(all + i * t->length, bytes, t->length);
        free(bytes);
    }
    region->count = SEGMENTS;
    for (int succeeds = 0; succeeds < 2; succeeds++) {
        struct pass pass;
        compose(&pass, IO_OUT, t->scheme, NULL);
        pass.elements[0].location.region = region;
        submit(&pass);
        seen(&pass, all, SEGMENTS * t->length, "the output");
        if (succeeds) {
            finish(&pass, SEGMENTS * t->length);
        } else {
            fail(&pass);
            fails(&pass);
        }
        for (size_t i = 0; i < SEGMENTS; i++)
            CHECK(segments[i].addr == (succeeds ? NULL : buffers[i]) && segments[i].length == (succeeds ? 0 : t->length));
    }
    free(all);
    free(region);
}

static void failed_output_gives_migrants_back(const struct trial *t) {
    for (int is_aborted = 0; is_aborted < 2; is_aborted++) {
        unsigned char *bytes, *buffer = migrant_new(t, &bytes);
        struct pass pass;
        submit_migrant(&pass, IO_OUT, t->scheme, buffer, t->length);
        if (is_aborted) {
            OK(io_abort(pass.request));
            if (!pass.region.segmentv[0].addr) {
                /* The server has not let it go in time. Where the interface is the test's own, the time is long. */
                CHECK(!configuration->is_avoiding);
                free(bytes);
                continue;
            }
        } else {
            fail(&pass);
            fails(&pass);
        }
        CHECK(arrived(&pass, t->length) == buffer);
        same(buffer, bytes, t->length, "the buffer that came back");
        pattern(buffer, t->length);
        OK(io_free(buffer));
        free(bytes);
    }
}

static void moved_buffers_are_hidden(const struct trial *t) {
    unsigned char *bytes, *buffer = migrant_new(t, &bytes);
    size_t expected = is_strong(t->scheme) ? 0 : (t->length + 4095) / 4096;
    struct pass pass;
    CHECK(visible(buffer, t->length) == (t->length + 4095) / 4096);
    submit_migrant(&pass, IO_OUT, t->scheme, buffer, t->length);
    CHECK(visible(buffer, t->length) == expected);
    seen(&pass, bytes, t->length, "the output");
    finish(&pass, t->length);
    CHECK(visible(buffer, t->length) == expected);
    if (!is_strong(t->scheme))
        same(buffer, bytes, t->length, "a buffer that was passed weakly");
    free(bytes);
}

static void migrant_input_brings_a_buffer(const struct trial *t) {
    for (int i = 0; i < 2; i++) {
        unsigned char *after = new_pattern(t->length);
        struct pass pass;
        submit_migrant(&pass, IO_IN, t->scheme, NULL, t->length);
        deliver(&pass, after, t->length);
        synchronize(&pass, t->length);
        unsigned char *buffer = arrived(&pass, t->length);
        same(buffer, after, t->length, "the buffer that came");
        pattern(buffer, t->length);
        OK(io_free(buffer));
        free(after);
    }
}

/* A short input brings a short buffer. By move, whose pages are new to the client, no other data comes along: there are zeros behind. */
static void migrant_input_may_be_short(const struct trial *t) {
    const size_t actuals[] = {0, 1, 4093, 4096, 4097, t->length / 2, t->length - 1};
    for (size_t i = 0; i < sizeof actuals / sizeof *actuals; i++) {
        size_t actual = actuals[i];
        if (actual >= t->length)
            continue;
        unsigned char *after = new_pattern(t->length);
        struct pass pass;
        submit_migrant(&pass, IO_IN, t->scheme, NULL, t->length);
        fill(&pass, after, t->length); /* more than it will pass */
        set_actual(&pass, actual);
        finish(&pass, actual);
        unsigned char *buffer = arrived(&pass, actual);
        same(buffer, after, actual, "the buffer that came");
        for (size_t at = actual; t->scheme == IO_MOVE && at % 4096 != 0; at++)
            CHECK(buffer[at] == 0);
        OK(io_free(buffer));
        free(after);
    }
}

static void what_came_can_go(const struct trial *t) {
    for (io_scheme_t goes = IO_MOVE; goes <= IO_EMULATED_WEAK_MOVE; goes++) {
        if (is_strong(goes) != is_strong(t->scheme))
            continue;
        unsigned char *bytes = new_pattern(t->length);
        struct pass pass;
        submit_migrant(&pass, IO_IN, t->scheme, NULL, t->length);
        deliver(&pass, bytes, t->length);
        synchronize(&pass, t->length);
        unsigned char *buffer = arrived(&pass, t->length);
        bytes[0] = buffer[0] ^= 0xff;
        submit_migrant(&pass, IO_OUT, goes, buffer, t->length);
        seen(&pass, bytes, t->length, "the output");
        finish(&pass, t->length);
        CHECK(!pass.region.segmentv[0].addr);
        free(bytes);
    }
}

static void failed_migrant_input_brings_nothing(const struct trial *t) {
    for (int is_written = 0; is_written < 2; is_written++) {
        unsigned char *after = new_pattern(t->length);
        struct pass pass;
        submit_migrant(&pass, IO_IN, t->scheme, NULL, t->length);
        if (is_written)
            fill(&pass, after, t->length);
        fail(&pass);
        fails(&pass);
        CHECK(!pass.region.segmentv[0].addr);
        free(after);
    }
}

/* Buffers that are reused after strong output do not have what is still read. */
static void output_outlives_its_migrant_buffer(const struct trial *t) {
    for (io_scheme_t strong = IO_COPY; strong <= IO_EMULATED_COPY; strong++) {
        unsigned char *bytes, *buffer = migrant_new(t, &bytes), *others = new_pattern(t->length);
        struct area area = {.count = 1, .length = t->length, .pieces = {{.base = buffer, .length = t->length}}};
        struct pass pass, moved;
        submit_native(&pass, IO_OUT, strong, &area);
        submit_migrant(&moved, IO_OUT, t->scheme, buffer, t->length);
        seen(&moved, bytes, t->length, "the moved output");
        finish(&moved, t->length);
        submit_migrant(&moved, IO_IN, t->scheme, NULL, t->length);
        deliver(&moved, others, t->length);
        synchronize(&moved, t->length);
        OK(io_free(arrived(&moved, t->length)));
        seen(&pass, bytes, t->length, "the output by copy");
        finish(&pass, t->length);
        free(bytes);
        free(others);
    }
}

static void no_bytes_pass(const struct trial *t) {
    struct pass pass;
    void *buffer = NULL;
    for (int i = 0; i < 2; i++) {
        if (t->scheme >= IO_MOVE) {
            submit_migrant(&pass, IO_IN, t->scheme, NULL, 0);
            finish(&pass, 0);
            buffer = arrived(&pass, 0);
            submit_migrant(&pass, IO_OUT, t->scheme, buffer, 0);
        } else {
            struct area area = area_at(t->kind, t->offset, 0);
            submit_native(&pass, IO_IN, t->scheme, &area);
            deliver(&pass, NULL, 0);
            synchronize(&pass, 0);
            area_check(&area, "the client's memory");
            area_free(&area);
            area = (struct area){.count = 1}; /* nowhere */
            submit_native(&pass, IO_OUT, t->scheme, &area);
        }
        seen(&pass, NULL, 0, "the output");
        finish(&pass, 0);
    }
}

/* All of them. */

static const struct promise {
    const char *name;
    void (*hold)(const struct trial *);
    io_scheme_t first, last;
} promises[] = {
#define BY(first, last, promise) {#promise, promise, first, last}
    BY(IO_COPY, IO_EMULATED_COPY, output_hides_later_stores),
    BY(IO_COPY, IO_EMULATED_COPY, output_hides_later_kernel_reads),
    BY(IO_COPY, IO_EMULATED_COPY, output_outlives_its_buffer),
    BY(IO_COPY, IO_EMULATED_COPY, outputs_of_one_buffer_keep_their_contents),
    BY(IO_COPY, IO_EMULATED_COPY, overlapping_outputs_keep_their_contents),
    BY(IO_COPY, IO_EMULATED_COPY, failed_output_leaves_the_buffer),
    BY(IO_COPY, IO_EMULATED_COPY, output_hides_later_input),
    BY(IO_COPY, IO_EMULATED_COPY, output_hides_a_later_share),
    BY(IO_COPY, IO_EMULATED_COPY, input_comes_with_the_reply),
    BY(IO_COPY, IO_EMULATED_COPY, failed_input_leaves_the_buffer),
    BY(IO_COPY, IO_EMULATED_COPY, input_may_be_shorter_than_asked),
    BY(IO_COPY, IO_EMULATED_COPY, elements_may_meet_in_one_granule),
    BY(IO_COPY, IO_EMULATED_COPY, peeked_input_stays_pending),
    BY(IO_COPY, IO_EMULATED_COPY, redirected_input_leaves_the_buffer),
    BY(IO_COPY, IO_EMULATED_COPY, redirection_is_all_or_nothing),
    BY(IO_COPY, IO_EMULATED_SHARE, synchronous_requests_pass_every_byte),
    BY(IO_EMULATED_COPY, IO_EMULATED_COPY, emulated_copy_avoids_copies),
    BY(IO_SHARE, IO_EMULATED_SHARE, share_passes_every_byte),
    BY(IO_SHARE, IO_EMULATED_SHARE, share_is_in_place),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, migrants_are_passed_on),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, several_migrants_are_passed_in_one_element),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, failed_output_gives_migrants_back),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, moved_buffers_are_hidden),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, migrant_input_brings_a_buffer),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, migrant_input_may_be_short),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, what_came_can_go),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, failed_migrant_input_brings_nothing),
    BY(IO_MOVE, IO_EMULATED_WEAK_MOVE, output_outlives_its_migrant_buffer),
    BY(IO_COPY, IO_EMULATED_WEAK_MOVE, no_bytes_pass),
};
#define PROMISES (sizeof promises / sizeof *promises)

static void try(const struct promise *promise) {
    const size_t brief = is_brief() ? 1 : 0; /* then every second one of the short slices */
    const size_t count = brief ? 6 : sizeof slices / sizeof *slices;
    for (io_scheme_t scheme = promise->first; scheme <= promise->last; scheme++)
        for (enum kind kind = OURS; kind <= (scheme < IO_MOVE ? MIXED : OURS); kind++)
            for (size_t i = brief; i < count; i += 1 + brief) {
                alarm(60); /* a hang ends the process */
                now->trial = (struct trial){scheme, kind, slices[i].offset, slices[i].length};
                promise->hold(&now->trial);
            }
}

/* Tries the promises from now->promise on, and ends the process. */
static void try_from_now_on(void) {
    struct io_options options = {.size = sizeof options, .abort_timeout = 60000000000, .thresholds = {1, 1, 1, 1}};
    place_open(&place, configuration->is_elsewhere, configuration->is_avoiding ? &options : NULL);
    for (; now->promise < PROMISES; now->promise++)
        try(&promises[now->promise]);
    place_close(&place);
    exit(0);
}

int main(void) {
    char directory[] = "/tmp/genie-c-XXXXXX", command[100];
    CHECK(mkdtemp(directory));
    setenv("GENIE_RUNTIME_DIR", directory, 1);
    now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(now != MAP_FAILED);
    int failures = 0;
    for (size_t i = 0; i < sizeof configurations / sizeof *configurations; i++) {
        configuration = &configurations[i];
        for (now->promise = 0; now->promise <= PROMISES; now->promise++) {
            int status;
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0)
                try_from_now_on();
            CHECK(waitpid(child, &status, 0) == child);
            if (status == 0)
                break;
            failures++;
            const struct trial *t = &now->trial;
            fprintf(stderr, "BROKEN %s: %s; scheme %u, %s, %zu bytes at %zu, seed %llu (status %#x)\n",
                    now->promise < PROMISES ? promises[now->promise].name : "the end", configuration->name, t->scheme,
                    kinds[t->kind], t->length, t->offset, (unsigned long long)now->seed, (unsigned)status);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK(system(command) == 0);
    return failures > 0;
}
