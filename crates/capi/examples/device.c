/* A device: packets come into a private pool before anybody asks for them, and change places with pages of the client that does. Their
 * headers are taken off; the data of all packets is one input of the client's (thesis, figure 6.1). Device and client are one program,
 * since pages change places there only.
 *
 *     device
 */
#include <genie.h>
#include <stdio.h>
#include <stdlib.h>

enum { PACKETS = 16, HEADER = 42, DATA = 8192, GRANULE = 4096 };

static void ensure(int returned, const char *what) {
    if (returned >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, io_error_text());
    exit(1);
}

/* The wire stores packet `number` into a buffer: a header, and data. */
static void receive(const struct io_overlay_buffer *packet, int number) {
    size_t before = 0;
    for (size_t i = 0; i < packet->segc; before += packet->segv[i++].length)
        for (size_t j = 0; j < packet->segv[i].length; j++)
            ((unsigned char *)packet->segv[i].addr)[j] = before + j < HEADER ? 'h' : (unsigned char)number;
}

int main(void) {
    static const struct io_service_mapping services[] = {{.name = "receive", .flags = IO_WRITE, .preferred_length = DATA}};
    io_server_t device;
    ensure(io_server_register(NULL, 1, services, 0, &device), "io_server_register");
    /* So that even data of a page changes places: without this, what was measured on the machine decides, and short data is copied. */
    ensure(io_set_thresholds(0, &(struct io_thresholds){1, 1, 1, 1}), "io_set_thresholds");

    /* The pool: a header lies in front of the data so that the data begins with a granule, as it does in clients' buffers. */
    struct io_pool_options options = {.size = sizeof options, .count = PACKETS, .length = HEADER + DATA, .offset = GRANULE - HEADER};
    io_pool_t pool;
    ensure(io_pool_allocate(0, &options, &pool), "io_pool_allocate");

    /* Packets come, and wait with their headers taken off. */
    io_overlay_t waiting[PACKETS];
    for (int i = 0; i < PACKETS; i++) {
        struct io_overlay_buffer packet;
        ensure(io_pool_take(pool, &packet), "io_pool_take");
        receive(&packet, i);
        ensure(io_overlay_part(&packet, HEADER, DATA), "io_overlay_part");
        waiting[i] = packet.overlay;
    }

    /* A client asks, in a buffer that begins with a granule. */
    unsigned char *room = io_allocate(0, PACKETS * DATA);
    struct io_receipt receipt;
    struct io_scatter_gather data = {.scheme = IO_EMULATED_COPY, .length = PACKETS * DATA, .receiptp = &receipt};
    data.location.native.addr = room;
    struct io_buffer_header in = {.direction = IO_IN, .first_sg = &data}, *buffers[] = {&in};
    io_request_t asked;
    ensure(room ? io_request(device, 0, 1, buffers, IO_FOREVER, &asked) : -1, "io_request");

    /* The device gives all that has come, in place of io_ready. */
    struct io_message message;
    ensure(io_server(device, NULL, &message, 1), "io_server");
    ensure(io_overlay(device, message.request, 0, 0, PACKETS, waiting), "io_overlay");
    size_t actual = PACKETS * DATA;
    struct io_reply_message reply = {.request = message.request, .actualc = 1, .actualv = &actual};
    ensure(io_server(device, &reply, NULL, 0), "io_server");

    ensure(io_sync(asked, IO_NORMAL, 0, NULL, IO_FOREVER), "io_sync");
    for (size_t i = 0; i < PACKETS * DATA; i++)
        if (room[i] != i / DATA)
            ensure(-1, "the data is wrong");
    printf("%d packets: %u pages changed places, %zu bytes copied; %d buffers are free again\n", PACKETS, (unsigned)receipt.swapped,
           receipt.copied, io_pool_available(pool));
    io_free(room);
    io_pool_free(pool);
    return io_server_unregister(device) == 0 ? 0 : 1;
}
