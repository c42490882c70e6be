/* The layout of the structures is part of the interface: it does not change without another soname. The library's own tests compare
 * the same numbers. */
#include <stddef.h>

#include "check.h"

#define SAME(type, size, last, offset)                       \
    _Static_assert(sizeof(type) == (size), #type);           \
    _Static_assert(offsetof(type, last) == (offset), #type)

SAME(struct io_segment, 16, length, 8);
SAME(struct io_region, 24, segmentv, 8);
SAME(struct io_native_location, 16, lender, 8);
SAME(struct io_fragment_location, 32, offset, 24);
SAME(union io_location, 32, native, 0);
SAME(struct io_receipt, 56, reason, 48);
SAME(struct io_scatter_gather, 64, receiptp, 56);
SAME(struct io_buffer_header, 72, totalp, 64);
SAME(struct io_thresholds, 32, input_run, 24);
SAME(struct io_options, 80, flags, 72);
SAME(struct io_connect_options, 64, flags, 60);
SAME(struct io_layout, 40, changes, 32);
SAME(struct io_service_mapping, 32, preferred_length, 24);
SAME(struct io_server_buffer, 32, segv, 24);
SAME(struct io_message, 80, bufv, 72);
SAME(struct io_reply_message, 56, actualv, 48);
SAME(struct io_pool_options, 48, away, 40);
SAME(struct io_overlay_buffer, 40, segv, 32);
SAME(struct io_outboard_data, 48, free, 40);
SAME(struct io_pinned_bytes, 24, segv, 16);
SAME(struct io_network_options, 32, header_length, 24);
SAME(struct io_network_counters, 64, unfit, 56);
SAME(struct io_packet, 40, checksum, 32);

int main(void) {
    return 0;
}
