// genie.hpp: owners, exceptions, data both ways by all schemes, to a server in a thread and to one in another process.
#include "check.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <type_traits>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using genie::scheme;

enum : std::uint32_t { STORE, FETCH, HOLD, RELEASE, FAIL, GREET, FORGET, THROW, UNTOLD };
static const std::vector<io_service_mapping> services = {
    {"store", IO_READ, 0, 0}, {"fetch", IO_WRITE, 0, 0}, {"hold", IO_READ | IO_WRITE, 0, 0}, {"release", 0, 0, 0},
    {"fail", IO_READ, 0, 0},  {"greet", 0, 0, 0},        {"forget", IO_READ, 0, 0},          {"throw", IO_READ, 0, 0},
    {"untold", IO_WRITE, 0, 0},
};

// Keeps what it is sent, until the server is closed.
static void serve(const genie::registered &server) {
    std::string kept;
    std::vector<genie::message> held;
    genie::message message;
    while (server.next(message)) try {
        if (message->what == IO_ABORT) {
            for (std::size_t i = held.size(); i-- > 0;)
                if (held[i]->request == message->request) {
                    held[i].fail(ECANCELED);
                    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
                }
        } else if (message->what == IO_REQUEST) {
            switch (message->service) {
            case STORE: kept = message.read(0); break;
            case FETCH: message.fill(0, kept.data(), kept.size()); break;
            case HOLD:
                if (const std::size_t size = message.argument().size()) message.fill(0, message.argument().data(), size), message.progress(0, size);
                held.push_back(std::move(message));
                continue;
            case RELEASE:
                for (genie::message &each : held) each.reply();
                held.clear();
                break;
            case FAIL: message.fail(ENOSPC, "the disk is full"); continue;
            case GREET: message.reply("hello " + std::string(message.argument())); continue;
            case FORGET: continue; // the next message takes its place
            case THROW: message.buffer(1); break;
            case UNTOLD: message.ready(0); break; // and says not how much of it came
            }
            message.reply();
        }
    } catch (const genie::error &error) {
        CHECK(error.code().value() == EINVAL || error.code().value() == EMSGSIZE);
        if (error.code().value() == EINVAL) message.fail(EPROTO, error.what());
    }
}

static void natives(const genie::interface &io, const genie::peer &server) {
    const std::array schemes{scheme::standard, scheme::copy, scheme::emulated_copy, scheme::share, scheme::emulated_share};
    unsigned seed = 0;
    for (std::size_t size : {std::size_t(1), std::size_t(5000), std::size_t(70001), std::size_t(3) << (is_brief() ? 10 : 20)})
        for (scheme by : schemes)
            for (bool waits : {false, true}) {
                genie::buffer data(io, size);
                CHECK(data.size() == size && std::size_t(data.end() - data.begin()) == size && data[size - 1] == 0);
                fill(data, ++seed);
                genie::request store(server, STORE);
                store.out(data).scheme(by);
                if (waits) {
                    CHECK(store.held().send().actual(0) == size);
                } else {
                    genie::pending pending = store.submit();
                    if (by <= scheme::emulated_copy) fill(data, 0xee); // the server gets what was there
                    CHECK(pending.wait(genie::forever));
                    genie::reply reply = pending.sync();
                    CHECK(reply.actual(0) == size && reply.argument().empty());
                    CHECK(reply.receipt(0).asked == (by == scheme::standard ? IO_EMULATED_COPY : io_scheme_t(by)));
                }
                fill(data, 0xdd);
                CHECK(genie::request(server, "fetch").in(data).scheme(by).send().actual(0) == size);
                CHECK(has(data, seed, size));
                std::vector<unsigned char> ours(size);
                genie::request(server, FETCH).in(ours.data(), ours.size()).scheme(by).send();
                CHECK(has(ours, seed, size));
            }
    CHECK(genie::request(server, STORE).out("text", 4).send().actual(0) == 4);
    std::string text(10, 'x');
    CHECK(genie::request(server, FETCH).in(text.data(), text.size()).send().actual(0) == 4 && text == "textxxxxxx");
}

