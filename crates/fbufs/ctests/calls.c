/* All calls in one process: channels pass buffers, and pipes, sockets and files copy them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "check.h"

static const size_t lengths[] = {1, 4096, 8192, 70001};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void stream(int to, int from, int passes) {
    for (size_t l = 0; l < LENGTHS - (size_t)!passes; l++) {
        size_t length = lengths[l], found = 0;
        unsigned char *bytes = filled(length, 1);
        CHECK(uf_write(to, bytes, length) == (ssize_t)length);
        FAILS(EFAULT, uf_write(to, bytes, length)); /* it is gone */
        /* Whoever allocates now gets its pages, if they were freed. */
        unsigned char *other = uf_allocate(length);
        CHECK(other && (other == bytes) == !passes);
        while (found < length) {
            void *part;
            ssize_t count = uf_read(from, &part, 5000);
            CHECK(count > 0 && count <= 5000);
            expect(part, (size_t)count, found, 1);
            CHECK(!passes || length > 5000 || part == bytes);
            found += (size_t)count;
            CHECK(uf_deallocate(part, (size_t)count) == NULL);
        }
        CHECK(uf_deallocate(other, length) == NULL);
    }
    /* A part of a buffer is written, and the whole buffer is gone; get takes all there is. */
    unsigned char *bytes = filled(9000, 2);
    CHECK(uf_write(to, bytes + 1000, 7000) == 7000);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 9000));
    void *all;
    CHECK(uf_get(from, &all) == 7000);
    expect(all, 7000, 1000, 2);
    CHECK(!passes || all == bytes + 1000);
    /* What was read is written on, and nothing is nothing. */
    CHECK(uf_write(to, all, 7000) == 7000);
    CHECK(uf_read(from, &all, 0) == 0 && all == NULL);
    CHECK(uf_get(from, &all) == 7000);
    CHECK(uf_write(to, all, 0) == 0);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(all, 0));
}

/* What does not block says so, and keeps what is not written. */
static void nonblocking(int to, int from) {
    void *all;
    OK(uf_set_nonblocking(from, 1));
    FAILS(EAGAIN, uf_get(from, &all));
    OK(uf_set_nonblocking(to, 1));
    size_t written = 0, found = 0, length = 20000;
    for (;;) {
        unsigned char *bytes = uf_allocate(length);
        for (size_t i = 0; i < length; i++)
            bytes[i] = pattern(written + i, 3);
        ssize_t count = uf_write(to, bytes, length);
        if (count == (ssize_t)length) {
            written += length;
            continue;
        }
        CHECK(count > 0 || (count == -1 && errno == EAGAIN));
        size_t part = count > 0 ? (size_t)count : 0;
        written += part;
        if (part > 0)
            FAILS(EFAULT, uf_write(to, bytes, length)); /* these bytes are written */
        FAILS(EAGAIN, uf_write(to, bytes + part, length - part));
        CHECK(uf_deallocate(bytes + part, length - part) == NULL);
        break;
    }
    while (found < written) {
        ssize_t count = uf_get(from, &all);
        CHECK(count > 0);
        expect(all, (size_t)count, found, 3);
        found += (size_t)count;
        CHECK(uf_deallocate(all, (size_t)count) == NULL);
    }
    OK(uf_set_nonblocking(to, 0));
    OK(uf_set_nonblocking(from, 0));
}

