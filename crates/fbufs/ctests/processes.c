/* Two processes of a group: buffers go from one to the other and back without being copied, and a process that dies leaves nothing. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "check.h"

static char path[100];
enum { ROUNDS = 2000 };

/* Sends back what comes, changed at its ends. */
static void echo(void *ignored) {
    (void)ignored;
    OK(uf_join("pair"));
    int fd = uf_connect(path);
    CHECK(fd >= 0);
    void *all;
    for (ssize_t count; (count = uf_get(fd, &all)) != 0;) {
        CHECK(count > 0);
        unsigned char *bytes = all;
        bytes[0]++;
        bytes[count - 1]++;
        CHECK(uf_write(fd, bytes, (size_t)count) == count);
    }
    OK(uf_close(fd));
}

static long faults(void) {
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_minflt;
}

static void pages_stay_where_they_are(int listener) {
    pid_t child = process(echo, NULL);
    int fd = uf_accept(listener);
    CHECK(fd >= 0);
    CHECK(uf_explain(fd, NULL) == (UF_PASSES_FBUFS | UF_PASSES_INPUT));
    size_t length = 8192;
    long before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *bytes = uf_allocate(length), *others[2];
        void *back;
        CHECK(bytes);
        bytes[0] = bytes[length - 1] = (unsigned char)round;
        CHECK(uf_write(fd, bytes, length) == (ssize_t)length);
        /* Its pages are nobody's to be had. */
        for (int i = 0; i < 2; i++) {
            others[i] = uf_allocate(length);
            CHECK(others[i] && others[i] != bytes);
        }
        CHECK(uf_read(fd, &back, length) == (ssize_t)length);
        CHECK(back == bytes);
        CHECK(bytes[0] == (unsigned char)(round + 1) && bytes[length - 1] == bytes[0]);
        CHECK(uf_deallocate(back, length) == NULL);
        for (int i = 0; i < 2; i++)
            CHECK(uf_deallocate(others[i], length) == NULL);
        if (round == ROUNDS / 2)
            before = faults();
    }
    /* New pages for each of them would be faults. */
    CHECK(faults() - before < ROUNDS / 10);
    OK(uf_close(fd));
    ends(child);
}

/* A buffer of a pool that the channel is not of is copied, and so is a part of what came. */
static void what_cannot_be_passed_is_copied(int listener, unsigned char *stranger) {
    pid_t child = process(echo, NULL);
    int fd = uf_accept(listener);
    void *back;
    CHECK(uf_write(fd, stranger, 3000) == 3000);
    FAILS(EFAULT, uf_write(fd, stranger, 3000));
    CHECK(uf_read(fd, &back, 1000) == 1000);
    CHECK(*(unsigned char *)back == pattern(0, 9) + 1 && back != (void *)stranger);
    expect((unsigned char *)back + 1, 999, 1, 9);
    CHECK(uf_deallocate(back, 1000) == NULL);
    CHECK(uf_get(fd, &back) == 2000);
    expect(back, 1999, 1000, 9);
    CHECK(uf_deallocate(back, 2000) == NULL);
    OK(uf_close(fd));
    ends(child);
}

static void die_with_buffers(void *ignored) {
    (void)ignored;
    OK(uf_join("pair"));
    int fd = uf_connect(path);
    void *all;
    CHECK(fd >= 0 && uf_get(fd, &all) == 8 && uf_allocate(2u << 20));
    CHECK(uf_write(fd, uf_allocate(9), 9) == 9);
    raise(SIGKILL);
}

static void the_dead_leave_nothing(int listener) {
    for (int turn = 0; turn < 10; turn++) {
        int status;
        void *all;
        pid_t child = process(die_with_buffers, NULL);
        int fd = uf_accept(listener);
        CHECK(fd >= 0 && uf_write(fd, uf_allocate(8), 8) == 8);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        CHECK(uf_get(fd, &all) == 9); /* what it wrote before */
        CHECK(uf_deallocate(all, 9) == NULL);
        CHECK(uf_get(fd, &all) == 0);
        char *bytes = uf_allocate(1);
        FAILS(EPIPE, uf_write(fd, bytes, 1));
        CHECK(uf_deallocate(bytes, 1) == NULL);
        OK(uf_close(fd));
    }
    /* The pool has 4 MiB: all of them are free again. */
    void *most = uf_allocate(4u << 20);
    CHECK(most && uf_deallocate(most, 0) == NULL);
}

/* The process that founded the group dies; the others go on, and new ones find them. A child of it has its sockets for a while. */
static void found_and_die(void *to) {
    OK(uf_join("heirs"));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int fd = 0; fd < 3; fd++)
            close(fd);
        sleep(5);
        _exit(0);
    }
    CHECK(write(*(int *)to, "f", 1) == 1);
    pause();
}

