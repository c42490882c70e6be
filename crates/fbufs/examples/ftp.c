/* ftp: sends a file from one process to another.
 *
 *   ftp -r ADDRESS FILE            receives into FILE
 *   ftp -t ADDRESS FILE [TIMES]    sends FILE, once or several times
 *
 * One source for two programs: the inner loops of ftp's sendrequest and recvrequest, as they are with the standard calls, and, built
 * with -DUF, as Thadani and Khalidi changed them: An Efficient Zero-Copy I/O Framework for UNIX (SMLI TR-95-39, 4.2, 6.2). */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "endpoint.h"

enum { FBSIZE = 8192 };

static unsigned long long send_file(int file, int fd) {
    unsigned long long bytes = 0;
    ssize_t c;
#ifdef UF
    struct stat found;
    MUST(fstat(file, &found) == 0);
    size_t file_size = (size_t)found.st_size;
    char *addr = uf_mmap(NULL, file_size, PROT_READ, MAP_SHARED, file, 0);
    MUST(addr != MAP_FAILED);
    while (bytes < file_size) {
        size_t part = FBSIZE < file_size - bytes ? FBSIZE : file_size - bytes;
        c = uf_write(fd, addr + bytes, part);
        MUST(c > 0);
        bytes += (unsigned long long)c;
    }
    MUST(uf_unmap(addr, file_size) == 0);
#else
    char buf[FBSIZE];
    while ((c = read(file, buf, sizeof buf)) > 0) {
        MUST(write(fd, buf, (size_t)c) == c);
        bytes += (unsigned long long)c;
    }
    MUST(c == 0 && lseek(file, 0, SEEK_SET) == 0);
#endif
    return bytes;
}

static unsigned long long receive_file(int fd, int file) {
    unsigned long long bytes = 0;
    ssize_t c;
#ifdef UF
    void *fbuf;
    while ((c = uf_read(fd, &fbuf, FBSIZE)) > 0) {
        ssize_t d = write(file, fbuf, (size_t)c);
        uf_deallocate(fbuf, (size_t)c);
        MUST(d == c);
        bytes += (unsigned long long)c;
    }
#else
    char buf[FBSIZE];
    while ((c = read(fd, buf, sizeof buf)) > 0) {
        MUST(write(file, buf, (size_t)c) == c);
        bytes += (unsigned long long)c;
    }
#endif
    MUST(c == 0);
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 4 || (strcmp(argv[1], "-r") && strcmp(argv[1], "-t"))) {
        fprintf(stderr, "usage: ftp -r ADDRESS FILE, or ftp -t ADDRESS FILE [TIMES]\n");
        return 2;
    }
    int receives = argv[1][1] == 'r';
    int file = open(argv[3], receives ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0600);
    if (file < 0) {
        perror(argv[3]);
        return 1;
    }
    int fd = receives ? serve(argv[2]) : reach(argv[2]);
    struct cost cost = begin();
    unsigned long long bytes = 0;
    for (long times = argc > 4 ? atol(argv[4]) : 1; times > 0; times--)
        bytes += receives ? receive_file(fd, file) : send_file(file, fd);
    end(cost, receives ? "received" : "sent", bytes);
    MUST(CLOSE(fd) == 0 && close(file) == 0);
    return 0;
}
