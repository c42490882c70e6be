/* Networks that allocate packets, over cards whose devices are threads and processes. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LONGEST = 4096, HELD = 128 };

static const size_t lengths[] = {1, 2, 3, 63, 64, 65, 1500, 4072, 4095, 4096};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static io_network_t opened(int device, uint32_t copies, uint32_t flags, const char *header) {
    const struct io_network_options options = {.size = sizeof options,
                                               .copies = copies,
                                               .flags = flags,
                                               .header = header,
                                               .header_length = header ? strlen(header) : 0};
    io_network_t network = 0;
    OK(io_network_open(device, &options, &network));
    return network;
}

static unsigned char value(size_t at, unsigned seed) { return (unsigned char)(at * 7 + seed); }

static void fill(const struct io_packet *packet, unsigned seed) {
    size_t at = 0;
    for (size_t i = 0; i < packet->segc; i++)
        for (size_t j = 0; j < packet->segv[i].length; j++)
            ((unsigned char *)packet->segv[i].addr)[j] = value(at++, seed);
    CHECK(at == packet->length);
}

static int filled(const struct io_packet *packet, unsigned seed) {
    size_t at = 0;
    for (size_t i = 0; i < packet->segc; i++)
        for (size_t j = 0; j < packet->segv[i].length; j++)
            if (((unsigned char *)packet->segv[i].addr)[j] != value(at++, seed))
                return 0;
    return at == packet->length;
}

static struct io_packet allocated(io_network_t network, size_t length) {
    struct io_packet packet;
    while (io_network_allocate(network, length, &packet) != 0) {
        CHECK(errno == EAGAIN);
        OK(io_network_wait(network, IO_FOREVER));
    }
    CHECK(packet.length == length);
    return packet;
}

static struct io_packet received(io_network_t network) {
    struct io_packet packet;
    OK(io_network_receive(network, IO_FOREVER, &packet));
    return packet;
}

static struct io_network_counters counted(io_network_t network) {
    struct io_network_counters counters;
    OK(io_network_count(network, &counters));
    return counters;
}

/* What is reflected comes whole, and was copied as often as the driver says. */
static void reflections(uint32_t copies, uint32_t flags) {
    const io_network_t network = opened(-1, copies, flags | IO_REFLECTED, NULL);
    uint64_t bytes = 0;
    for (unsigned round = 0; round < 20; round++)
        for (size_t i = 0; i < LENGTHS; i++) {
            struct io_packet packet = allocated(network, lengths[i]);
            fill(&packet, round);
            OK(io_network_send(network, packet.packet, IO_NO_CHECKSUM));
            FAILS(EBADF, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
            FAILS(EBADF, io_packet_free(packet.packet));
            packet = received(network);
            CHECK(packet.length == lengths[i] && filled(&packet, round));
            OK(io_packet_free(packet.packet));
            FAILS(EBADF, io_packet_free(packet.packet));
            FAILS(EBADF, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
            bytes += lengths[i];
        }
    const struct io_network_counters counters = counted(network);
    CHECK(counters.sent == 20 * LENGTHS && counters.received == counters.sent);
    CHECK(counters.sent_bytes == bytes && counters.received_bytes == bytes && counters.unfit == 0);
    CHECK(counters.copied_out == copies * bytes && counters.copied_in == copies * bytes);
    CHECK((counters.management_calls >= 2 * counters.sent) == ((flags & IO_BY_SYSTEM_CALLS) != 0));
    CHECK((counters.management_calls == 0) == ((flags & IO_BY_SYSTEM_CALLS) == 0));
    OK(io_network_close(network));
}

static void checksums(uint32_t copies) {
    const io_network_t network = opened(-1, copies, IO_REFLECTED | IO_SUMMED, NULL);
    for (size_t i = 1; i < LENGTHS; i++) {
        struct io_packet packet = allocated(network, lengths[i]);
        fill(&packet, 1);
        FAILS(EINVAL, io_network_send(network, packet.packet, 1));
        FAILS(EINVAL, io_network_send(network, packet.packet, -2));
        FAILS(EINVAL, io_network_send(network, packet.packet, (int64_t)(lengths[i] & ~(size_t)1)));
        OK(io_network_send(network, packet.packet, 0));
        packet = received(network);
        CHECK(packet.checksum == 0);
        OK(io_packet_free(packet.packet));
        packet = allocated(network, lengths[i]);
        fill(&packet, 1);
        OK(io_network_send(network, packet.packet, IO_NO_CHECKSUM));
        packet = received(network);
        CHECK(packet.checksum != 0);
        OK(io_packet_free(packet.packet));
    }
    OK(io_network_close(network));
}

static void headers(void) {
    const io_network_t network = opened(-1, 2, IO_REFLECTED, "a header");
    struct io_packet packet = allocated(network, 1000);
    fill(&packet, 3);
    OK(io_network_send(network, packet.packet, IO_NO_CHECKSUM));
    packet = received(network);
    CHECK(packet.length == 1000 && filled(&packet, 3));
    CHECK(counted(network).copied_out == 1000 + 1008 && counted(network).copied_in == 1008 + 1000);
    OK(io_network_close(network));
    CHECK(filled(&packet, 3)); /* a packet outlives its network */
    FAILS(EBADF, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
    OK(io_packet_free(packet.packet));
}

/* A program that keeps its packets has its own network wait, and no other. */
static void exhaustion(uint32_t copies) {
    const io_network_t network = opened(-1, copies, 0, NULL), other = opened(-1, copies, IO_REFLECTED, NULL);
    struct io_packet held[HELD], packet;
    for (size_t i = 0; i < HELD; i++)
        held[i] = allocated(network, 10);
    FAILS(EAGAIN, io_network_allocate(network, 10, &packet));
    FAILS(EAGAIN, io_network_receive(network, 0, &packet));
    packet = allocated(other, 10);
    OK(io_network_send(other, packet.packet, IO_NO_CHECKSUM));
    packet = received(other);
    OK(io_network_send(other, packet.packet, IO_NO_CHECKSUM)); /* what was received can be sent */
    packet = received(other);
    OK(io_packet_free(packet.packet));
    OK(io_packet_free(held[5].packet));
    held[5] = allocated(network, 10);
    for (size_t i = 0; i < HELD; i++)
        OK(io_packet_free(held[i].packet));
    OK(io_network_close(network));
    OK(io_network_close(other));
}

static pid_t device(int *host) {
    int ends[2];
    OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        _exit(io_card_serve(ends[1]) == 0 ? 0 : 1);
    }
    close(ends[1]);
    *host = ends[0];
    return child;
}

/* A device that is a process ends with its host, and a network with its device. */
static void processes(void) {
    int host, status;
    pid_t child = device(&host);
    io_network_t network = opened(host, 0, IO_REFLECTED, NULL);
    struct io_packet packet = allocated(network, LONGEST);
    fill(&packet, 9);
    OK(io_network_send(network, packet.packet, IO_NO_CHECKSUM));
    packet = received(network);
    CHECK(filled(&packet, 9));
    OK(io_network_close(network));
    OK(io_packet_free(packet.packet));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

    child = device(&host);
    network = opened(host, 0, 0, NULL);
    packet = allocated(network, 10);
    OK(kill(child, SIGKILL));
    CHECK(waitpid(child, &status, 0) == child);
    struct io_packet none;
    FAILS(ENODEV, io_network_receive(network, IO_FOREVER, &none));
    FAILS(ENODEV, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
    OK(io_packet_free(packet.packet));
    OK(io_network_close(network));
}

/* What finds no room in a card that is stopped waits in the queue, and has gone when a flush succeeds. */
static void flushes(void) {
    int host, status;
    const pid_t child = device(&host);
    const io_network_t network = opened(host, 2, 0, NULL);
    OK(kill(child, SIGSTOP));
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    struct io_packet packet = allocated(network, LONGEST);
    while (io_network_send(network, packet.packet, IO_NO_CHECKSUM) == 0)
        packet = allocated(network, LONGEST);
    CHECK(errno == EAGAIN && counted(network).sent > HELD);
    FAILS(ETIMEDOUT, io_network_flush(network, 0));
    FAILS(ETIMEDOUT, io_network_flush(network, 1000000));
    OK(kill(child, SIGCONT));
    OK(io_network_flush(network, IO_FOREVER));
    OK(io_network_flush(network, 0));
    OK(io_packet_free(packet.packet));
    OK(io_network_close(network));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    FAILS(EBADF, io_network_flush(network, 0));
    for (uint32_t copies = 0; copies <= 1; copies++) {
        const io_network_t other = opened(-1, copies, 0, NULL);
        OK(io_network_flush(other, 0));
        OK(io_network_close(other));
    }
}

/* A process that can have no more descriptors is told so, whichever one is the first that it lacks. */
static void descriptors(void) {
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    const rlim_t before = limit.rlim_cur;
    io_network_t network;
    int opened;
    limit.rlim_cur = 3;
    do {
        OK(setrlimit(RLIMIT_NOFILE, &limit));
        opened = io_network_open(-1, NULL, &network) == 0;
        CHECK(opened || (errno == EMFILE && *io_error_text()));
    } while (!opened && ++limit.rlim_cur < before);
    limit.rlim_cur = before;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK(opened);
    OK(io_network_close(network));
}

static void misuse(void) {
    struct io_network_options options = {.size = sizeof options};
    io_network_t network;
    struct io_packet packet;
    FAILS(EINVAL, io_network_open(-1, &options, NULL));
    FAILS(EBADF, io_network_open(999, &options, &network));
    options.copies = 3;
    FAILS(EINVAL, io_network_open(-1, &options, &network));
    options.copies = 1;
    options.flags = IO_BY_SYSTEM_CALLS;
    FAILS(EINVAL, io_network_open(-1, &options, &network));
    options.flags = 8;
    FAILS(EINVAL, io_network_open(-1, &options, &network));
    options.flags = 0;
    options.header_length = 5;
    FAILS(EINVAL, io_network_open(-1, &options, &network));
    options.copies = 2;
    FAILS(EFAULT, io_network_open(-1, &options, &network));
    int ends[2];
    OK(pipe(ends));
    FAILS(EINVAL, io_network_open(ends[0], NULL, &network));
    FAILS(EINVAL, io_card_serve(ends[1]));
    OK(io_network_open(-1, NULL, &network));
    FAILS(EINVAL, io_network_allocate(network, 0, &packet));
    FAILS(EINVAL, io_network_allocate(network, LONGEST + 1, &packet));
    FAILS(EINVAL, io_network_allocate(network, 1, NULL));
    FAILS(EINVAL, io_network_receive(network, 0, NULL));
    FAILS(EINVAL, io_network_count(network, NULL));
    packet = allocated(network, 1);
    FAILS(EBADF, io_network_allocate(packet.packet, 1, &packet));
    FAILS(EBADF, io_packet_free(network));
    const pid_t child = fork();
    if (child == 0) {
        FAILS(ECHILD, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
        FAILS(ECHILD, io_packet_free(packet.packet));
        FAILS(ECHILD, io_network_flush(network, 0));
        FAILS(ECHILD, io_network_close(network));
        execlp("true", "true", (char *)NULL); /* so that leaks are not looked for */
        CHECK(!"exec");
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(io_packet_free(packet.packet));
    OK(io_network_close(network));
    FAILS(EBADF, io_network_close(network));
    FAILS(EBADF, io_network_allocate(network, 1, &packet));
}

int main(void) {
    processes(); /* first: it forks, as the next one does */
    flushes();
    for (uint32_t copies = 0; copies <= 2; copies++) {
        reflections(copies, 0);
        checksums(copies);
        exhaustion(copies);
    }
    reflections(0, IO_BY_SYSTEM_CALLS);
    headers();
    if (!is_brief()) /* valgrind has limits of its own */
        descriptors();
    misuse();
    return 0;
}
