/* Two programs for a shell's pipe: `filters make MIB | filters sum`.
 *
 * From one source: with the C library's streams; with -DUF, with libfbufs', by two changed lines; with -DFBUFS, with fbufs in place. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(UF) || defined(FBUFS)
#include <fbufs.h>
#endif

enum { BLOCK = 64 << 10 };

static void fill(unsigned char *bytes, uint64_t seed) {
    for (size_t i = 0; i < BLOCK / 8; i++) {
        uint64_t word = (seed * (BLOCK / 8) + i) * 0x9e3779b97f4a7c15;
        memcpy(bytes + 8 * i, &word, 8);
    }
}

static uint64_t sum(const unsigned char *bytes, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += bytes[i];
    return total;
}

#ifdef FBUFS
static int make(long blocks) {
    uf_take_over(1);
    for (long i = 0; i < blocks; i++) {
        unsigned char *block = uf_allocate_for(1, BLOCK);
        if (!block)
            return 1;
        fill(block, (uint64_t)i);
        if (uf_write(1, block, BLOCK) != BLOCK)
            return 1;
    }
    return uf_close(1) != 0;
}

static int add_up(uint64_t *total) {
    void *bytes;
    ssize_t count;
    uf_take_over(0);
    while ((count = uf_get(0, &bytes)) > 0) {
        *total += sum(bytes, (size_t)count);
        uf_deallocate(bytes, (size_t)count);
    }
    return count != 0;
}
#else
#ifdef UF
static FILE *out(void) { return uf_take_over(1) ? NULL : uf_fdopen(1, "w"); }
static FILE *in(void) { return uf_take_over(0) ? NULL : uf_fdopen(0, "r"); }
#else
static FILE *out(void) { return fdopen(1, "w"); }
static FILE *in(void) { return fdopen(0, "r"); }
#endif

static int make(long blocks) {
    static unsigned char block[BLOCK];
    FILE *stream = out();
    for (long i = 0; stream && i < blocks; i++) {
        fill(block, (uint64_t)i);
        if (fwrite(block, 1, BLOCK, stream) != BLOCK)
            return 1;
    }
    return !stream || fclose(stream) != 0;
}

static int add_up(uint64_t *total) {
    static unsigned char block[BLOCK];
    size_t count;
    FILE *stream = in();
    while (stream && (count = fread(block, 1, BLOCK, stream)) > 0)
        *total += sum(block, count);
    return !stream || ferror(stream) || fclose(stream) != 0;
}
#endif

int main(int argc, char **argv) {
    uint64_t total = 0;
    if (argc == 3 && strcmp(argv[1], "make") == 0)
        return make(atol(argv[2]) * ((1 << 20) / BLOCK));
    if (argc != 2 || strcmp(argv[1], "sum") != 0)
        return 2;
    if (add_up(&total) != 0)
        return 1;
    printf("%llu\n", (unsigned long long)total);
    return 0;
}