// Migrant buffers go there and come back, and the one that comes can go again.
static void migrants(const genie::interface &io, const genie::peer &server) {
    const std::array schemes{scheme::move, scheme::emulated_move, scheme::weak_move, scheme::emulated_weak_move};
    for (std::size_t size : {std::size_t(100), std::size_t(1) << (is_brief() ? 15 : 20)})
        for (scheme by : schemes) {
            bool weak = by >= scheme::weak_move;
            genie::migrant data(io, size, weak);
            fill(data, unsigned(by));
            for (int round = 0; round < 3; round++) {
                void *place = data.data();
                genie::reply stored = genie::request(server, STORE).out(std::move(data)).scheme(by).send();
                CHECK(stored.actual(0) == size && !data.data() && data.size() == 0); // NOLINT: moved from, and empty
                CHECK(io_free(place) == -1 && errno == EFAULT);
                THROWS(EFAULT, stored.take(0));
                genie::reply fetched = genie::request(server, FETCH).in_migrant(size, weak).scheme(by).send();
                data = fetched.take(0);
                CHECK(data.size() >= size && fetched.actual(0) == size && has(data, unsigned(by), size));
                THROWS(EFAULT, fetched.take(0));
            }
            // A failure gives it back, also to be sent again.
            genie::request request(server, FAIL);
            request.out(std::move(data)).scheme(by);
            THROWS(ENOSPC, request.send());
            THROWS(ENOSPC, request.send());
            data = request.take(0);
            CHECK(has(data, unsigned(by), size));
            genie::pending pending = genie::request(server, FAIL).out(std::move(data)).scheme(by).submit();
            THROWS(EBUSY, pending.take(0));
            THROWS(ENOSPC, pending.sync());
            data = pending.take(0);
            CHECK(has(data, unsigned(by), size));
            pending = genie::request(server, HOLD).out(std::move(data)).scheme(by).submit();
            CHECK(!pending.abort());
            data = pending.take(0);
            CHECK(has(data, unsigned(by), size));
            // What has been passed is not there to be taken, nor freed once more.
            pending = genie::request(server, STORE).out(std::move(data)).scheme(by).submit();
            THROWS(EFAULT, pending.sync().take(0));
            pending = genie::request(server, STORE).out(genie::migrant(io, size, weak)).scheme(by).submit();
            CHECK(pending.wait(genie::forever));
            THROWS(EFAULT, pending.abort()->take(0));
            data = genie::migrant(io, size, weak);
            // What nobody takes is freed.
            void *place = data.data();
            THROWS(ENOSPC, genie::request(server, FAIL).out(std::move(data)).scheme(by).send());
            CHECK(io_free(place) == -1 && errno == EFAULT);
            genie::request(server, FETCH).in_migrant(size, weak).scheme(by).send();
        }
    genie::buffer native(io, 10);
    THROWS(EINVAL, genie::request(server, STORE).out(native).scheme(scheme::move));
    THROWS(EINVAL, genie::request(server, FETCH).in_migrant(10).scheme(scheme::copy));
    THROWS(EINVAL, genie::request(server, FETCH).held());
}

static void receipts(const genie::interface &io, const genie::peer &server) {
    if (is_brief()) return; // what is short is copied
    genie::buffer data(io, 8 << 20);
    fill(data, 1);
    genie::reply sent = genie::request(server, STORE).out(data).scheme(scheme::emulated_copy).held().send();
    CHECK(sent.receipt(0).copied == 0 && sent.receipt(0).referenced > 0 && sent.receipt(0).write_protected == 0 && !sent.receipt(0).reason);
    sent = genie::request(server, STORE).out(data).scheme(scheme::copy).held().send();
    CHECK(sent.receipt(0).copied == data.size());
    genie::buffer back(io, data.size());
    genie::reply came = genie::request(server, FETCH).in(back).send();
    CHECK(came.receipt(0).copied == 0 && came.receipt(0).swapped > 0 && has(back, 1, back.size()));
    try {
        came.receipt(1);
        CHECK(!"a receipt of a buffer that there is not");
    } catch (const std::out_of_range &) {
    }
}

