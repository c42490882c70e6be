// genie.hpp: options of interfaces and of connecting, servers that come again, replies in anticipation, and one loop for both sides.
#include "check.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using genie::nanoseconds;

enum : std::uint32_t { SUM, HOLD, LOOK };
static const std::vector<io_service_mapping> services = {{"sum", IO_READ, 0, 0}, {"hold", IO_READ, 0, 0}, {"look", IO_READ, 0, 0}};

// A sentence that is in no program as it is.
static std::string canary() {
    std::string text = "uif!dbobsz!jt!jo!uif!dmjfou(t!nfnpsz!bmpof";
    for (char &each : text) each--;
    return text;
}

// Whether the canary is in memory that this process shares with another one. It is read by way of the kernel, since what a mapping has
// beyond an object's end cannot be loaded.
static bool sees_canary() {
    const std::string wanted = canary();
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    CHECK(memory >= 0);
    std::vector<char> bytes(1 << 20);
    bool is_seen = false;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; !is_seen && std::getline(maps, line);) {
        unsigned long at = 0, end = 0;
        char rights[5] = "";
        CHECK(std::sscanf(line.c_str(), "%lx-%lx %4s", &at, &end, rights) == 3);
        if (rights[0] != 'r' || rights[3] != 's') continue;
        for (ssize_t size; at < end && !is_seen; at += bytes.size() / 2) { // each byte twice, so that nothing is divided
            size = pread(memory, bytes.data(), std::min<std::size_t>(bytes.size(), end - at), static_cast<off_t>(at));
            if (size <= 0) break;
            is_seen = memmem(bytes.data(), static_cast<std::size_t>(size), wanted.data(), wanted.size());
        }
    }
    close(memory);
    return is_seen;
}

static std::uint8_t sum(genie::segments<const unsigned char> bytes) {
    std::uint8_t total = 0;
    for (genie::span<const unsigned char> each : bytes)
        for (unsigned char byte : each) total = static_cast<std::uint8_t>(total + byte);
    return total;
}

// A server of its own process, which is killed with this object.
class keeper {
    pid_t pid_;
  public:
    keeper() : pid_(fork()) {
        if (pid_ != 0) return;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        genie::registered server("keeper", services);
        std::vector<genie::message> held;
        for (genie::message message; server.next(message);) {
            if (message->what != IO_REQUEST) held.clear(); // an abort
            else if (message->service == HOLD) held.push_back(std::move(message));
            else if (message->service == LOOK) message.reply(sees_canary() ? "seen" : "");
            else message.reply(std::string(1, static_cast<char>(sum(message.output(0)))));
        }
        _exit(0);
    }
    keeper(const keeper &) = delete;
    keeper &operator=(const keeper &) = delete;
    ~keeper() {
        kill(pid_, SIGKILL);
        CHECK(waitpid(pid_, nullptr, 0) == pid_);
    }
    // It has stopped when this returns: the signal alone leaves it time to answer.
    void stop() const { CHECK(kill(pid_, SIGSTOP) == 0 && waitpid(pid_, nullptr, WUNTRACED) == pid_); }
    void go_on() const { CHECK(kill(pid_, SIGCONT) == 0); }
};

static bool sums(const genie::peer &server, const genie::buffer &data) {
    std::uint8_t expected = 0;
    for (unsigned char each : data) expected = static_cast<std::uint8_t>(expected + each);
    genie::reply reply = genie::request(server, "sum").out(data).held().room(1).send();
    return reply.argument() == std::string(1, static_cast<char>(expected));
}

static genie::connect_options waiting(int flags = 0) {
    genie::connect_options options;
    options.wait = options.timeout = nanoseconds(60s).count(), options.flags = static_cast<std::uint32_t>(flags);
    return options;
}

// An untrusted server is shown nothing but the data; another one is shown what lies beside it.
static void untrusted(const genie::interface &io) {
    genie::buffer data(io, 4 << 20);
    const std::size_t half = data.size() / 2;
    const std::string secret = canary();
    std::memcpy(data.data() + half, secret.data(), secret.size());
    for (int flags : {IO_UNTRUSTED, 0}) {
        keeper keeper;
        genie::server server(io, "keeper", waiting(flags));
        CHECK(genie::request(server, LOOK).out(data.data(), half).held().room(4).send().argument() == (flags ? "" : "seen"));
    }
    genie::connect_options wrong;
    wrong.flags = 0x80;
    THROWS(EINVAL, genie::server(io, "keeper", wrong));
}

static void connect_timeout(const genie::interface &io) {
    keeper keeper;
    genie::server server(io, "keeper", waiting());
    keeper.stop();
    genie::connect_options brief;
    brief.timeout = nanoseconds(20ms).count();
    THROWS(EHOSTDOWN, genie::server(io, "keeper", brief));
    keeper.go_on();
    CHECK(!server.is_gone());
}

