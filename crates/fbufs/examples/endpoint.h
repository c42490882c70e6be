/* What ttcp and ftp have in common: connections, and what a transfer has cost.
 *
 * An address with a slash is a path: of a Unix-domain socket, or, built with -DUF, of a channel's listener. Another one is a port of
 * the loop-back interface. */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef UF
#include <fbufs.h>
#define WHY uf_error_text()
#define CLOSE uf_close
#define PROGRAM "uf"
#else
#define WHY strerror(errno)
#define CLOSE close
#define PROGRAM "standard"
#endif

#define MUST(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, WHY); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

/* A socket's address; returns its length. */
static inline socklen_t address_of(const char *name, struct sockaddr_storage *address) {
    memset(address, 0, sizeof *address);
    if (strchr(name, '/')) {
        struct sockaddr_un *path = (struct sockaddr_un *)address;
        path->sun_family = AF_UNIX;
        MUST(strlen(name) < sizeof path->sun_path);
        strcpy(path->sun_path, name);
        return sizeof *path;
    }
    struct sockaddr_in *port = (struct sockaddr_in *)address;
    port->sin_family = AF_INET;
    port->sin_port = htons((unsigned short)atoi(name));
    port->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof *port;
}

/* Waits for one connection. */
static inline int serve(const char *name) {
#ifdef UF
    if (strchr(name, '/')) {
        MUST(uf_join("transfer") == 0);
        int listener = uf_listen(name), fd;
        MUST(listener >= 0);
        fd = uf_accept(listener);
        MUST(fd >= 0 && uf_close(listener) == 0);
        return fd;
    }
#endif
    struct sockaddr_storage address;
    socklen_t length = address_of(name, &address);
    int listener = socket(address.ss_family, SOCK_STREAM, 0), fd, on = 1;
    MUST(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    MUST(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0);
    fd = accept(listener, NULL, NULL);
    MUST(fd >= 0 && close(listener) == 0);
    return fd;
}

/* Connects to a server, which may be about to start. */
static inline int reach(const char *name) {
#ifdef UF
    if (strchr(name, '/')) {
        MUST(uf_join("transfer") == 0);
        int channel = uf_connect_timeout(name, 10000);
        MUST(channel >= 0);
        return channel;
    }
#endif
    struct timespec pause = {0, 10000000};
    for (int attempt = 0; attempt < 1000; attempt++) {
        struct sockaddr_storage address;
        socklen_t length = address_of(name, &address);
        int fd = socket(address.ss_family, SOCK_STREAM, 0);
        MUST(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, length) == 0)
            return fd;
        MUST(errno == ENOENT || errno == ECONNREFUSED);
        close(fd);
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "nobody serves at %s\n", name);
    exit(1);
}

struct cost {
    struct timespec start;
    double used;
};

static inline double cpu_seconds(void) {
    struct rusage usage;
    MUST(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static inline struct cost begin(void) {
    struct cost cost = {.used = cpu_seconds()};
    clock_gettime(CLOCK_MONOTONIC, &cost.start);
    return cost;
}

/* Says what was transferred, and at which cost. */
static inline void end(struct cost cost, const char *what, unsigned long long bytes) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - cost.start.tv_sec) + (double)(now.tv_nsec - cost.start.tv_nsec) * 1e-9;
    printf(PROGRAM " %s %llu bytes, %.3f s, %.0f MB/s, %.0f %% of a CPU\n", what, bytes, seconds,
           (double)bytes / seconds * 1e-6, 100 * (cpu_seconds() - cost.used) / seconds);
}

#endif
