/* Checks that stop a test and say where, and what most tests need. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, uf_error_text()); \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

#define OK(call) CHECK((call) == 0)

/* The call returns this failure with this errno, and says why. */
#define FAILS_WITH(failure, error, call)                                                                         \
    do {                                                                                                         \
        errno = 0;                                                                                               \
        int failed_ = (call) == (failure);                                                                       \
        if (!failed_ || errno != (error) || !*uf_error_text()) {                                                 \
            fprintf(stderr, "%s:%d: %s %s with errno %d, not %d: %s\n", __FILE__, __LINE__, #call,               \
                    failed_ ? "failed" : "did not fail", errno, (error), uf_error_text());                       \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

#define FAILS(error, call) FAILS_WITH(-1, error, call)

static inline unsigned char pattern(size_t at, unsigned seed) {
    return (unsigned char)(at * 7 + at / 251 + seed);
}

/* An fbuf with a pattern. */
static inline unsigned char *filled(size_t length, unsigned seed) {
    unsigned char *bytes = uf_allocate(length);
    CHECK(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern(i, seed);
    return bytes;
}

static inline void expect(const unsigned char *bytes, size_t length, size_t from, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != pattern(from + i, seed)) {
            fprintf(stderr, "byte %zu of %zu is %u\n", i, length, bytes[i]);
            exit(1);
        }
}

/* Runs a part of a test in a process of its own; returns its number. */
static inline pid_t process(void (*part)(void *), void *argument) {
    fflush(NULL);
#ifdef __SANITIZE_ADDRESS__
    /* Its allocator does not know fork: a child inherits a lock that a thread of the library's, which is just starting, has. */
    usleep(20000);
#endif
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        part(argument);
        exit(0);
    }
    return child;
}

/* The process ends well. */
static inline void ends(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "process %d ended with status %#x\n", (int)child, (unsigned)status);
        exit(1);
    }
}

/* Says that a part of a test is left out, and why. */
static inline void skip(const char *part, const char *why) {
    const char *log = getenv("GENIE_SKIP_LOG");
    FILE *files[] = {stderr, log && *log ? fopen(log, "a") : NULL};
    for (int i = 0; i < 2; i++)
        if (files[i])
            fprintf(files[i], "SKIP %s: %s\n", part, why);
    if (files[1])
        fclose(files[1]);
}

/* A directory of the test's own, in which groups have their names, too. */
static inline const char *directory(void) {
    static char path[] = "/tmp/fbufs-test-XXXXXX";
    static int made;
    if (!made) {
        CHECK(mkdtemp(path));
        CHECK(setenv("GENIE_RUNTIME_DIR", path, 1) == 0);
        made = 1;
    }
    return path;
}

static inline void remove_directory(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory());
    CHECK(system(command) == 0);
}

#endif
