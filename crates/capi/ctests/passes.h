/* Trials of promises: memory that is known byte by byte, and requests that pass it to the holder. */
#ifndef PASSES_H
#define PASSES_H

#include "holder.h"

/* Where the data of a trial is: in a buffer of the library's, in other memory, or in a list of one of each. */
enum kind { OURS, FOREIGN, MIXED };
static const char *const kinds[] = {"the library's memory", "other memory", "both in one list"};

struct trial {
    io_scheme_t scheme;
    enum kind kind;
    size_t offset, length; /* from the beginning of the memory */
};

struct configuration {
    const char *name;
    int is_elsewhere, is_avoiding; /* a server in another process; thresholds of 1 byte */
};

/* What is being tried, for the process that tells of failures. */
static struct progress {
    size_t promise;
    uint64_t seed;
    struct trial trial;
} *now;
static struct place place;
static const struct configuration *configuration;

/* Data. */

/* Other bytes for each call. */
static void pattern(unsigned char *to, size_t length) {
    uint64_t word = ++now->seed * 0x9e3779b97f4a7c15 | 1;
    for (size_t i = 0; i < length; i += sizeof word) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(to + i, &word, length - i < sizeof word ? length - i : sizeof word);
    }
}

static unsigned char *new_pattern(size_t length) {
    unsigned char *bytes = malloc(length + 1);
    CHECK(bytes);
    pattern(bytes, length);
    return bytes;
}

static void same(const void *found, const void *expected, size_t length, const char *what) {
    if (length == 0 || memcmp(found, expected, length) == 0)
        return;
    const unsigned char *a = found, *b = expected;
    size_t at = 0, count = 0;
    for (size_t i = length; i-- > 0;)
        if (a[i] != b[i])
            at = i, count++;
    fprintf(stderr, "%s: byte %zu of %zu is %u and should be %u; %zu bytes differ\n", what, at, length, a[at], b[at], count);
    exit(1);
}

/* Areas: the memory of a trial, and what it should hold. */

struct piece {
    unsigned char *base, *expected;
    size_t room, offset, length; /* the data is a part of the memory */
};
struct area {
    struct piece pieces[2];
    size_t count, length;
    enum kind kind;
};

static int is_ours(const struct area *area, size_t piece) { return area->kind == OURS || (area->kind == MIXED && piece == 0); }

/* Stores other bytes into all of the memory. */
static void area_store(struct area *area) {
    for (struct piece *piece = area->pieces; piece < area->pieces + area->count; piece++) {
        pattern(piece->expected, piece->room);
        memcpy(piece->base, piece->expected, piece->room);
    }
}

static struct area area_at(enum kind kind, size_t offset, size_t length) {
    struct area area = {.kind = kind, .length = length, .count = kind == MIXED ? 2 : 1};
    for (size_t i = 0; i < area.count; i++) {
        struct piece *piece = &area.pieces[i];
        piece->offset = offset;
        piece->length = i + 1 < area.count ? length / 2 : length - area.pieces[0].length;
        piece->room = offset + piece->length + (offset ? 13 : 0);
        if (piece->room == 0)
            piece->room = 1;
        piece->base = is_ours(&area, i) ? io_allocate(place.interface, piece->room) : malloc(piece->room);
        piece->expected = malloc(piece->room);
        CHECK(piece->base && piece->expected);
    }
    area_store(&area);
    return area;
}

static struct area area_new(const struct trial *t) { return area_at(t->kind, t->offset, t->length); }

/* The memory has what it should have, and no other byte. */
static void area_check(const struct area *area, const char *what) {
    for (const struct piece *piece = area->pieces; piece < area->pieces + area->count; piece++)
        same(piece->base, piece->expected, piece->room, what);
}

/* The data that the area should hold. */
static unsigned char *area_data(const struct area *area) {
    unsigned char *bytes = malloc(area->length + 1), *to = bytes;
    CHECK(bytes);
    for (const struct piece *piece = area->pieces; piece < area->pieces + area->count; to += piece++->length)
        memcpy(to, piece->expected + piece->offset, piece->length);
    return bytes;
}

