// genie.hpp: buffers given by value, which nothing is protected or copied for, and which come back; and totals of receipts.
#include "check.hpp"

#include <thread>

using namespace std::chrono_literals;
using genie::scheme;

enum : std::uint32_t { INVERT, FAIL };
static const std::vector<io_service_mapping> services = {{"invert", IO_READ | IO_WRITE, 0, 0}, {"fail", IO_READ | IO_WRITE, 0, 0}};

static void serve(const genie::registered &server) {
    genie::message message;
    while (server.next(message)) {
        if (message->what != IO_REQUEST) continue;
        if (message->service == FAIL) {
            message.fail(ENOSPC);
            continue;
        }
        message.actual(1, genie::together(message.output(0), message.ready(1), [](const unsigned char *from, unsigned char *to, std::size_t size) {
            for (std::size_t i = 0; i < size; i++) to[i] = static_cast<unsigned char>(~from[i]);
        }));
        message.reply();
    }
}

static bool is_inverse(const genie::buffer &of, unsigned seed) {
    for (std::size_t i = 0; i < of.size(); i++)
        if (of[i] != static_cast<unsigned char>(~byte(i, seed))) return false;
    return true;
}

// They come back at the same addresses, after success and after failure, by each native scheme.
static void come_back(const genie::interface &io, const genie::peer &server) {
    unsigned seed = 0;
    for (std::size_t size : {std::size_t(10), std::size_t(70001), std::size_t(4) << (is_brief() ? 10 : 20)})
        for (scheme by : {scheme::standard, scheme::copy, scheme::emulated_copy, scheme::share, scheme::emulated_share}) {
            genie::buffer data(io, size), room(io, size);
            void *const places[] = {data.data(), room.data()};
            fill(data, ++seed);
            genie::pending pending = genie::request(server, INVERT).out(std::move(data)).scheme(by).in(std::move(room)).scheme(by).submit();
            CHECK(!data.data() && !room.data() && data.size() == 0); // NOLINT: moved from, and empty
            THROWS(EBUSY, pending.take_buffer(0));
            CHECK(io_free(places[0]) == -1 && errno == EBUSY);
            genie::reply reply = pending.sync();
            data = reply.take_buffer(0), room = reply.take_buffer(1);
            THROWS(EFAULT, reply.take_buffer(1)); // taken
            CHECK(data.data() == places[0] && room.data() == places[1] && data.size() == size && room.size() == size);
            CHECK(has(data, seed, size) && is_inverse(room, seed));
            if (size > 1 << 20 && by == scheme::emulated_copy) CHECK(reply.receipt().copied == 0 && reply.receipt(0).write_protected == 0);

            genie::request failing(server, FAIL);
            failing.out(std::move(data)).scheme(by).in(std::move(room)).scheme(by);
            THROWS(ENOSPC, failing.send());
            THROWS(ENOSPC, failing.send()); // again, with the same buffers
            data = failing.take_buffer(0), room = failing.take_buffer(1);
            THROWS(EFAULT, failing.send()); // without them
            THROWS(EFAULT, failing.take_buffer(0));
            CHECK(data.data() == places[0] && has(data, seed, size));
            pending = genie::request(server, FAIL).out(std::move(data)).submit();
            THROWS(ENOSPC, pending.sync());
            CHECK(pending.take_buffer(0).data() == places[0]); // and is freed here
            CHECK(io_free(places[0]) == -1 && errno == EFAULT);
        }
    // What nobody takes is freed.
    genie::buffer data(io, 100), kept(io, 100);
    void *const place = data.data();
    genie::request(server, INVERT).out(std::move(data)).in(kept).send();
    CHECK(io_free(place) == -1 && errno == EFAULT);
    THROWS(EFAULT, genie::request(server, INVERT).out(genie::buffer()).in(kept).send()); // empty
    THROWS(EFAULT, genie::request(server, INVERT).out(kept).in(kept).send().take_buffer(0)); // was not given
}

