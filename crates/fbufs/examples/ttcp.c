/* ttcp: how fast bytes get from one process to another.
 *
 *   ttcp -r ADDRESS            receives
 *   ttcp -t ADDRESS [COUNT]    sends COUNT buffers (2048) of 8192 bytes
 *
 * One source for two programs, as the second macro-benchmark of Thadani and Khalidi, An Efficient Zero-Copy I/O Framework for UNIX
 * (SMLI TR-95-39, 6.2): with the standard calls, and, built with -DUF, with those of libfbufs. */
#define _POSIX_C_SOURCE 200809L
#include "endpoint.h"

enum { LENGTH = 8192 };

static unsigned long long transmit(int fd, long count) {
    unsigned long long bytes = 0;
#ifndef UF
    static char buffer[LENGTH];
    memset(buffer, 'x', sizeof buffer);
#endif
    for (long i = 0; i < count; i++) {
#ifdef UF
        char *buffer = uf_allocate(LENGTH);
        MUST(buffer);
        memcpy(buffer, &i, sizeof i);
        ssize_t written = uf_write(fd, buffer, LENGTH);
#else
        memcpy(buffer, &i, sizeof i);
        ssize_t written = write(fd, buffer, LENGTH);
#endif
        MUST(written == LENGTH);
        bytes += (unsigned long long)written;
    }
    return bytes;
}

static unsigned long long receive(int fd) {
    unsigned long long bytes = 0;
    ssize_t count;
#ifdef UF
    void *buffer;
    while ((count = uf_read(fd, &buffer, LENGTH)) > 0) {
        uf_deallocate(buffer, (size_t)count);
        bytes += (unsigned long long)count;
    }
#else
    static char buffer[LENGTH];
    while ((count = read(fd, buffer, LENGTH)) > 0)
        bytes += (unsigned long long)count;
#endif
    MUST(count == 0);
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 3 || (strcmp(argv[1], "-r") && strcmp(argv[1], "-t"))) {
        fprintf(stderr, "usage: ttcp -r ADDRESS, or ttcp -t ADDRESS [COUNT]\n");
        return 2;
    }
    int receives = argv[1][1] == 'r';
    int fd = receives ? serve(argv[2]) : reach(argv[2]);
    struct cost cost = begin();
    unsigned long long bytes = receives ? receive(fd) : transmit(fd, argc > 3 ? atol(argv[3]) : 2048);
    end(cost, receives ? "received" : "sent", bytes);
    MUST(CLOSE(fd) == 0);
    return 0;
}