// One object for a server that goes and comes again. A request that may have been done fails; one that was never sent does not.
static void reconnecting(const genie::interface &io) {
    genie::buffer data(io, 5000);
    fill(data, 3);
    std::optional<keeper> kept(std::in_place);
    genie::server server(io, "keeper", waiting(IO_RECONNECTING)), plain(io, "keeper", waiting());
    CHECK(sums(server, data));
    genie::pending pending = genie::request(server, HOLD).out(data).submit();
    kept.reset();
    THROWS(ECONNRESET, pending.sync());
    kept.emplace();
    genie::request request(server, SUM);
    genie::reply reply = request.out(genie::buffer(io, 5000)).room(1).send(); // by value, and not lost on the way
    CHECK(reply.take_buffer(0).size() == 5000 && sums(server, data));
    while (!plain.is_gone()) std::this_thread::yield();
    THROWS(EPIPE, genie::request(plain, SUM).out(data).send());
}

// What is done in anticipation of success: the client goes on, and the server has what was there.
static void anticipated(const genie::interface &io) {
    genie::registered server("", services);
    genie::buffer data(io, 5000);
    fill(data, 7);
    genie::pending pending = genie::request(server, SUM).out(data).submit();
    genie::message message;
    CHECK(server.next(message) && message->what == IO_REQUEST);
    message.anticipate();
    CHECK(pending.sync().actual(0) == data.size());
    const std::uint8_t before = sum(message.output(0));
    fill(data, 8);
    CHECK(sum(message.output(0)) == before);
    THROWS(EINVAL, message.anticipate()); // once
    message.reply();
    server.flush();
}

// One loop serves, and takes replies to requests of its own.
static void watching() {
    genie::options options;
    genie::interface io(options);
    keeper keeper;
    genie::server other(io, "keeper", waiting());
    genie::registered server("", services);
    server.watch(io);
    genie::buffer data(io, 100);
    genie::pending pending = genie::request(other, SUM).out(data).room(1).submit();
    for (genie::message message; !pending.wait(0ns);) CHECK(server.next(message) && message->what == IO_REPLIES);
    CHECK(pending.sync().argument().size() == 1);
}

// With the promise that the kernel stores into no buffer, output is protected where it would be copied; if the promise is broken, the
// kernel's store fails, and the server gets what was there.
static void kernel_never_stores() {
    keeper keeper;
    genie::options options;
    options.flags = IO_KERNEL_NEVER_STORES;
    const genie::interface promised(options), plain;
    std::size_t copied[2];
    for (int i : {0, 1}) {
        const genie::interface &io = i ? plain : promised;
        genie::server server(io, "keeper", waiting());
        genie::buffer data(io, 8 << 20);
        fill(data, 2);
        std::uint8_t expected = 0;
        for (unsigned char each : data) expected = static_cast<std::uint8_t>(expected + each);
        keeper.stop();
        genie::pending pending = genie::request(server, SUM).out(data).room(1).submit();
        const int zeros = open("/dev/zero", O_RDONLY);
        const ssize_t stored = read(zeros, data.data(), 4096);
        close(zeros);
        keeper.go_on();
        genie::reply reply = pending.sync();
        CHECK(reply.argument() == std::string(1, static_cast<char>(expected)));
        copied[i] = reply.receipt().copied;
        CHECK(stored == 4096 || (!i && stored == -1 && copied[i] == 0));
    }
    CHECK(copied[0] <= copied[1]);
    if (copied[0] == copied[1]) skip("kernel_never_stores makes a difference", copied[0] ? "nothing can be protected" : "all stores can be caught");
    options.flags = 0x80;
    THROWS(EINVAL, genie::interface(options));
}

// As docs/c.md shows it.
static bool careful() {
    genie::options options;
    options.flags = IO_KERNEL_NEVER_STORES; // no read, recv and the like ever stores into this program's buffers
    options.timeout = nanoseconds(30s).count(); // for each request
    genie::interface io(options);
    genie::connect_options how;
    how.wait = nanoseconds(20s).count(); // for a server that is not there yet
    how.timeout = nanoseconds(10s).count(); // for the answer of one that is there
    how.flags = IO_UNTRUSTED | IO_RECONNECTING;
    genie::server server(io, "keeper", how);
    genie::buffer data(io, 100);
    return genie::request(server, "sum").out(data).room(1).send().argument().size() == 1;
}

int main() {
    char directory[] = "/tmp/genie-options-XXXXXX";
    CHECK(mkdtemp(directory));
    setenv("GENIE_RUNTIME_DIR", directory, 1);
    genie::interface io;
    untrusted(io);
    connect_timeout(io);
    reconnecting(io);
    anticipated(io);
    watching();
    kernel_never_stores();
    {
        keeper keeper;
        CHECK(careful());
    }
    std::filesystem::remove_all(directory);
}