/* From now on the area should hold this data at its beginning. */
static void area_expect(struct area *area, const unsigned char *bytes, size_t length) {
    for (struct piece *piece = area->pieces; piece < area->pieces + area->count; piece++) {
        size_t part = length < piece->length ? length : piece->length;
        memcpy(piece->expected + piece->offset, bytes, part);
        bytes += part;
        length -= part;
    }
}

static void area_release(struct area *area) {
    for (size_t i = 0; i < area->count; i++) {
        if (is_ours(area, i))
            OK(io_free(area->pieces[i].base));
        else
            free(area->pieces[i].base);
        area->pieces[i].base = NULL;
    }
}

static void area_free(struct area *area) {
    if (area->pieces[0].base)
        area_release(area);
    for (size_t i = 0; i < area->count; i++)
        free(area->pieces[i].expected);
}

/* Requests to the holder. */

/* One buffer, and the request that passes it. */
struct pass {
    struct io_buffer_header header;
    struct io_scatter_gather elements[2];
    struct io_receipt receipts[2];
    struct io_region region;
    size_t actual;
    uint64_t number;
    io_request_t request;
};

static struct io_buffer_header *compose(struct pass *pass, uint32_t direction, io_scheme_t scheme, const struct area *area) {
    memset(pass, 0, sizeof *pass);
    pass->header.direction = direction;
    pass->header.first_sg = pass->elements;
    pass->header.actual_lengthp = &pass->actual;
    for (size_t i = 0; i < (area ? area->count : 1); i++) {
        struct io_scatter_gather *element = &pass->elements[i];
        element->scheme = scheme;
        element->receiptp = &pass->receipts[i];
        if (i > 0)
            element[-1].next_sg = element;
        if (area) {
            element->location.native.addr = area->pieces[i].base + area->pieces[i].offset;
            element->length = area->pieces[i].length;
        }
    }
    return &pass->header;
}

static int request(struct pass *pass, int64_t timeout, io_request_t *requestp) {
    pass->number = place.next_number++;
    pass->header.out_arg = &pass->number;
    pass->header.out_arg_length = sizeof pass->number;
    struct io_buffer_header *bufv[] = {&pass->header};
    return io_request(place.server, HOLD, 1, bufv, timeout, requestp);
}

static void submit(struct pass *pass) { CHECK(request(pass, IO_FOREVER, &pass->request) == IO_PENDING); }

static void submit_native(struct pass *pass, uint32_t direction, io_scheme_t scheme, const struct area *area) {
    compose(pass, direction, scheme, area);
    submit(pass);
}

/* The server sees these bytes in the output. */
static void seen(const struct pass *pass, const unsigned char *expected, size_t length, const char *what) {
    unsigned char *found = malloc(length + 1);
    CHECK(found);
    tell(&place, READ, pass->number, 0, 0, found, length);
    same(found, expected, length, what);
    free(found);
}

static void reply(const struct pass *pass) { tell(&place, REPLY, pass->number, 0, 0, NULL, 0); }
static void fail(const struct pass *pass) { tell(&place, FAIL, pass->number, 0, 0, NULL, 0); }
static void fill(const struct pass *pass, unsigned char *bytes, size_t length) {
    tell(&place, WRITE, pass->number, 0, 0, bytes, length);
}
static void set_actual(const struct pass *pass, size_t length) { tell(&place, SET_ACTUAL, pass->number, 0, 0, NULL, length); }

static void deliver(const struct pass *pass, unsigned char *bytes, size_t length) {
    fill(pass, bytes, length);
    set_actual(pass, length);
    reply(pass);
}

static void synchronize(struct pass *pass, size_t actual) {
    OK(io_sync(pass->request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(pass->actual == actual);
}

static void fails(struct pass *pass) {
    pass->actual = 1;
    FAILS(FAILURE, io_sync(pass->request, IO_NORMAL, 0, NULL, IO_FOREVER));
    CHECK(strstr(io_error_text(), "as it was told") && pass->actual == 0);
}

static void finish(struct pass *pass, size_t actual) {
    reply(pass);
    synchronize(pass, actual);
}

#endif
