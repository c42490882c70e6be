/* What is used wrongly gets an error, and harms nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/stat.h>

#include "check.h"

static void addresses(int fd) {
    static char elsewhere[10];
    char *bytes = uf_allocate(5000), local[10] = {0}, *heap = malloc(10);
    CHECK(bytes && heap);
    const void *wrong[] = {NULL, elsewhere, local, heap, bytes - 1, bytes + 5000, bytes + 8192, (void *)-1, (void *)4096};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(EFAULT, uf_write(fd, wrong[i], 1));
        FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate((void *)wrong[i], 1));
        FAILS(EFAULT, uf_unmap((void *)wrong[i], 1));
    }
    CHECK(strstr(uf_error_text(), "0x1000 is not in an fbuf"));
    FAILS(EINVAL, uf_write(fd, bytes, 5001));
    FAILS(EINVAL, uf_write(fd, bytes + 4999, 2));
    FAILS(EINVAL, uf_write(fd, bytes + 1, SIZE_MAX));
    FAILS_WITH(UF_FAILED, EINVAL, uf_deallocate(bytes, 5001));
    FAILS(EINVAL, uf_unmap(bytes, 5000));
    FAILS(EFAULT, uf_read(fd, NULL, 1));
    FAILS(EFAULT, uf_get(fd, NULL));
    CHECK(uf_deallocate(bytes + 4999, 1) == NULL);
    FAILS_WITH(UF_FAILED, EFAULT, uf_deallocate(bytes, 1));
    free(heap);
}

static void descriptors(int channel) {
    void *all;
    int closed = dup(1), duplicate = dup(channel);
    OK(uf_close(closed));
    int wrong[] = {-1, -2, closed, 1 << 20};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *bytes = uf_allocate(10);
        FAILS(EBADF, uf_write(wrong[i], bytes, 10));
        FAILS(EBADF, uf_read(wrong[i], &all, 10));
        FAILS(EBADF, uf_explain(wrong[i], NULL));
        FAILS(EBADF, uf_set_nonblocking(wrong[i], 1));
        FAILS(EBADF, uf_close(wrong[i]));
        FAILS_WITH(MAP_FAILED, EBADF, uf_mmap(NULL, 1, PROT_READ, MAP_SHARED, wrong[i], 0));
        CHECK(uf_deallocate(bytes, 10) == NULL); /* it was not written */
    }
    char *bytes = uf_allocate(10);
    FAILS(EINVAL, uf_write(duplicate, bytes, 10));
    FAILS(EINVAL, uf_read(duplicate, &all, 10));
    FAILS(EINVAL, uf_explain(duplicate, NULL));
    OK(uf_close(duplicate));
    FAILS(EINVAL, uf_accept(channel));
    FAILS(EINVAL, uf_accept(1));
    int null = open("/dev/null", O_RDONLY);
    FAILS(EBADF, uf_write(null, bytes, 10)); /* not open for writing */
    OK(uf_close(null));
    FAILS(EFAULT, uf_pair(NULL));
    CHECK(uf_deallocate(bytes, 10) == NULL);
}

/* What uf_room gives is for waiting alone. */
static void rooms(void) {
    int fds[2];
    void *all;
    OK(uf_pair(fds));
    int room = uf_room(fds[0]);
    char *bytes = uf_allocate(10);
    CHECK(room >= 0 && bytes);
    FAILS(EINVAL, uf_close(room));
    CHECK(strstr(uf_error_text(), "for waiting alone"));
    FAILS(EINVAL, uf_write(room, bytes, 10));
    FAILS(EINVAL, uf_read(room, &all, 10));
    FAILS(EINVAL, uf_explain(room, NULL));
    FAILS(EINVAL, uf_set_nonblocking(room, 0));
    FAILS(EINVAL, uf_room(room));
    CHECK(fcntl(room, F_GETFD) >= 0);
    OK(uf_close(dup(room)));
    CHECK(uf_write(fds[0], bytes, 10) == 10 && uf_get(fds[1], &all) == 10 && uf_deallocate(all, 10) == NULL);
    OK(uf_close(fds[0]));
    FAILS(EBADF, uf_close(room));
    OK(uf_close(fds[1]));
}

/* Channels that were closed by close do no harm to later ones, of whatever numbers. */
static void closed_by_close(void) {
    int lost[2], fds[2];
    void *all;
    for (int i = 0; i < 5; i++) {
        OK(uf_pair(lost));
        OK(close(lost[0]));
        OK(close(lost[1]));
    }
    OK(uf_pair(fds));
    CHECK(uf_write(fds[0], uf_allocate(3), 3) == 3);
    CHECK(uf_get(fds[1], &all) == 3 && uf_deallocate(all, 3) == NULL);
    CHECK(uf_write(fds[1], uf_allocate(4), 4) == 4);
    CHECK(uf_get(fds[0], &all) == 4 && uf_deallocate(all, 4) == NULL);
    OK(uf_close(fds[0]));
    OK(uf_close(fds[1]));
}

