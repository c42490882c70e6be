// Checks that stop a test in C++ and say where, and bytes to be recognized.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <genie.hpp>

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                                                        \
    do {                                                                                                                        \
        if (!(condition)) {                                                                                                     \
            std::fprintf(stderr, "%s:%d: %s (last: %s)\n", __FILE__, __LINE__, #condition, io_error_text());                    \
            std::exit(1);                                                                                                       \
        }                                                                                                                       \
    } while (0)

// The expression throws genie::error with this errno, and says why.
template <class Act> void throws(int line, int code, Act act) {
    try {
        act();
    } catch (const genie::error &error) {
        if (error.code().value() == code && *error.what() && error.code() == static_cast<std::errc>(code))
            return;
        std::fprintf(stderr, "%s:%d: threw %d: %s\n", __FILE__, line, error.code().value(), error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "%s:%d: threw nothing\n", __FILE__, line);
    std::exit(1);
}
#define THROWS(code, ...) throws(__LINE__, code, [&] { (void)(__VA_ARGS__); })

inline unsigned char byte(std::size_t index, unsigned seed) { return static_cast<unsigned char>(index * 7 + index / 251 + seed); }
template <class Bytes> void fill(Bytes &bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); i++) bytes[i] = byte(i, seed);
}
template <class Bytes> bool has(const Bytes &bytes, unsigned seed, std::size_t size) {
    for (std::size_t i = 0; i < size; i++)
        if (bytes[i] != byte(i, seed)) return false;
    return true;
}

// Says that something was not tested, as all tests of the project do.
inline void skip(const char *what, const char *why) {
    const char *log = std::getenv("GENIE_SKIP_LOG");
    std::fprintf(stderr, "SKIP %s: %s\n", what, why);
    if (std::FILE *file = log && *log ? std::fopen(log, "a") : nullptr) std::fprintf(file, "SKIP %s: %s\n", what, why), std::fclose(file);
}

// Under valgrind, which makes programs many times slower, tests use short data only.
inline bool is_brief() { return std::getenv("GENIE_TEST_BRIEF") != nullptr; }

#endif