static void pendings(const genie::interface &io, const genie::peer &server) {
    genie::buffer data(io, is_brief() ? 1 << 15 : 1 << 20);
    fill(data, 5);
    genie::request(server, STORE).out(data).send();
    // Several at once, which are moved about while they are pending.
    std::vector<genie::pending> all;
    std::vector<genie::buffer> rooms;
    for (int i = 0; i < 10; i++) {
        rooms.emplace_back(io, data.size());
        all.push_back(genie::request(server, FETCH).in(rooms.back()).room(4).argument("some").submit());
    }
    for (std::size_t i = all.size(); i-- > 0;) CHECK(all[i].sync().actual(0) == data.size() && has(rooms[i], 5, data.size()));
    THROWS(EBADF, all[0].sync());
    THROWS(EBADF, all[0].wait(0ns));
    THROWS(EBADF, all[0].abort());
    // One that is held: not over, dropped, aborted, timed out. Its buffer goes first, and is freed after it.
    void *place;
    {
        auto room = std::make_unique<genie::buffer>(io, 1 << 20);
        place = room->data();
        genie::pending held = genie::request(server, HOLD).in(*room).submit();
        CHECK(!held.wait(0ns) && !held.wait(1ms));
        room.reset();
        CHECK(io_free(place) == -1 && errno == EBUSY);
        std::optional<genie::reply> none = held.abort();
        CHECK(!none);
    }
    CHECK(io_free(place) == -1 && errno == EFAULT); // freed with the request
    {
        genie::pending dropped = genie::request(server, HOLD).in(data).submit();
        genie::buffer own(io, 4096);
        place = own.data();
        dropped = genie::request(server, HOLD).out(own).submit(); // drops the first one
    }
    CHECK(io_free(place) == -1 && errno == EFAULT); // freed, and no more in use
    CHECK(has(data, 5, data.size()));
    THROWS(ETIMEDOUT, genie::request(server, HOLD).in(data).timeout(2ms).send());
    CHECK(has(data, 5, data.size()));
    // An exception on the way drops what is pending.
    try {
        genie::pending dropped = genie::request(server, HOLD).in(data).submit();
        throw std::runtime_error("something else");
    } catch (const std::runtime_error &) {
    }
    // Given up when a part is final: it succeeds with that, if the server lets it go in time, from which a loaded machine may keep it.
    for (std::optional<genie::reply> part; !part;) {
        genie::pending some = genie::request(server, HOLD).in(data).argument("aaa").submit();
        CHECK(some.wait_for_progress(0, 0, genie::forever) == 3 && has(data, 5, data.size()));
        part = some.abort();
        CHECK(!part || (part->actual(0) == 3 && std::memcmp(data.data(), "aaa", 3) == 0 && data[3] != 'a'));
    }
    fill(data, 5);
    genie::request(server, RELEASE).send();
    // Aborted too late: the reply is there, with its data.
    fill(data, 0);
    genie::pending late = genie::request(server, FETCH).in(data).submit();
    CHECK(late.wait(genie::forever));
    std::optional<genie::reply> reply = late.abort();
    CHECK(reply && reply->actual(0) == data.size() && has(data, 5, data.size()));
    server.flush();
}

