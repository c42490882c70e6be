/* Thumbnails: a server that halves images, in place on both sides, and a client that keeps four of them in flight.
 *
 *     thumbnails serve NAME                       serves under NAME until it is killed
 *     thumbnails ask NAME COUNT WIDTH HEIGHT      has COUNT images of WIDTH x HEIGHT pixels halved
 */
#include <genie.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>

using namespace std::chrono_literals;

constexpr std::size_t pixel = 4, in_flight = 4; // red, green, blue and alpha; images
constexpr std::size_t longest_side = 1 << 14;
struct shape { std::uint32_t width, height; }; // the argument of a request

// One row of the half-size image, of two rows of the image: each pixel is the average of four.
static void halve(const unsigned char *above, const unsigned char *below, unsigned char *to, std::size_t pixels) {
    for (std::size_t x = 0; x < pixels; x++)
        for (std::size_t c = 0; c < pixel; c++) {
            const std::size_t left = 2 * x * pixel + c, right = left + pixel;
            to[x * pixel + c] = static_cast<unsigned char>((above[left] + above[right] + below[left] + below[right] + 2) / 4);
        }
}

static void answer(genie::message &message) {
    shape image{};
    if (message.argument().size() != sizeof image) return message.fail(EINVAL, "the argument has to be the image's width and height");
    std::memcpy(&image, message.argument().data(), sizeof image);
    if (image.width > longest_side || image.height > longest_side) return message.fail(EINVAL, "the image is too large");
    genie::segments<const unsigned char> pixels = message.output(0);
    genie::segments<unsigned char> half = message.ready(1);
    const std::size_t row = image.width * pixel, width = image.width / 2, height = image.height / 2;
    for (std::size_t y = 0; y < height; y++) { // a buffer that is too short for this throws
        const auto above = pixels.piece(2 * y * row, row), below = pixels.piece((2 * y + 1) * row, row);
        halve(above.data(), below.data(), half.piece(y * width * pixel, width * pixel).data(), width);
    }
    message.actual(1, width * height * pixel);
    message.reply();
}

static void serve(const char *name) {
    // Each client is lent as much memory at first as its inputs in flight take, and one more: four times 16 MiB, and 16 MiB.
    genie::registered server(name, {{"halve", IO_READ | IO_WRITE, 0, 0}}, 5 << 24);
    genie::message message;
    while (server.next(message)) try {
        if (message->what == IO_REQUEST) answer(message);
    } catch (const genie::error &error) {
        std::fprintf(stderr, "%s\n", error.what()); // one client's fault: its request fails, and the server goes on
    }
}

static unsigned char color(std::size_t index, std::size_t image) { return static_cast<unsigned char>(index * 37 + index / 4093 + image); }

// Whether this is the image halved that the client has painted.
static bool is_half(const genie::buffer &half, std::size_t image, shape size) {
    const std::size_t row = size.width * pixel, width = size.width / 2;
    std::vector<unsigned char> rows(2 * row), expected(width * pixel);
    for (std::size_t y = 0; y < size.height / 2; y++) {
        for (std::size_t i = 0; i < 2 * row; i++) rows[i] = color(2 * y * row + i, image);
        halve(rows.data(), rows.data() + row, expected.data(), width);
        if (std::memcmp(half.data() + y * width * pixel, expected.data(), width * pixel) != 0) return false;
    }
    return true;
}

static bool ask(const char *name, std::size_t count, shape size) {
    genie::interface io;
    genie::server server(io, name, 2s);
    const std::uint32_t halve = server.service("halve");
    const std::string_view argument(reinterpret_cast<const char *>(&size), sizeof size);
    const std::size_t bytes = size.width * pixel * size.height, half_bytes = (size.width / 2) * pixel * (size.height / 2);
    std::deque<genie::pending> flight;
    for (std::size_t i = 0; i < in_flight; i++) { // images that are halved again and again
        genie::buffer image(io, bytes), half(io, half_bytes);
        for (std::size_t at = 0; at < bytes; at++) image[at] = color(at, i);
        flight.push_back(genie::request(server, halve).argument(argument).out(std::move(image)).in(std::move(half)).submit());
    }
    std::size_t copied = 0;
    const auto begun = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < count; i++) {
        genie::reply reply = flight.front().sync();
        flight.pop_front();
        copied += reply.receipt().copied;
        genie::buffer image = reply.take_buffer(0), half = reply.take_buffer(1);
        flight.push_back(genie::request(server, halve).argument(argument).out(std::move(image)).in(std::move(half)).submit());
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
    bool is_right = true;
    for (std::size_t i = 0; i < in_flight; i++)
        is_right &= is_half(flight[i].sync().take_buffer(1), (count + i) % in_flight, size);
    std::printf("%zu images of %zu bytes halved, %s; %zu bytes copied; %.1f images a second\n", count, bytes, is_right ? "all right" : "WRONG",
        copied, static_cast<double>(count) / time.count());
    return is_right;
}

int main(int argc, char **argv) try {
    const std::string_view what = argc > 2 ? argv[1] : "";
    if (what == "serve" && argc == 3) return serve(argv[2]), 0;
    if (what == "ask" && argc == 6) {
        const auto number = [&](int at) { return std::strtoul(argv[at], nullptr, 10); };
        return ask(argv[2], number(3), {static_cast<std::uint32_t>(number(4)), static_cast<std::uint32_t>(number(5))}) ? 0 : 1;
    }
    std::fprintf(stderr, "usage: %s serve NAME, or %s ask NAME COUNT WIDTH HEIGHT\n", argv[0], argv[0]);
    return 2;
} catch (const genie::error &error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
}