static void inherit(void *fds) {
    int *all = fds;
    char byte;
    OK(uf_join("heirs"));
    int listener = uf_listen(path);
    CHECK(listener >= 0 && write(all[1], "h", 1) == 1);
    int fd = uf_accept(listener);
    void *got;
    CHECK(fd >= 0 && uf_get(fd, &got) == 5);
    CHECK(read(all[2], &byte, 1) == 1);
}

static void a_group_outlives_its_founder(void) {
    int up[2], down[2];
    char byte;
    OK(pipe(up));
    OK(pipe(down));
    pid_t founder = process(found_and_die, &up[1]);
    CHECK(read(up[0], &byte, 1) == 1 && byte == 'f');
    snprintf(path, sizeof path, "%s/heirs", directory());
    int fds[3] = {0, up[1], down[0]};
    pid_t heir = process(inherit, fds);
    CHECK(read(up[0], &byte, 1) == 1 && byte == 'h');
    OK(kill(founder, SIGKILL));
    CHECK(waitpid(founder, NULL, 0) == founder);
    OK(uf_join("heirs"));
    /* A channel is made between members of one pool alone. */
    int fd = uf_connect(path);
    CHECK(fd >= 0 && uf_write(fd, uf_allocate(5), 5) == 5);
    CHECK(write(down[1], "x", 1) == 1);
    ends(heir);
}

static void join_a_crowd(void *to) {
    char is_in = uf_join("crowd") == 0 ? 'y' : errno == EUSERS ? 'n' : '?';
    CHECK(write(*(int *)to, &is_in, 1) == 1);
    pause();
}

/* A pool has 64 members, and those that end make room. */
static void a_group_is_limited(void) {
    int up[2], in = 0;
    pid_t members[65];
    char is_in;
    OK(pipe(up));
    for (int i = 0; i < 65; i++) {
        members[i] = process(join_a_crowd, &up[1]);
        CHECK(read(up[0], &is_in, 1) == 1 && is_in == (i < 64 ? 'y' : 'n'));
        in += is_in == 'y';
    }
    OK(kill(members[0], SIGKILL));
    CHECK(in == 64 && waitpid(members[0], NULL, 0) == members[0]);
    OK(uf_join("crowd"));
    for (int i = 1; i < 65; i++)
        CHECK(kill(members[i], SIGKILL) == 0 && waitpid(members[i], NULL, 0) == members[i]);
}

static void join_late(void *fds) {
    int *all = fds;
    char byte;
    CHECK(read(all[0], &byte, 1) == 1);
    OK(uf_join("poor"));
    CHECK(write(all[1], "j", 1) == 1);
    pause();
}

static void never(void *handle) {
    (void)handle;
    abort();
}

