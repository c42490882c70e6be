/* The first program in C++: a server that inverts bits, where the data is, and its client.
 *
 *     bits serve     serves until it is killed
 *     bits           has 8 MiB inverted
 */
#include <genie.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>

using namespace std::chrono_literals;

static void serve() {
    genie::registered server("bits", {{"invert", IO_READ | IO_WRITE, 0, 0}}); // reads outputs, fills inputs
    genie::message message;
    while (server.next(message)) { // waits for it
        if (message->what != IO_REQUEST) continue;
        try {
            const auto invert = [](const unsigned char *from, unsigned char *to, std::size_t size) {
                std::transform(from, from + size, to, std::bit_not<unsigned char>());
            };
            const std::size_t done = genie::together(message.output(0), message.ready(1), invert);
            message.actual(1, done); // so many bytes pass; without this, reply throws
            message.reply();
        } catch (const genie::error &error) {
            std::fprintf(stderr, "%s\n", error.what()); // the request is dropped, and fails with EREMOTEIO
        }
    }
}

static bool ask() {
    genie::interface io;
    genie::server server(io, "bits", 2s); // waits two seconds for a server that is just starting
    genie::buffer text(io, 8 << 20), inverted(io, text.size());
    std::fill(text.begin(), text.end(), 'a');
    genie::reply reply = genie::request(server, "invert").out(text).held().in(inverted).send();
    std::printf("%zu bytes came back; %zu were copied\n", reply.actual(1), reply.receipt().copied);
    return std::count(inverted.begin(), inverted.end(), static_cast<unsigned char>(~'a')) == 8 << 20;
}

int main(int argc, char **argv) try {
    if (argc == 2 && argv[1] == std::string_view("serve")) return serve(), 0;
    if (argc == 1) return ask() ? 0 : 1;
    std::fprintf(stderr, "usage: %s [serve]\n", argv[0]);
    return 2;
} catch (const genie::error &error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
}
