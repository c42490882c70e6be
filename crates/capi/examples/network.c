/* Packets in buffers that a network allocates: the program is the same whether the network copies them twice, once or not at all.
 *
 *     network
 */
#include <errno.h>
#include <genie.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACKETS = 1000, LENGTH = 1500 };

/* A call of the library's that must succeed. */
static int must(int returned, const char *call) {
    if (returned < 0) {
        fprintf(stderr, "%s: %s\n", call, io_error_text());
        exit(1);
    }
    return returned;
}
#define MUST(call) must(call, #call)

/* Tries a call until there are packets, or room. */
#define WHEN_THERE_IS_ROOM(network, call)                                                                         \
    while ((call) != 0)                                                                                           \
    MUST(errno == EAGAIN ? io_network_wait(network, IO_FOREVER) : -1)

static void send_packet(io_network_t network, int value) {
    struct io_packet packet;
    WHEN_THERE_IS_ROOM(network, io_network_allocate(network, LENGTH, &packet));
    for (size_t i = 0; i < packet.segc; i++)
        memset(packet.segv[i].addr, value, packet.segv[i].length);
    WHEN_THERE_IS_ROOM(network, io_network_send(network, packet.packet, IO_NO_CHECKSUM));
}

static int receive_packet(io_network_t network) {
    struct io_packet packet;
    MUST(io_network_receive(network, IO_FOREVER, &packet));
    int value = *(unsigned char *)packet.segv[0].addr;
    MUST(io_packet_free(packet.packet));
    return value;
}

int main(void) {
    for (uint32_t copies = 0; copies <= 2; copies++) {
        /* The card of this network sends back what it gets. */
        struct io_network_options options = {.size = sizeof options, .copies = copies, .flags = IO_REFLECTED};
        io_network_t network;
        MUST(io_network_open(-1, &options, &network));
        int same = 0;
        for (int i = 0; i < PACKETS; i++) {
            send_packet(network, i % 256);
            same += receive_packet(network) == i % 256;
        }
        struct io_network_counters counters;
        MUST(io_network_count(network, &counters));
        printf("%" PRIu32 " copies: %d of %d packets came back; %" PRIu64 " bytes copied out, %" PRIu64 " in\n", copies,
               same, PACKETS, counters.copied_out, counters.copied_in);
        MUST(io_network_flush(network, IO_FOREVER)); /* what waits in a queue is lost when the network is closed */
        MUST(io_network_close(network));
    }
    return 0;
}