static void errors(const genie::interface &io, const genie::peer &server) {
    try {
        genie::request(server, FAIL).send();
        CHECK(!"a failure without exception");
    } catch (const std::system_error &error) {
        CHECK(error.code() == std::errc::no_space_on_device && std::strstr(error.what(), "the disk is full"));
        const auto copy = dynamic_cast<const genie::error &>(error);
        CHECK(std::strstr(copy.what(), "the disk is full"));
    }
    CHECK(genie::request(server, GREET).argument("reader").room(20).send().argument() == "hello reader");
    THROWS(EMSGSIZE, genie::request(server, GREET).argument("reader").room(4).send());
    THROWS(EREMOTEIO, genie::request(server, FORGET).send());
    THROWS(EPROTO, genie::request(server, THROW).out("text", 4).send());
    char untouched[] = "text";
    THROWS(EPROTO, genie::request(server, UNTOLD).in(untouched, 4).send());
    CHECK(std::string_view(untouched) == "text");
    THROWS(ENOENT, genie::request(server, "nothing of the sort"));
    THROWS(EINVAL, genie::request(server, 99).send());
    THROWS(EFAULT, genie::request(server, STORE).out(nullptr, 4).send());
    THROWS(EINVAL, genie::buffer(io, 0));
    THROWS(ENOENT, genie::server(io, "nobody"));
    genie::migrant data(io, 100);
    void *place = data.data();
    THROWS(EINVAL, genie::request(server, 99).out(std::move(data)).send());
    CHECK(io_free(place) == -1 && errno == EFAULT);
}

// What was moved from owns nothing, and harms nothing.
static void moves(const genie::interface &io, const genie::peer &server) {
    static_assert(!std::is_copy_constructible_v<genie::interface> && std::is_nothrow_move_constructible_v<genie::interface>);
    static_assert(!std::is_copy_constructible_v<genie::buffer> && std::is_nothrow_move_constructible_v<genie::buffer>);
    static_assert(!std::is_copy_constructible_v<genie::migrant> && std::is_nothrow_move_constructible_v<genie::migrant>);
    static_assert(!std::is_copy_constructible_v<genie::server> && std::is_nothrow_move_constructible_v<genie::server>);
    static_assert(!std::is_copy_constructible_v<genie::registered> && std::is_nothrow_move_assignable_v<genie::registered>);
    static_assert(!std::is_copy_constructible_v<genie::request> && std::is_nothrow_move_constructible_v<genie::request>);
    static_assert(!std::is_copy_constructible_v<genie::pending> && std::is_nothrow_move_assignable_v<genie::pending>);
    static_assert(!std::is_copy_constructible_v<genie::reply> && std::is_nothrow_move_constructible_v<genie::reply>);
    static_assert(!std::is_copy_constructible_v<genie::message> && std::is_nothrow_move_constructible_v<genie::message>);
    static_assert(std::is_nothrow_copy_constructible_v<genie::error>);
    // NOLINTBEGIN: all of this uses objects after they were moved from.
    io_options options{};
    options.size = sizeof options;
    genie::interface first(options), second(std::move(first));
    CHECK(second.number() != 0);
    THROWS(EBADF, first.number());
    THROWS(EBADF, genie::buffer(first, 10));
    const io_interface_t number = second.number();
    second = genie::interface(options);
    CHECK(io_close(number) == -1 && errno == EBADF && second.number() != number);
    first = std::move(second);
    genie::buffer one(first, 10), two(std::move(one));
    CHECK(!one.data() && one.size() == 0 && one.begin() == one.end() && two.size() == 10);
    void *place = two.data();
    two = genie::buffer(io, 20);
    CHECK(two.size() == 20 && io_free(place) == -1 && errno == EFAULT);
    two = std::move(two);
    THROWS(EFAULT, genie::request(server, STORE).out(genie::migrant()).send());
    genie::migrant some(io, 30), other(std::move(some));
    CHECK(!some.data() && other.size() == 30);
    other = std::move(some);
    CHECK(!other.data());
    genie::request request(server, GREET), moved(std::move(request));
    THROWS(EBADF, request.send());
    THROWS(EBADF, request.argument("a"));
    genie::pending pending = moved.room(10).submit(), later(std::move(pending));
    THROWS(EBADF, moved.submit());
    THROWS(EBADF, pending.sync());
    genie::reply reply = later.sync(), kept(std::move(reply));
    CHECK(kept.argument() == "hello ");
    THROWS(EBADF, reply.argument());
    THROWS(EBADF, later.take(0));
    genie::registered server_one("", services), server_two(std::move(server_one));
    THROWS(EBADF, server_one.number());
    genie::pending waiting = genie::request(server_two, HOLD).out("a", 1).submit();
    genie::message message, elsewhere;
    CHECK(server_two.next(message) && message->what == IO_REQUEST && message->service == HOLD);
    elsewhere = std::move(message);
    THROWS(EBADF, message.reply());
    THROWS(EINVAL, message.buffer(0));
    CHECK(elsewhere.read(0) == "a");
    elsewhere.reply();
    THROWS(EINVAL, elsewhere.buffer(0));
    THROWS(EBADF, elsewhere.reply());
    waiting.sync();
    waiting = genie::request(server_two, FETCH).in(two).submit();
    server_two = genie::registered("", services); // ends the first one, with a request of its own
    try {
        waiting.sync();
        CHECK(!"a reply of a server that has ended");
    } catch (const genie::error &) {
    }
    CHECK(server_two.next(message, false) && message->what == IO_NO_MESSAGE);
    server_two.close();
    CHECK(!server_two.next(message));
    // NOLINTEND
}