static atomic_int has_read;

static void *read_to_the_end(void *fd) {
    void *all;
    CHECK(uf_get(*(int *)fd, &all) == 1 && uf_deallocate(all, 1) == NULL);
    has_read = 1;
    ssize_t count = uf_get(*(int *)fd, &all);
    CHECK(count == 0 || errno == EBADF); /* or it came too late */
    return NULL;
}

/* The number stays the library's as long as another thread's call uses it. */
static void closed_in_a_call(void) {
    int fds[2], in_use;
    pthread_t reader;
    OK(uf_pair(fds));
    in_use = fds[0];
    CHECK(pthread_create(&reader, NULL, read_to_the_end, &in_use) == 0);
    CHECK(uf_write(fds[1], filled(1, 1), 1) == 1);
    while (!has_read)
        usleep(1000);
    usleep(50000); /* by then it waits, as a rule */
    OK(uf_close(in_use));
    unsigned char *kept = filled(100, 1);
    void *all;
    FAILS(EBADF, uf_write(in_use, kept, 100));
    FAILS(EBADF, uf_read(in_use, &all, 100));
    FAILS(EBADF, uf_close(in_use));
    CHECK(uf_deallocate(kept, 100) == NULL);
    int other = open("/dev/null", O_RDONLY);
    OK(uf_close(fds[1]));
    CHECK(pthread_join(reader, NULL) == 0);
    CHECK(fcntl(other, F_GETFD) >= 0 && close(other) == 0);
}

static atomic_int is_over;

static void *make_and_close(void *ignored) {
    int fds[2];
    while (!is_over)
        CHECK(uf_pair(fds) == 0 && uf_close(fds[0]) == 0 && uf_close(fds[1]) == 0);
    return ignored;
}

