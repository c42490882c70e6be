/* A Genie server, in another process, as a descriptor: fbufs go there and come from there without a copy.
 * FBUFS_QUEUE says where the example queue is, which serves. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "blocks.h"

static const char *program;
static int fd;

static pid_t serve(const char *name) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if this test fails, it does not stay */
        execl(program, program, name, (char *)NULL);
        perror(program);
        _exit(1);
    }
    return child;
}

/* Opens a server that is about to start. */
static int opened(const char *name) {
    int found;
    while ((found = uf_open(name, "take", "put")) < 0) {
        CHECK(errno == ENOENT);
        usleep(10000);
    }
    return found;
}

static unsigned char *filled_for(int to, size_t length, unsigned seed) {
    unsigned char *bytes = uf_allocate_for(to, length);
    CHECK(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern(i, seed);
    return bytes;
}

static void *got(int from, size_t length, size_t start, unsigned seed) {
    void *all;
    CHECK(uf_get(from, &all) == (ssize_t)length);
    expect(all, length, start, seed);
    return all;
}

static void free_got(int from, size_t length, size_t start, unsigned seed) {
    CHECK(uf_deallocate(got(from, length, start, seed), length) == NULL);
}

static void ended(void) {
    void *all = &all;
    CHECK(uf_get(fd, &all) == 0 && all == NULL);
}

/* What was given away is gone, and its pages are those that the server fills next. */
static void passes(void) {
    size_t lengths[] = {1, 4096, 8192, 70001, 1 << 20};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char *bytes = filled_for(fd, lengths[i], 1);
        CHECK(uf_write(fd, bytes, lengths[i]) == (ssize_t)lengths[i]);
        FAILS(EFAULT, uf_write(fd, bytes, lengths[i]));
        FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, lengths[i]));
        void *all;
        CHECK(uf_read(fd, &all, lengths[i]) == (ssize_t)lengths[i] && all == bytes);
        expect(all, lengths[i], 0, 1);
        CHECK(uf_deallocate(all, lengths[i]) == NULL);
    }
    ended();
    /* A part is written, and all of it is gone; what was read is written on. */
    unsigned char *bytes = filled_for(fd, 9000, 2);
    CHECK(uf_write(fd, bytes + 1000, 7000) == 7000);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 9000));
    void *all = got(fd, 7000, 1000, 2);
    FAILS(EINVAL, uf_write(fd, all, 7001));
    CHECK(uf_write(fd, all, 7000) == 7000);
    CHECK(uf_read(fd, &all, 0) == 0 && all == NULL);
    CHECK(uf_read(fd, &all, 5000) == 5000 && uf_write(fd, all, 0) == 0);
    free_got(fd, 2000, 6000, 2);
    ended();
    CHECK((bytes = uf_allocate_for(fd, 0)) && uf_deallocate(bytes, 0) == NULL);
}

static void explained(void) {
    const char *text;
    CHECK(uf_explain(fd, &text) == (UF_PASSES_FBUFS | UF_PASSES_INPUT));
    CHECK(strstr(text, "write passed: the server has the pages") && strstr(text, "a copy of fbufs of pools"));
    CHECK(strstr(text, "write of mapped files copied") && strstr(text, "read passed: the server fills"));
}

/* Other fbufs, and files, are copied to the server; its fbufs are copied to all others. */
static void copies(void) {
    int pair[2], fds[2];
    CHECK(uf_write(fd, filled(9000, 3), 9000) == 9000);
    unsigned char *bytes = got(fd, 9000, 0, 3);
    OK(uf_pair(pair));
    OK(pipe(fds));
    CHECK(uf_write(pair[0], bytes, 9000) == 9000);
    FAILS(EFAULT, uf_write(pair[0], bytes, 9000));
    void *copy = got(pair[1], 9000, 0, 3);
    CHECK(copy != (void *)bytes && uf_deallocate(copy, 9000) == NULL);
    CHECK(uf_write(fds[1], filled_for(fd, 9000, 4), 9000) == 9000);
    free_got(fds[0], 9000, 0, 4);
    /* What a channel does not take is the program's still. */
    OK(uf_close(pair[1]));
    bytes = filled_for(fd, 9000, 5);
    FAILS(EPIPE, uf_write(pair[0], bytes + 10, 8000));
    CHECK(uf_write(fd, bytes, 9000) == 9000);
    free_got(fd, 9000, 0, 5);
    /* For others it allocates what uf_allocate does. */
    bytes = filled_for(pair[0], 5000, 6);
    CHECK(uf_write(fds[1], bytes, 5000) == 5000);
    bytes = filled_for(fds[1], 5000, 6);
    CHECK(uf_deallocate(bytes, 5000) == NULL);
    free_got(fds[0], 5000, 0, 6);
    OK(uf_close(pair[0]));
    OK(uf_close(fds[0]));
    OK(uf_close(fds[1]));

    FILE *file = tmpfile();
    for (size_t i = 0; i < 9000; i++)
        CHECK(fputc(pattern(i, 7), file) != EOF);
    CHECK(fflush(file) == 0);
    char *mapped = uf_mmap(NULL, 9000, PROT_READ, MAP_SHARED, fileno(file), 0);
    CHECK(mapped != MAP_FAILED && uf_write(fd, mapped + 100, 8000) == 8000);
    free_got(fd, 8000, 100, 7);
    OK(uf_unmap(mapped, 9000));
    CHECK(fclose(file) == 0);
}

