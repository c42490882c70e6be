// genie.hpp: servers work where the data is, however it is divided into segments, and nothing on the way allocates or copies.
#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <numeric>
#include <random>
#include <thread>

// How much this program has allocated by new, and so what the header has.
static std::atomic<std::size_t> allocations{0};
[[gnu::noinline]] void *operator new(std::size_t size) {
    allocations++;
    if (void *memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

using bytes = std::vector<unsigned char>;
using source = genie::segments<const unsigned char>;
using target = genie::segments<unsigned char>;

// Memory in which there are gaps between segments, some of them empty.
struct divided {
    std::vector<io_segment> places{};
    bytes memory;
    divided(std::mt19937 &random, std::size_t size) : memory(4 * size + 4000, 0xee) {
        std::size_t at = 0;
        for (std::size_t left = size; left > 0; at += 1 + random() % 7) {
            const std::size_t most = random() % 3 ? 40 : 1000, part = std::min<std::size_t>(left, random() % most);
            if (at + part > memory.size()) memory.resize(2 * memory.size(), 0xee), places.clear(), at = 0, left = size;
            else places.push_back({memory.data() + at, part}), at += part, left -= part;
        }
        for (std::size_t tail = random() % 2; tail > 0; tail--) places.push_back({memory.data(), 0});
    }
    template <class Byte> genie::segments<Byte> segments() const { return {places.data(), places.size()}; }
    bytes joined() const {
        bytes all;
        for (const io_segment &each : places) {
            const auto *first = static_cast<const unsigned char *>(each.addr);
            all.insert(all.end(), first, first + each.length);
        }
        return all;
    }
    std::size_t stray() const { // bytes in gaps that are not what they were
        bytes rest = memory;
        for (const io_segment &each : places)
            std::fill_n(rest.data() + (static_cast<unsigned char *>(each.addr) - memory.data()), each.length, static_cast<unsigned char>(0xee));
        return rest.size() - static_cast<std::size_t>(std::count(rest.begin(), rest.end(), 0xee));
    }
};

// Reading, storing, pieces and spans, against the joined bytes.
static void divisions(unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t size = random() % 3000;
    divided from(random, size), to(random, size + random() % 100);
    target store = to.segments<unsigned char>();
    bytes expected(store.size());
    std::iota(expected.begin(), expected.end(), static_cast<unsigned char>(seed));
    store.store(0, expected.data(), expected.size());
    for (int round = 0; round < 50; round++) {
        const std::size_t offset = random() % (store.size() + 1), length = random() % (store.size() - offset + 1);
        const auto first = expected.begin() + static_cast<std::ptrdiff_t>(offset), last = first + static_cast<std::ptrdiff_t>(length);
        bytes loaded(length);
        store.load(offset, loaded.data(), length);
        CHECK(std::equal(first, last, loaded.begin()));
        {
            genie::piece<unsigned char> piece = store.piece(offset, length), moved = std::move(piece);
            CHECK(moved.size() == length && std::equal(first, last, moved.begin()));
            for (unsigned char &each : moved) each ^= 0x55;
        }
        std::transform(first, last, first, [](unsigned char each) { return static_cast<unsigned char>(each ^ 0x55); });
        CHECK(to.joined() == expected);
        genie::span<unsigned char> here = store.from(offset);
        CHECK((here.size() > 0) == (offset < store.size()) && (here.size() == 0 || here[0] == expected[offset]));
    }
    THROWS(EINVAL, (store.piece(store.size(), 1), 0));
    THROWS(EINVAL, (store.piece(1, SIZE_MAX), 0));
    THROWS(EINVAL, (store.load(store.size() + 1, nullptr, 0), 0));
    THROWS(EINVAL, (store.store(0, expected.data(), store.size() + 1), 0));
    CHECK(store.piece(store.size(), 0).size() == 0 && store.from(store.size()).size() == 0);

    from.segments<unsigned char>().store(0, expected.data(), size);
    const std::size_t before = allocations;
    const auto invert = [](const unsigned char *in, unsigned char *out, std::size_t count) { std::transform(in, in + count, out, std::bit_not<unsigned char>()); };
    CHECK(genie::together(from.segments<const unsigned char>(), store, invert) == size);
    CHECK(allocations == before);
    std::transform(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(size), expected.begin(), std::bit_not<unsigned char>());
    CHECK(to.joined() == expected && from.stray() == 0 && to.stray() == 0);
}

enum : std::uint32_t { INVERT, BLIND };

// Inverts where the data is, and counts by what it gets there that this is so.
static void serve(const genie::registered &server) {
    genie::message message;
    while (server.next(message)) {
        if (message->what != IO_REQUEST) continue;
        if (message->service == BLIND) {
            THROWS(EINVAL, message.output(0)); // the service does not read
            THROWS(EINVAL, message.ready(0));
            message.fail(EPROTO);
            continue;
        }
        THROWS(EINVAL, message.output(1)); // an input
        THROWS(EINVAL, message.output(2));
        THROWS(EINVAL, message.ready(0)); // an output
        THROWS(EINVAL, message.ready(2));
        CHECK(message->bufv[1].segc == 0);
        const std::size_t before = allocations;
        source from = message.output(0);
        target to = message.ready(1);
        CHECK(from.size() == message->bufv[0].length && to.size() == message->bufv[1].length);
        std::size_t count = 0;
        for (genie::span<const unsigned char> each : from)
            CHECK(each.data() == message->bufv[0].segv[count].addr && each.size() == message->bufv[0].segv[count].length && ++count);
        CHECK(count == message->bufv[0].segc && message.ready(1).from(0).data() == message->bufv[1].segv[0].addr);
        CHECK(from.piece(0, 1).data() == message->bufv[0].segv[0].addr && to.piece(0, 1).data() == message->bufv[1].segv[0].addr);
        message.actual(1, genie::together(from, to, [](const unsigned char *in, unsigned char *out, std::size_t size) {
            std::transform(in, in + size, out, std::bit_not<unsigned char>());
        }));
        CHECK(allocations == before);
        message.reply();
    }
}

static io_scatter_gather element(unsigned char *at, std::size_t size, io_scatter_gather *next) {
    io_scatter_gather made{};
    made.scheme = IO_EMULATED_COPY, made.flags = IO_HELD, made.location.native.addr = at, made.length = size, made.next_sg = next;
    return made;
}

// Buffers of several elements are one buffer to the server, in segments whose ends lie elsewhere on the two sides.
static void gathered(const genie::peer &server, genie::buffer &data, genie::buffer &room) {
    const std::size_t size = data.size();
    fill(data, 9), std::fill(room.begin(), room.end(), static_cast<unsigned char>(0));
    io_scatter_gather out[3], in[2];
    out[2] = element(data.data() + size / 2, size - size / 2, nullptr);
    out[1] = element(data.data() + 1, size / 2 - 1, &out[2]);
    out[0] = element(data.data(), 1, &out[1]);
    in[1] = element(room.data() + size / 3, size - size / 3, nullptr);
    in[0] = element(room.data(), size / 3, &in[1]);
    for (io_scatter_gather &each : in) each.flags = 0;
    std::size_t actual = 0;
    io_buffer_header from{}, to{};
    from.first_sg = out, from.direction = IO_OUT, to.first_sg = in, to.direction = IO_IN, to.actual_lengthp = &actual;
    io_buffer_header *headers[] = {&from, &to};
    CHECK(io_request(server.number(), INVERT, 2, headers, IO_FOREVER, nullptr) == 0 && actual == size);
    for (std::size_t i = 0; i < size; i++) CHECK(room[i] == static_cast<unsigned char>(~byte(i, 9)));
}

int main() {
    const unsigned seed = std::random_device()();
    std::fprintf(stderr, "seed %u\n", seed);
    for (unsigned i = 0; i < (is_brief() ? 20u : 2000u); i++) divisions(seed + i);

    const std::vector<io_service_mapping> services = {{"invert", IO_READ | IO_WRITE, 0, 0}, {"blind", IO_WRITE, 0, 0}};
    genie::interface io;
    genie::registered server("", services);
    std::thread thread([&server] { serve(server); });
    for (std::size_t size : {std::size_t(100), std::size_t(8) << (is_brief() ? 10 : 20)}) {
        genie::buffer data(io, size), room(io, size);
        gathered(server, data, room);
        fill(data, 1);
        genie::reply reply = genie::request(server, INVERT).out(data).held().in(room).send();
        CHECK(reply.actual(1) == size && room[size - 1] == static_cast<unsigned char>(~data[size - 1]));
        // Long data is read, and filled, where it is.
        if (size > 1 << 20) CHECK(reply.receipt(0).copied == 0 && reply.receipt(1).copied == 0);
    }
    THROWS(EPROTO, genie::request(server, BLIND).out("text", 4).send());
    server.close();
    thread.join();
}
