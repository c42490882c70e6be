/* Hostile peers: what listens at a path, or keeps a name, sends what no honest process sends. Each gets an error, and no more. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "check.h"

/* What a hostile process sends: bytes, and descriptors. */
struct answer {
    const char *path;
    const void *bytes;
    size_t length;
    int descriptors[4], count;
};

static int listener_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    strcpy(address.sun_path, path);
    unlink(path);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    OK(listen(listener, 8));
    return listener;
}

/* Answers one process. */
static void answer(int listener, const struct answer *what) {
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof what->descriptors)];
    } control;
    struct iovec part = {.iov_base = (void *)what->bytes, .iov_len = what->length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (what->count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)what->count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)what->count * sizeof(int));
        memcpy(CMSG_DATA(header), what->descriptors, (size_t)what->count * sizeof(int));
    }
    if (what->length > 0)
        CHECK(sendmsg(fd, &message, 0) == (ssize_t)what->length);
    OK(close(fd));
}

static void offer(void *what) {
    answer(listener_at(((struct answer *)what)->path), what);
}

static int reaches(const char *path) {
    int fd;
    /* Until the hostile process listens. */
    while ((fd = uf_connect(path)) == -1 && (errno == ENOENT || errno == ECONNREFUSED))
        usleep(1000);
    return fd;
}

/* Offers of channels that are none. */
static void offers(void) {
    char path[100];
    static char noise[64];
    uint64_t numbers[4] = {3, 1ull << 63 | 5, 7, 7};
    int null = open("/dev/null", O_RDWR);
    memset(noise, 0xee, sizeof noise);
    snprintf(path, sizeof path, "%s/offers", directory());
    struct {
        struct answer answer;
        int error;
    } all[] = {
        {{path, "", 0, {0}, 0}, EPIPE},
        {{path, noise, 1, {0}, 0}, EBADMSG},
        {{path, noise, 32, {null, null, null, null}, 4}, EBADMSG},
        {{path, noise, 64, {null, null, null, null}, 4}, EBADMSG},
        {{path, numbers, 32, {null}, 1}, EBADMSG},
        {{path, numbers, 32, {null, null, null, null}, 4}, EINVAL}, /* of another pool, as far as it says */
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t child = process(offer, &all[i].answer);
        FAILS(all[i].error, reaches(path));
        ends(child);
        unlink(path);
    }
}

/* Locks a name as its keeper does, and answers one process that wants to join. */
static void keep(void *what) {
    const struct answer *sent = what;
    char path[120];
    const char *name = strrchr(sent->path, '/') + 1;
    snprintf(path, sizeof path, "%.*s.%s.lock", (int)(name - sent->path), sent->path, name);
    int lock = open(path, O_RDWR | O_CREAT, 0600), listener = listener_at(sent->path);
    struct flock keeper = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    CHECK(lock >= 0 && fcntl(lock, F_OFD_SETLK, &keeper) == 0);
    snprintf(path, sizeof path, "%s.ready", sent->path);
    int ready = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(ready >= 0);
    answer(listener, sent);
}

/* Pools that are none. */
static void keepers(void) {
    char path[100], ready[120];
    snprintf(path, sizeof path, "%s/fbufs", directory());
    OK(mkdir(path, 0700));
    strcat(path, "/victim");
    snprintf(ready, sizeof ready, "%s.ready", path);
    int null = open("/dev/null", O_RDWR), bare = memfd_create("bare", MFD_CLOEXEC);
    int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(bare, 8 << 20) == 0 && ftruncate(sealed, 8 << 20) == 0);
    OK(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    struct answer all[] = {
        {path, "x", 1, {null}, 1},
        {path, "x", 1, {bare}, 1}, /* it could be shortened */
        {path, "x", 1, {sealed}, 1},
        {path, "x", 1, {sealed, null, bare}, 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pid_t child = process(keep, &all[i]);
        while (access(ready, F_OK) != 0)
            usleep(1000);
        FAILS(EINVAL, uf_join("victim"));
        ends(child);
        OK(unlink(ready));
    }
    /* When they are gone the name is free, and this process's pool is as it was. */
    void *bytes = uf_allocate(10);
    CHECK(bytes && uf_deallocate(bytes, 10) == NULL);
    OK(uf_join("victim"));
}

int main(void) {
    offers();
    keepers();
    remove_directory();
    return 0;
}