static void messages(void) {
    unsigned char *bytes = filled_for(fd, 9000, 8);
    mblk_t *mp = uf_esballoc(bytes + 1000, 6000), *same;
    FAILS(EFAULT, uf_write(fd, bytes, 9000));
    void *all;
    CHECK(mp && (same = dupmsg(mp)) && same->b_rptr == bytes + 1000);
    mp = prepended(mp, "head");
    linkb(mp, message("tail"));
    CHECK(uf_putmsg(fd, mp) == 6008 && msgdsize(same) == 6000);
    CHECK(uf_get(fd, &all) == 6008);
    CHECK(memcmp(all, "head", 4) == 0 && memcmp((char *)all + 6004, "tail", 4) == 0);
    expect((unsigned char *)all + 4, 6000, 1000, 8);
    CHECK(uf_deallocate(all, 6008) == NULL);
    /* Nobody else has it now: headers go in front of it, and it becomes an fbuf again, in its place. */
    CHECK(prepended(same, "head") == same);
    CHECK(uf_msgbuf(same, &all) == 6004 && all == (void *)(bytes + 996));
    CHECK(uf_write(fd, all, 6004) == 6004);
    CHECK(uf_read(fd, &all, 4) == 4 && memcmp(all, "head", 4) == 0 && uf_deallocate(all, 4) == NULL);
    free_got(fd, 6000, 1000, 8);
    /* A message that the server refuses is there still. */
    int wrong = uf_open("queue", NULL, "take");
    CHECK(wrong >= 0 && (mp = uf_esballoc(filled_for(wrong, 100, 9), 100)));
    FAILS(EINVAL, uf_putmsg(wrong, mp));
    CHECK(msgdsize(mp) == 100 && uf_putmsg(fd, mp) == 100);
    free_got(fd, 100, 0, 9);
    OK(uf_close(wrong));
}

static void streams(void) {
    char line[100];
    FILE *out = uf_fdopen(opened("queue"), "w"), *in = uf_fdopen(opened("queue"), "r");
    CHECK(out && in);
    for (int i = 0; i < 10000; i++)
        CHECK(fprintf(out, "line %d\n", i) > 0);
    CHECK(fclose(out) == 0);
    for (int i = 0; i < 10000; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "line %d\n", i);
        CHECK(fgets(line, sizeof line, in) && strcmp(line, expected) == 0);
    }
    CHECK(!fgets(line, sizeof line, in) && feof(in) && !ferror(in) && fclose(in) == 0);
}

static void misuse(void) {
    void *all;
    FAILS(ENOENT, uf_open("nobody", "take", "put"));
    FAILS(ENOENT, uf_open("queue", "take", "nothing"));
    FAILS(ENOENT, uf_open("queue", "nothing", "put"));
    FAILS(EFAULT, uf_open(NULL, "take", "put"));
    FAILS(EINVAL, uf_open("../queue", "take", "put"));
    FAILS(EINVAL, uf_open("\xff", "take", "put"));
    FAILS(EINVAL, uf_open("queue", "\xff", "put"));
    FAILS_WITH(NULL, EBADF, uf_allocate_for(-1, 1));
    FAILS_WITH(NULL, ENOMEM, uf_allocate_for(fd, (size_t)1 << 46));
    int closed = uf_open("queue", NULL, NULL), copy = dup(fd);
    unsigned char *bytes = filled_for(closed, 100, 1);
    FAILS(EBADF, uf_read(closed, &all, 1));
    FAILS(EBADF, uf_write(closed, bytes, 100));
    FAILS(EINVAL, uf_write(copy, bytes, 100));
    FAILS_WITH(NULL, EINVAL, uf_allocate_for(copy, 100));
    OK(close(copy));
    OK(uf_close(closed));
    FAILS(EBADF, uf_write(closed, bytes, 100));
    /* The server finds no output in what "put" is asked for as input, and has no room for what "take" is given. */
    int wrong = uf_open("queue", "put", "take");
    CHECK(wrong >= 0);
    FAILS(EINVAL, uf_get(wrong, &all));
    FAILS(EINVAL, uf_write(wrong, bytes, 100));
    OK(uf_close(wrong));
    CHECK(uf_write(fd, bytes, 100) == 100);
    free_got(fd, 100, 0, 1);
    /* Calls wait for the server; poll reports that they can be made. */
    FAILS(EOPNOTSUPP, uf_set_nonblocking(fd, 1));
    OK(uf_set_nonblocking(fd, 0));
    struct pollfd polled = {.fd = fd, .events = POLLIN | POLLOUT};
    for (int turn = 0; turn < 2; turn++) {
        CHECK(poll(&polled, 1, -1) == 1 && polled.revents == (POLLIN | POLLOUT));
        ended();
    }
}