/* Parts of a mapped file are written like buffers, and stay mapped. */
static void mapped(int to, int from, int is_channel) {
    FILE *file = tmpfile();
    CHECK(file);
    for (size_t i = 0; i < 20000; i++)
        CHECK(fputc(pattern(i, 4), file) != EOF);
    CHECK(fflush(file) == 0);
    char *addr = uf_mmap(NULL, 20000 - 4096, PROT_READ, MAP_SHARED, fileno(file), 4096);
    CHECK(addr != MAP_FAILED);
    expect((unsigned char *)addr, 20000 - 4096, 4096, 4);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(uf_write(to, addr + 10, 8192) == 8192);
        void *all;
        CHECK(uf_get(from, &all) == 8192);
        expect(all, 8192, 4106, 4);
        CHECK(uf_deallocate(all, 8192) == NULL);
    }
    /* The pages of the file are passed: what is stored into it later is read. */
    if (!is_channel) {
        CHECK(uf_write(to, addr, 1) == 1);
        CHECK(pwrite(fileno(file), "!", 1, 4096) == 1);
        void *all;
        CHECK(uf_get(from, &all) == 1 && *(char *)all == '!');
        CHECK(uf_deallocate(all, 1) == NULL);
    }
    FAILS(EINVAL, uf_unmap(addr, 4096));
    FAILS_WITH(UF_FAILED, EINVAL, uf_deallocate(addr, 1));
    OK(uf_unmap(addr, 20000 - 4096));
    FAILS(EFAULT, uf_unmap(addr, 20000 - 4096));
    FAILS(EFAULT, uf_write(to, addr, 1));
    CHECK(fclose(file) == 0);
}

static void explained(int fd, int passes, const char *start) {
    const char *text;
    CHECK(uf_explain(fd, &text) == passes && uf_explain(fd, NULL) == passes);
    CHECK(strncmp(text, start, strlen(start)) == 0);
}

static void closed(int to, int from) {
    void *all = &all;
    CHECK(uf_write(to, filled(10, 5), 10) == 10);
    OK(uf_close(to));
    CHECK(uf_get(from, &all) == 10);
    expect(all, 10, 0, 5);
    CHECK(uf_get(from, &all) == 0 && all == NULL);
    CHECK(uf_read(from, &all, 100) == 0);
    OK(uf_close(from));
    FAILS(EBADF, uf_close(from));
}

static void files(void) {
    FILE *file = tmpfile();
    CHECK(file);
    int fd = fileno(file);
    CHECK(uf_write(fd, filled(10000, 6), 10000) == 10000);
    CHECK(lseek(fd, 100, SEEK_SET) == 100);
    void *all;
    CHECK(uf_read(fd, &all, 900) == 900);
    expect(all, 900, 100, 6);
    CHECK(uf_get(fd, &all) == 9000);
    expect(all, 9000, 1000, 6);
    CHECK(uf_get(fd, &all) == 0 && all == NULL);
    explained(fd, 0, "write copied: the file has pages of its own");
    CHECK(fclose(file) == 0);
}

static void tcp(int fds[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    OK(bind(listener, (struct sockaddr *)&address, length));
    OK(listen(listener, 1));
    OK(getsockname(listener, (struct sockaddr *)&address, &length));
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    OK(connect(fds[0], (struct sockaddr *)&address, length));
    fds[1] = accept(listener, NULL, NULL);
    CHECK(fds[1] >= 0);
    OK(uf_close(listener));
}

int main(void) {
    int fds[2];
    OK(uf_pair(fds));
    explained(fds[0], UF_PASSES_FBUFS | UF_PASSES_INPUT, "write passed: both ends have mapped the pool");
    stream(fds[0], fds[1], 1);
    stream(fds[1], fds[0], 1);
    nonblocking(fds[0], fds[1]);
    mapped(fds[0], fds[1], 1);
    closed(fds[0], fds[1]);

    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    explained(fds[0], UF_PASSES_FILES, "write copied: within a machine Linux copies");
    stream(fds[0], fds[1], 0);
    nonblocking(fds[0], fds[1]);
    mapped(fds[0], fds[1], 0);
    closed(fds[0], fds[1]);

    OK(pipe(fds));
    explained(fds[1], UF_PASSES_FILES, "write copied: Linux does not tell");
    stream(fds[1], fds[0], 0);
    nonblocking(fds[1], fds[0]);
    mapped(fds[1], fds[0], 0);
    closed(fds[1], fds[0]);

    tcp(fds);
    explained(fds[0], UF_PASSES_FILES, "write copied: within a machine Linux copies");
    nonblocking(fds[0], fds[1]);
    mapped(fds[0], fds[1], 0);
    closed(fds[0], fds[1]);
    files();
    return 0;
}