/* A number that another thread's uf_close is just giving up is the program's when the kernel gives it again. */
static void used_again(void) {
    pthread_t thread;
    int fds[2];
    void *all;
    CHECK(pthread_create(&thread, NULL, make_and_close, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        OK(pipe(fds));
        CHECK(uf_write(fds[1], filled(10, 1), 10) == 10);
        CHECK(uf_read(fds[0], &all, 10) == 10 && uf_deallocate(all, 10) == NULL);
        CHECK(uf_close(fds[0]) == 0 && uf_close(fds[1]) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Channels and descriptors are limited. */
static void too_many(void) {
    struct rlimit usual, limit;
    static int fds[200][2];
    OK(getrlimit(RLIMIT_NOFILE, &usual));
    limit = usual;
    limit.rlim_cur = 64;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    int made = 0;
    while (made < 200 && uf_pair(fds[made]) == 0)
        made++;
    CHECK(errno == EMFILE && made < 64);
    while (made > 0)
        CHECK(uf_close(fds[--made][0]) == 0 && uf_close(fds[made][1]) == 0);
    limit.rlim_cur = usual.rlim_max < 4096 ? usual.rlim_max : 4096;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    while (made < 200 && uf_pair(fds[made]) == 0)
        made++;
    CHECK(limit.rlim_cur < 4096 || errno == EUSERS);
    while (made > 0)
        CHECK(uf_close(fds[--made][0]) == 0 && uf_close(fds[made][1]) == 0);
    OK(uf_pair(fds[0]));
    OK(uf_close(fds[0][0]));
    OK(uf_close(fds[0][1]));
    OK(setrlimit(RLIMIT_NOFILE, &usual));
}

/* Another user's processes are kept out, where this test may be another user's. */
static void other_users(void *ignored) {
    (void)ignored;
    if (setuid(65534) == 0)
        FAILS(EINVAL, uf_join("name"));
}

static void gone(void) {
    int fds[2];
    signal(SIGPIPE, SIG_IGN);
    OK(uf_pair(fds));
    OK(uf_close(fds[0]));
    char *bytes = uf_allocate(10);
    FAILS(EPIPE, uf_write(fds[1], bytes, 10));
    OK(uf_close(fds[1]));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    OK(uf_close(fds[0]));
    FAILS(EPIPE, uf_write(fds[1], bytes, 10));
    CHECK(uf_deallocate(bytes, 10) == NULL); /* it is the program's still */
    OK(uf_close(fds[1]));
}

static void mappings(void) {
    FILE *file = tmpfile();
    CHECK(file && fputs("0123456789", file) >= 0 && fflush(file) == 0);
    int fd = fileno(file);
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 1));
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, -4096));
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 10, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 10, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0));
    FAILS_WITH(MAP_FAILED, EINVAL, uf_mmap(NULL, 10, PROT_READ, 0, fd, 0));
    FAILS_WITH(MAP_FAILED, EACCES, uf_mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    FAILS_WITH(MAP_FAILED, EACCES, uf_mmap(NULL, 10, PROT_NONE, MAP_SHARED, fd, 0));
    char *addr = uf_mmap((char *)4096, 10, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(addr != MAP_FAILED && addr[9] == '9');
    FAILS(EINVAL, uf_write(1, addr, 11));
    FAILS(EINVAL, uf_write(1, addr + 5, 6));
    FAILS(EINVAL, uf_unmap(addr + 1, 9));
    /* Of a file that has become shorter, zeros are loaded and nothing is written. */
    OK(ftruncate(fd, 0));
    FAILS(EINVAL, uf_write(1, addr, 10));
    CHECK(addr[0] == 0);
    OK(uf_unmap(addr, 10));
    CHECK(fclose(file) == 0);
}

static void names(void) {
    char path[200];
    FAILS(EFAULT, uf_join(NULL));
    FAILS(EINVAL, uf_join(""));
    FAILS(EINVAL, uf_join("a/b"));
    FAILS(EINVAL, uf_join(".a"));
    FAILS(EFAULT, uf_listen(NULL));
    FAILS(ENOENT, uf_listen(""));
    FAILS(EFAULT, uf_connect(NULL));
    snprintf(path, sizeof path, "%s/nobody", directory());
    FAILS(ENOENT, uf_connect(path));
    int listener = uf_listen(path);
    CHECK(listener >= 0);
    FAILS(EADDRINUSE, uf_listen(path));
    void *all, *bytes = uf_allocate(1);
    FAILS(EINVAL, uf_read(listener, &all, 1));
    FAILS(EINVAL, uf_write(listener, bytes, 1));
    FAILS(EINVAL, uf_explain(listener, NULL));
    OK(uf_set_nonblocking(listener, 1));
    FAILS(EAGAIN, uf_accept(listener));
    OK(uf_close(listener));
    FAILS(ENOENT, uf_connect(path));
    FAILS(ENOENT, uf_connect_timeout(path, 20));
    FAILS(EFAULT, uf_connect_timeout(NULL, 0));
    /* The path of a process that is gone is taken over. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int gone = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    OK(bind(gone, (struct sockaddr *)&address, sizeof address));
    OK(close(gone));
    FAILS(ECONNREFUSED, uf_connect(path));
    listener = uf_listen(path);
    CHECK(listener >= 0);
    FAILS(ETIMEDOUT, uf_connect_timeout(path, 20));
    OK(uf_close(listener));
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    FAILS(ENAMETOOLONG, uf_listen(path));
    /* A directory that others may use is none for names. */
    snprintf(path, sizeof path, "%s/fbufs", directory());
    OK(mkdir(path, 0700));
    OK(chmod(path, 0755));
    FAILS(EINVAL, uf_join("name"));
    CHECK(strstr(uf_error_text(), "chmod"));
    OK(chmod(path, 0700));
    OK(uf_join("name"));
    ends(process(other_users, NULL));
}

static void limits(void) {
    FAILS(EDQUOT, uf_allocate(1u << 20) ? 0 : -1);
    FAILS(EDQUOT, uf_allocate(SIZE_MAX) ? 0 : -1);
    void *most = uf_allocate(64u << 10);
    CHECK(most);
    FAILS(EDQUOT, uf_allocate(1) ? 0 : -1);
    CHECK(uf_deallocate(most, 1) == NULL);
}

int main(void) {
    CHECK(!*uf_error_text());
    directory();
    FAILS(EFAULT, uf_configure(NULL));
    struct uf_settings settings = {.limit = 4u << 20, .quota = 64u << 10};
    OK(uf_configure(&settings));
    int fds[2];
    OK(uf_pair(fds));
    FAILS(EBUSY, uf_configure(&settings));
    addresses(fds[0]);
    addresses(1);
    descriptors(fds[0]);
    rooms();
    used_again(); /* before close leaves the library numbers that are the program's */
    closed_by_close();
    closed_in_a_call();
    gone();
    too_many();
    mappings();
    limits();
    names();
    limits(); /* of the group's pool, too */
    remove_directory();
    return 0;
}
