/* In debug mode, a touch of a buffer that was given away is trapped. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>

#include "check.h"

static unsigned char *volatile bytes;

static void touch_after_write(void *fds) {
    bytes = uf_allocate(10000);
    CHECK(bytes);
    bytes[0] = 1;
    CHECK(uf_write(((int *)fds)[1], bytes, 10000) == 10000);
    bytes[0] = 2;
}

static void touch_after_deallocation(void *ignored) {
    (void)ignored;
    bytes = uf_allocate(10000);
    CHECK(bytes && uf_deallocate(bytes, 10000) == NULL);
    bytes[9999] = 2;
}

static void touch_after_channel(void *ignored) {
    (void)ignored;
    int fds[2];
    OK(uf_pair(fds));
    bytes = filled(5000, 1);
    CHECK(uf_write(fds[0], bytes, 5000) == 5000);
    void *all;
    CHECK(uf_read(fds[1], &all, 5000) == 5000 && all == bytes);
    expect(all, 5000, 0, 1); /* the new owner may */
    CHECK(uf_write(fds[1], all, 5000) == 5000);
    bytes[4999] = 2;
}

/* The process is killed by a trap if there are any, and ends well if not. */
static void dies(void (*part)(void *), void *argument, int traps) {
    int status;
    pid_t child = process(part, argument);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(traps ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void configured(void *fds) {
    struct uf_settings settings = {.traps = 1};
    OK(uf_configure(&settings));
    touch_after_write(fds);
}

enum { MOST_MAPPINGS = 1 << 18 };

/* At the limit of mappings (vm.max_map_count) nothing can be trapped any more: calls fail, and the pool keeps its pages. */
static void without_mappings(void *ignored) {
    (void)ignored;
#ifdef __SANITIZE_ADDRESS__
    skip("traps without mappings", "AddressSanitizer's allocator needs mappings, too");
    return;
#endif
    struct uf_settings settings = {.traps = 1, .limit = 4u << 20};
    OK(uf_configure(&settings));
    int fds[2];
    OK(uf_pair(fds));
    unsigned char *before = uf_allocate(400u << 10), *passed = filled(400u << 10, 5), *behind = uf_allocate(400u << 10);
    CHECK(uf_deallocate(before, 1) == NULL && uf_deallocate(behind, 1) == NULL);
    CHECK(uf_write(fds[0], passed, 400u << 10) == 400 << 10);
    void *read;
    unsigned char *first = uf_allocate(1), *second = uf_allocate(1);
    CHECK(first && second && uf_deallocate(first, 1) == NULL);
    size_t length = (size_t)MOST_MAPPINGS * 2 * 4096, at = 0;
    char *pages = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED);
    while (at < length && mprotect(pages + at, 4096, PROT_READ) == 0)
        at += 8192;
    if (at < length) { /* else the limit is too high for this test */
        FAILS_WITH(NULL, ENOMEM, uf_allocate(400u << 10));
        CHECK(strstr(uf_error_text(), "vm.max_map_count"));
        FAILS_WITH(-1, ENOMEM, uf_get(fds[1], &read));
        FAILS_WITH(-1, ENOMEM, uf_read(fds[1], &read, 100));
    }
    OK(munmap(pages, length));
    CHECK(uf_get(fds[1], &read) == 400 << 10);
    expect(read, 400u << 10, 0, 5);
    CHECK(uf_deallocate(read, 1) == NULL);
    OK(uf_close(fds[0]));
    OK(uf_close(fds[1]));
    CHECK(uf_deallocate(second, 1) == NULL);
    void *all = uf_allocate(4u << 20);
    CHECK(all && uf_deallocate(all, 1) == NULL);
}

int main(void) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    signal(SIGSEGV, SIG_DFL); /* sanitizers catch it */
    for (int traps = 0; traps < 2; traps++) {
        CHECK(setenv("GENIE_FBUFS_TRAPS", traps ? "1" : "0", 1) == 0);
        dies(touch_after_write, fds, traps);
        dies(touch_after_deallocation, NULL, traps);
        dies(touch_after_channel, NULL, traps);
    }
    CHECK(unsetenv("GENIE_FBUFS_TRAPS") == 0);
    dies(configured, fds, 1);
    ends(process(without_mappings, NULL));
    return 0;
}