// A buffer that is out by value is in no other request.
static void is_nobody_elses(const genie::interface &io) {
    genie::registered server("", services);
    genie::buffer data(io, 5000), room(io, 5000);
    unsigned char *const place = data.data();
    genie::pending borrowing = genie::request(server, INVERT).in(data).submit();
    genie::request given(server, INVERT);
    given.out(std::move(data));
    THROWS(EBUSY, given.submit()); // the first request uses it
    CHECK(!borrowing.abort());
    genie::pending pending = given.submit();
    THROWS(EBUSY, genie::request(server, INVERT).out(place, 5000).submit());
    THROWS(EBUSY, genie::request(server, INVERT).in(place, 100).submit());
    CHECK(!pending.abort());
    data = pending.take_buffer(0);
    CHECK(data.data() == place);
}

// A server that does not let a buffer go keeps it; it is freed later, and not by us, even if its address is another buffer's then.
static void kept_by_the_server(const genie::interface &io) {
    genie::registered server("", services);
    genie::buffer data(io, 5000);
    unsigned char *const place = data.data();
    {
        genie::pending pending = genie::request(server, INVERT).out(std::move(data)).timeout(2ms).submit();
        genie::message message;
        CHECK(server.next(message) && message->what == IO_REQUEST);
        THROWS(ETIMEDOUT, pending.sync());
        THROWS(EFAULT, pending.take_buffer(0));
        CHECK(message.output(0).from(0)[0] == 0); // still there
        message.reply();
        std::vector<genie::buffer> others; // one of which gets the address
        for (int i = 0; i < 100 && (others.empty() || others.back().data() != place); i++) others.emplace_back(io, 5000);
        genie::pending over(std::move(pending)), none(std::move(over)); // and go
        data = std::move(others.back());
        CHECK(data.data() == place);
    }
    fill(data, 1);
    CHECK(has(data, 1, data.size()) && io_free(data.data()) == 0); // ours until now
}

// What a server keeps is its own: it outlives the request, the server and the client's buffer, and goes on in requests.
static void its_own(const genie::interface &io) {
    genie::buffer kept, none;
    {
        genie::registered server("", services);
        genie::buffer data(io, 300000);
        fill(data, 1);
        genie::pending pending = genie::request(server, INVERT).out(data).out(data.data(), 0).submit();
        genie::message message;
        CHECK(server.next(message) && message->what == IO_REQUEST);
        kept = message.keep(0), none = message.keep(1);
        THROWS(EINVAL, message.keep(0));
        THROWS(EINVAL, message.keep(2));
        THROWS(EINVAL, message.output(0));
        message.reply();
        pending.sync();
        fill(data, 2);
    }
    CHECK(kept.size() == 300000 && has(kept, 1, kept.size()) && none.size() == 0 && !none.data());
    fill(kept, 3);
    genie::registered next("", services);
    const unsigned char *const place = kept.data();
    {
        genie::pending pending = genie::request(next, INVERT).out(kept).submit();
        kept = genie::buffer(io, 10); // the request keeps the memory
        genie::message message;
        CHECK(next.next(message) && message->what == IO_REQUEST);
        CHECK(message.output(0).size() == 300000 && message.output(0).piece(0, 1)[0] == byte(0, 3));
        message.reply();
        pending.sync();
    }
    CHECK(io_free(const_cast<unsigned char *>(place)) == -1 && errno == EFAULT); // freed with the request
}

static void totals(const genie::interface &io, const genie::peer &server) {
    genie::buffer data(io, 70001), room(io, 70001);
    genie::reply reply = genie::request(server, INVERT).out(data).scheme(scheme::copy).in(room).scheme(scheme::copy).send();
    CHECK(reply.receipt().copied == reply.receipt(0).copied + reply.receipt(1).copied && reply.receipt().copied >= 2 * data.size());
}

int main() {
    genie::interface io;
    genie::registered server("", services);
    std::thread thread([&server] { serve(server); });
    come_back(io, server);
    totals(io, server);
    server.close();
    thread.join();
    is_nobody_elses(io);
    kept_by_the_server(io);
    its_own(io);
}
