// Pools, outboard memory and pins in C++.
#include "check.hpp"

#include <memory>
#include <thread>
#include <vector>

using genie::scheme;

static const std::vector<io_service_mapping> services = {{"device", IO_READ | IO_WRITE, 0, 0}};
static constexpr std::size_t granule = 4096;

static genie::message next(const genie::registered &server) {
    genie::message message;
    do CHECK(server.next(message));
    while (message->what != IO_REQUEST);
    return message;
}

static genie::overlay arrive(const genie::pool &pool, unsigned seed) {
    std::optional<genie::overlay> taken = pool.take();
    CHECK(taken);
    genie::segments<unsigned char> bytes = taken->bytes();
    for (std::size_t i = 0; i < bytes.size(); i++) {
        const unsigned char value = byte(i, seed);
        bytes.store(i, &value, 1);
    }
    return std::move(*taken);
}

static void overlays(const genie::interface &io, const genie::registered &server) {
    genie::pool_options options;
    THROWS(EINVAL, genie::pool(io, options));
    options.count = 2, options.length = 40 + 2 * granule, options.offset = granule - 40;
    genie::pool pool(io, options);
    THROWS(EINVAL, pool.memory());
    genie::buffer room(io, 4 * granule);
    genie::pending pending = genie::request(server, "device").in(room).submit();
    genie::message message = next(server);
    std::vector<genie::overlay> chain;
    for (unsigned seed = 0; seed < 2; seed++) {
        chain.push_back(arrive(pool, seed));
        chain.back().part(40, 2 * granule);
        CHECK(chain.back().size() == 2 * granule && chain.back().place() == SIZE_MAX);
    }
    CHECK(pool.available() == 0 && !pool.take());
    THROWS(EINVAL, chain[0].part(1, 2 * granule));
    THROWS(EINVAL, message.overlay(1, std::move(chain)));
    CHECK(chain.size() == 2 && chain[0].size() == 2 * granule); // still the program's
    message.overlay(0, std::move(chain));
    THROWS(EBADF, chain[0].size());
    THROWS(EINVAL, message.reply()); // how much of it?
    message.actual(0, 4 * granule);
    message.reply();
    genie::reply reply = pending.sync();
    CHECK(reply.receipt(0).swapped == 4 && reply.receipt(0).copied == 0 && pool.available() == 2);
    for (std::size_t i = 0; i < 4 * granule; i++) CHECK(room[i] == byte(40 + i % (2 * granule), unsigned(i / (2 * granule))));

    // A part goes to one request; the rest, and a buffer that is refused, go back.
    pending = genie::request(server, "device").in(room.data(), granule).submit();
    message = next(server);
    {
        genie::overlay first = arrive(pool, 7), rest = first.cut(granule);
        CHECK(first.size() == granule && rest.size() == 40 + granule);
        THROWS(EINVAL, message.overlay(0, std::move(first), 1));
        message.overlay(0, std::move(first));
        genie::overlay moved = std::move(rest);
        THROWS(EBADF, rest.bytes()); // NOLINT: moved from
    }
    message.actual(0, granule);
    message.reply();
    CHECK(pending.sync().actual(0) == granule && has(room, 7, granule) && pool.available() == 2);

    options = {};
    options.count = 1, options.length = 1000, options.offset = 24, options.stride = 1024;
    genie::pool frames(io, options);
    const genie::overlay frame = arrive(frames, 3);
    CHECK(frames.memory().size() >= 1024 && frames.memory()[frame.place() + 5] == byte(5, 3));
}

struct device : genie::outboard {
    bool fails; unsigned seed; int &ended;
    device(bool fails, unsigned seed, int &ended) : fails(fails), seed(seed), ended(ended) {}
    ~device() override { ended++; }
    std::size_t size() const override { return 10000; }
    bool may_fail() const override { return fails; }
    void transfer(std::size_t offset, genie::segments<unsigned char> into) override {
        if (fails) throw std::system_error(ENOSPC, std::generic_category());
        for (std::size_t i = 0; i < into.size(); i++) *into.from(i).data() = byte(offset + i, seed);
    }
};

static void outboard(const genie::interface &io, const genie::registered &server) {
    int ended = 0;
    genie::buffer room(io, 10000);
    genie::pending pending = genie::request(server, "device").in(room).submit();
    genie::message message = next(server);
    std::unique_ptr<genie::outboard> data = std::make_unique<device>(false, 4, ended);
    THROWS(EINVAL, message.outboard(0, std::move(data), 1));
    CHECK(data && ended == 0);
    message.outboard(0, std::move(data));
    CHECK(!data);
    message.actual(0, 10000);
    message.reply();
    CHECK(pending.sync().receipt(0).copied == 0 && ended == 1 && has(room, 4, 10000));

    pending = genie::request(server, "device").in(room).submit();
    message = next(server);
    message.outboard(0, std::make_unique<device>(true, 5, ended));
    message.actual(0, 10000);
    message.reply();
    THROWS(EIO, pending.sync());
    CHECK(ended == 2 && has(room, 4, 10000));
}

static void pins(const genie::interface &io, const genie::registered &server) {
    genie::buffer text(io, 10000), room(io, 10000);
    fill(text, 1);
    genie::pending pending = genie::request(server, "device").out(text).in(room).submit();
    genie::message message = next(server);
    genie::pin<const unsigned char> from = message.pin_output(0, 100, 5000);
    genie::pin<unsigned char> to = message.pin_input(1, 0, 5000);
    THROWS(EINVAL, message.pin_output(1, 0, 1));
    THROWS(EINVAL, message.pin_input(0, 0, 1));
    THROWS(EINVAL, message.pin_output(0, 1, 10000));
    message.actual(1, 5000);
    message.reply();
    CHECK(!pending.wait(std::chrono::nanoseconds(0)));
    std::thread([from = std::move(from), to = std::move(to)] {
        genie::together(from.bytes(), to.bytes(), [](const unsigned char *source, unsigned char *target, std::size_t size) {
            std::memcpy(target, source, size);
        });
    }).join();
    CHECK(pending.sync().actual(1) == 5000);
    for (std::size_t i = 0; i < 5000; i++) CHECK(room[i] == byte(100 + i, 1));
}

int main() {
    const genie::interface io;
    const io_thresholds always{1, 1, 1, 1};
    CHECK(io_set_thresholds(io.number(), &always) == 0);
    const genie::registered server("", services);
    overlays(io, server);
    outboard(io, server);
    pins(io, server);
}