static void child(void *bytes) {
    void *all;
    expect(memset(uf_allocate(1), pattern(0, 0), 1), 1, 0, 0);
    CHECK(*(unsigned char *)bytes == 0); /* zeros are there */
    FAILS(EFAULT, uf_write(1, bytes, 100));
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 100));
    FAILS(ESTALE, uf_read(fd, &all, 1));
    FAILS(ESTALE, uf_explain(fd, NULL));
    FAILS_WITH(NULL, ESTALE, uf_allocate_for(fd, 1));
    OK(uf_close(fd));
    int own = uf_open("queue", "take", "put");
    CHECK(own >= 0);
    CHECK(uf_write(own, filled_for(own, 5000, 3), 5000) == 5000);
    free_got(own, 5000, 0, 3);
}

static unsigned char *volatile touched;

static void touch_after_deallocation(void *ignored) {
    (void)ignored;
    fd = opened("queue");
    touched = filled_for(fd, 10000, 1);
    CHECK(uf_write(fd, touched, 10000) == 10000);
    void *all;
    CHECK(uf_read(fd, &all, 10000) == 10000 && all == touched);
    expect(all, 10000, 0, 1); /* the new owner may */
    CHECK(uf_deallocate(all, 10000) == NULL);
    touched[9999] = 2;
}

static void touch_after_write(void *ignored) {
    (void)ignored;
    fd = opened("queue");
    touched = filled_for(fd, 10000, 1);
    CHECK(uf_write(fd, touched, 10000) == 10000);
    touched[0] = 2;
    free_got(fd, 10000, 0, 1);
}

/* The process is killed by a trap if there are any, and ends well if not. */
static void dies(void (*part)(void *), int traps) {
    int status;
    CHECK(setenv("GENIE_FBUFS_TRAPS", traps ? "1" : "0", 1) == 0);
    pid_t process_ = process(part, NULL);
    CHECK(waitpid(process_, &status, 0) == process_);
    CHECK(traps ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void the_server_dies(void) {
    void *all;
    pid_t other = serve("other");
    int to = opened("other");
    unsigned char *bytes = filled_for(to, 9000, 4);
    OK(kill(other, SIGKILL));
    CHECK(waitpid(other, NULL, 0) == other);
    /* Whether it was asked is known from the next call on. */
    CHECK(uf_read(to, &all, 1) == -1 && (errno == EPIPE || errno == ECONNRESET));
    FAILS(EPIPE, uf_write(to, bytes, 9000));
    /* To another server it goes all the same. */
    CHECK(uf_write(fd, bytes, 9000) == 9000);
    free_got(fd, 9000, 0, 4);
    OK(uf_close(to));
}

int main(void) {
    CHECK((program = getenv("FBUFS_QUEUE")));
    directory();
    signal(SIGSEGV, SIG_DFL); /* sanitizers catch it */
    pid_t server = serve("queue");
    /* Before this process has an interface, and threads. */
    for (int traps = 0; traps < 2; traps++) {
        dies(touch_after_deallocation, traps);
        dies(touch_after_write, traps);
    }
    CHECK(unsetenv("GENIE_FBUFS_TRAPS") == 0);
    fd = opened("queue");
    free_got(fd, 10000, 0, 1); /* what the last of them had written */
    passes();
    explained();
    copies();
    messages();
    streams();
    misuse();
    unsigned char *kept = filled_for(fd, 9000, 2);
    ends(process(child, kept));
    CHECK(uf_write(fd, kept, 9000) == 9000);
    free_got(fd, 9000, 0, 2);
    the_server_dies();
    OK(uf_close(fd));
    FAILS(EBADF, uf_close(fd));
    OK(kill(server, SIGTERM));
    ends(server);
    remove_directory();
    return 0;
}