static void all(const genie::interface &io, const genie::peer &server) {
    natives(io, server);
    migrants(io, server);
    receipts(io, server);
    pendings(io, server);
    errors(io, server);
    moves(io, server);
}

// As docs/c.md shows it.
bool stores_in_time(const genie::peer &server, const genie::buffer &data) try {
    genie::request(server, "hold").out(data).timeout(20ms).send();
    return true;
} catch (const genie::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() != std::errc::timed_out; // as any other std::system_error
}

int main() {
    char directory[] = "/tmp/genie-cpp-XXXXXX";
    CHECK(mkdtemp(directory));
    setenv("GENIE_RUNTIME_DIR", directory, 1);
    const pid_t child = fork(); // before there are threads
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // when a check has failed
        serve(genie::registered("keeper", services));
        return 1;
    }
    genie::interface io;
    {
        genie::registered server("", services);
        std::thread thread([&server] { serve(server); });
        all(io, server);
        server.close();
        thread.join();
        THROWS(EBADF, genie::request(server, STORE).send());
    }
    genie::server server(io, "keeper", 20s);
    all(io, server);
    CHECK(!stores_in_time(server, genie::buffer(io, 100)));
    {
        std::vector<genie::pending> pending;
        {
            genie::batch batch;
            THROWS(EBUSY, genie::batch());
            for (int i = 0; i < 40; i++)
                pending.push_back(genie::request(server, RELEASE).submit());
        }
        for (genie::pending &request : pending)
            request.sync();
        genie::batch again;
    }

    // In a child, objects of the parent's are destroyed and harm nothing.
    {
        genie::buffer data(io, 1 << 20);
        genie::migrant given(io, 1 << 20);
        fill(data, 3);
        genie::pending pending = genie::request(server, HOLD).in(data).out(std::move(given)).submit();
        const pid_t forked = fork();
        if (forked == 0) {
            THROWS(ECHILD, genie::request(server, STORE).send());
            genie::pending(std::move(pending));
            genie::buffer(std::move(data));
            // Does not exit: valgrind would miss what the stacks of the parent's threads have.
            execlp("true", "true", nullptr);
            _exit(1);
        }
        int status = 0;
        CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        genie::request(server, RELEASE).send();
        CHECK(pending.sync().actual(0) == 0 && has(data, 3, data.size()));
    }

    // The server is killed with a request in its hands; a dropped one ends, too.
    genie::migrant data(io, 1 << 20);
    fill(data, 4);
    genie::pending pending = genie::request(server, HOLD).out(std::move(data)).submit();
    genie::pending dropped = genie::request(server, HOLD).in_migrant(100).submit();
    CHECK(!server.is_gone());
    kill(child, SIGKILL);
    THROWS(ECONNRESET, pending.sync());
    data = pending.take(0);
    CHECK(has(data, 4, data.size()));
    THROWS(EPIPE, genie::request(server, STORE).send());
    CHECK(server.is_gone());
    CHECK(waitpid(child, nullptr, 0) == child);
    std::filesystem::remove_all(directory);
}