/* A member that lacks descriptors while another process joins: that waits, and is given the same pool. */
static void be_poor(void *ignored) {
    (void)ignored;
    int up[2], down[2], taken[64], count = 0;
    char byte;
    OK(pipe(up));
    OK(pipe(down));
    pid_t child = process(join_late, (int[]){down[0], up[1]});
    OK(uf_join("poor"));
    struct rlimit usual, limit;
    OK(getrlimit(RLIMIT_NOFILE, &usual));
    limit = usual;
    limit.rlim_cur = 64;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    while (count < 64 && (taken[count] = dup(0)) >= 0)
        count++;
    CHECK(errno == EMFILE);
    CHECK(write(down[1], "x", 1) == 1);
    usleep(300000); /* by then it is asked for the pool, as a rule */
    while (count > 0)
        OK(close(taken[--count]));
    OK(setrlimit(RLIMIT_NOFILE, &usual));
    CHECK(read(up[0], &byte, 1) == 1);
    void *handle = uf_register(&child, never); /* ESRCH if it has another pool */
    CHECK(handle);
    uf_deregister(handle, never);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* What was written is there for a client that comes to its end late: when the server has closed its own, or has ended. */
static void greet_and_go(void *closes) {
    OK(uf_join("pair"));
    char path_too[120];
    snprintf(path_too, sizeof path_too, "%s.greeter", path);
    int listener = uf_listen(path_too);
    CHECK(listener >= 0);
    for (int i = 0; i < 50; i++) {
        int fd = uf_accept(listener);
        CHECK(fd >= 0 && uf_write(fd, filled(100, 3), 100) == 100);
        if (*(int *)closes || i < 49)
            OK(uf_close(fd));
    }
    /* It ends without closing the listener, whose path the next one takes over. */
}

static void greetings_arrive(void) {
    char path_too[120];
    snprintf(path_too, sizeof path_too, "%s.greeter", path);
    for (int closes = 0; closes < 2; closes++) {
        pid_t child = process(greet_and_go, &closes);
        for (int i = 0; i < 50; i++) {
            void *all;
            int fd = uf_connect_timeout(path_too, 60000);
            CHECK(fd >= 0 && uf_get(fd, &all) == 100);
            expect(all, 100, 0, 3);
            CHECK(uf_deallocate(all, 100) == NULL && uf_get(fd, &all) == 0);
            OK(uf_close(fd));
        }
        ends(child);
    }
}

/* A process that may have too few descriptors is not told of others' faults. */
static void connect_short(void *ignored) {
    (void)ignored;
    OK(uf_join("pair"));
    CHECK(uf_allocate(1));
    int next = dup(0);
    OK(close(next));
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = (rlim_t)next + 3;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    FAILS(EMFILE, uf_connect(path));
}

/* Clients that cannot take their ends, or have gone, do not stop a server. */
static void clients_that_fail(int listener) {
    pid_t child = process(connect_short, NULL);
    int fd = uf_accept(listener);
    void *all;
    CHECK(fd >= 0 && uf_get(fd, &all) == 0);
    OK(uf_close(fd));
    ends(child);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int gone = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    OK(connect(gone, (struct sockaddr *)&address, sizeof address));
    OK(close(gone));
    OK(uf_set_nonblocking(listener, 1));
    FAILS(EAGAIN, uf_accept(listener));
    OK(uf_set_nonblocking(listener, 0));
}

/* A child that lives does not keep its parent's channel open: 0, the parent closes it; 1, it exits; 2, it is killed. */
static void leave_a_child(void *how) {
    char byte;
    int *all = how;
    OK(uf_join("pair"));
    int fd = uf_connect(path);
    CHECK(fd >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* Until the test's process has closed the other end. */
        (void)!read(all[1], &byte, 1);
        _exit(0);
    }
    OK(close(all[1]));
    if (all[0] == 0) {
        OK(uf_close(fd));
        CHECK(waitpid(child, NULL, 0) == child);
    } else if (all[0] == 2) {
        raise(SIGKILL);
    }
}

static void children_keep_no_channel(int listener) {
    for (int how = 0; how < 3; how++) {
        int until[2], status;
        OK(pipe(until));
        int all[2] = {how, until[0]};
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(until[1]);
            leave_a_child(all);
            exit(0);
        }
        OK(close(until[0]));
        int fd = uf_accept(listener);
        void *got;
        CHECK(fd >= 0 && uf_get(fd, &got) == 0);
        char *bytes = uf_allocate(1);
        if (how == 0)
            FAILS(EPIPE, uf_write(fd, bytes, 1));
        OK(uf_close(fd));
        OK(close(until[1]));
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) == (how == 2));
    }
}

static void stranger(void *ignored) {
    (void)ignored;
    OK(uf_join("strangers"));
    FAILS(EINVAL, uf_connect(path));
}

int main(void) {
    directory();
    snprintf(path, sizeof path, "%s/pair", directory());
    struct uf_settings settings = {.limit = 4u << 20};
    OK(uf_configure(&settings));
    unsigned char *own = filled(3000, 9); /* of a pool that nobody shares */
    int old[2];
    OK(uf_pair(old));
    CHECK(uf_explain(old[0], NULL) == (UF_PASSES_FBUFS | UF_PASSES_INPUT));
    OK(uf_join("pair"));
    /* New fbufs are of another pool than this channel. */
    const char *why;
    CHECK(uf_explain(old[0], &why) == UF_PASSES_INPUT && strstr(why, "write copied: the channel passes fbufs of the pool"));
    OK(uf_close(old[0]));
    OK(uf_close(old[1]));
    /* A group is not joined twice: its pool stays the same, and it has no more members. */
    OK(uf_pair(old));
    for (int i = 0; i < 100; i++)
        OK(uf_join("pair"));
    CHECK(uf_explain(old[0], NULL) == (UF_PASSES_FBUFS | UF_PASSES_INPUT));
    OK(uf_close(old[0]));
    OK(uf_close(old[1]));
    int listener = uf_listen(path);
    CHECK(listener >= 0);
    pages_stay_where_they_are(listener);
    what_cannot_be_passed_is_copied(listener, own);
    the_dead_leave_nothing(listener);
    greetings_arrive();
    clients_that_fail(listener);
    children_keep_no_channel(listener);
    pid_t child = process(stranger, NULL);
    int fd = uf_accept(listener);
    CHECK(fd >= 0);
    ends(child);
    void *all;
    CHECK(uf_get(fd, &all) == 0);
    OK(uf_close(fd));
    OK(uf_close(listener));
    a_group_outlives_its_founder();
    a_group_is_limited();
    ends(process(be_poor, NULL));
    remove_directory();
    return 0;
}
