//! What is made of the sources: the header, and of the header the man pages and the layout that C programs rely on.
//!
//! `GENIE_BLESS=1 cargo test -p genie-capi --test made` writes the header and the man pages.

mod library;

use library::Library;

#[test]
fn the_header_and_the_man_pages_are_those_of_the_sources() {
    let sources = &[
        "types.rs",
        "failure.rs",
        "interface.rs",
        "connect.rs",
        "memory.rs",
        "request.rs",
        "pending.rs",
        "batch.rs",
        "server.rs",
        "messages.rs",
        "taken.rs",
        "overlay.rs",
        "outboard.rs",
        "pinned.rs",
        "pin.rs",
        "packet.rs",
        "network.rs",
    ];
    let (header, config) = ("genie.h", "cbindgen.toml");
    Library::ensure(&[Library { name: "libgenie", header, config, sources, prefix: None }]);
}

/// The layout is part of the interface: it does not change without another soname. `ctests/layout.c` has the same numbers.
#[test]
fn the_layout_is_what_c_programs_were_compiled_with() {
    use std::mem::offset_of;

    use genie_capi::connect::{Connecting, Layout};
    use genie_capi::interface::{Options, Thresholds};
    use genie_capi::messages::{Message, ReplyMessage, ServerBuffer};
    use genie_capi::network::{NetworkCounters, NetworkOptions};
    use genie_capi::outboard::OutboardData;
    use genie_capi::overlay::PoolOptions;
    use genie_capi::packet::Packet;
    use genie_capi::pinned::PinnedBytes;
    use genie_capi::server::ServiceMapping;
    use genie_capi::taken::OverlayBuffer;
    use genie_capi::types::{
        BufferHeader, FragmentLocation, Location, NativeLocation, Receipt, Region, ScatterGather, Segment,
    };

    let mut layout = String::new();
    let mut line = |name: &str, size: usize, last: &str, offset: usize| {
        let kind = if name == "io_location" { "union" } else { "struct" };
        layout += &format!("SAME({kind} {name}, {size}, {last}, {offset});\n");
    };
    macro_rules! of {
        ($($name:literal $type:ty, $last:ident;)*) => {
            $(line($name, size_of::<$type>(), stringify!($last), offset_of!($type, $last));)*
        };
    }
    of! {
        "io_segment" Segment, length;
        "io_region" Region, segmentv;
        "io_native_location" NativeLocation, lender;
        "io_fragment_location" FragmentLocation, offset;
        "io_location" Location, native;
        "io_receipt" Receipt, reason;
        "io_scatter_gather" ScatterGather, receiptp;
        "io_buffer_header" BufferHeader, totalp;
        "io_thresholds" Thresholds, input_run;
        "io_options" Options, flags;
        "io_connect_options" Connecting, flags;
        "io_layout" Layout, changes;
        "io_service_mapping" ServiceMapping, preferred_length;
        "io_server_buffer" ServerBuffer, segv;
        "io_message" Message, bufv;
        "io_reply_message" ReplyMessage, actualv;
        "io_pool_options" PoolOptions, away;
        "io_overlay_buffer" OverlayBuffer, segv;
        "io_outboard_data" OutboardData, free;
        "io_pinned_bytes" PinnedBytes, segv;
        "io_network_options" NetworkOptions, header_length;
        "io_network_counters" NetworkCounters, unfit;
        "io_packet" Packet, checksum;
    }
    let checked = include_str!("../../ctests/layout.c");
    assert!(checked.contains(&layout), "ctests/layout.c does not have\n{layout}");
}
