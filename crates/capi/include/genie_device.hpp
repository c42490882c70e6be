/* Part of genie.hpp, which includes it: what servers use that have their data before anybody asks, or use it after they have replied. */
#ifndef GENIE_DEVICE_HPP
#define GENIE_DEVICE_HPP
#include <genie.hpp>

namespace genie {
/// How a pool is to be made: what is 0 is the default, but count and length have to be set.
struct pool_options : io_pool_options { pool_options() noexcept : io_pool_options() { size = sizeof(io_pool_options); } };
/// An overlay buffer out of its pool, or a part of one, which message::overlay takes. What is not passed goes back with this object.
class overlay {
    friend class pool; friend class message;
    detail::slot<io_overlay_t> name_; io_overlay_buffer told_{};
    explicit overlay(const io_overlay_buffer &told) noexcept : name_(told.overlay), told_(told) {}
  public:
    overlay(overlay &&) noexcept = default;
    overlay &operator=(overlay other) noexcept { return std::swap(name_, other.name_), std::swap(told_, other.told_), *this; }
    ~overlay() { if (name_.has()) io_overlay_return(name_.value); }
    std::size_t size() const { return name_.get(), told_.length; }
    std::size_t place() const { return name_.get(), told_.place; } ///< Where a frame begins in pool::memory.
    segments<unsigned char> bytes() const { return name_.get(), segments<unsigned char>(told_.segv, told_.segc); } ///< To be filled.
    overlay &part(std::size_t offset, std::size_t size) { ///< Narrows it to these bytes, which are all that is passed.
        return name_.get(), detail::check(io_overlay_part(&told_, offset, size)), *this;
    }
    overlay cut(std::size_t at) { ///< Leaves so many bytes here, and returns the rest.
        io_overlay_buffer rest{};
        return name_.get(), detail::check(io_overlay_cut(&told_, at, &rest)), overlay(rest);
    }
};
/// A private pool of overlay buffers. They outlive it.
class pool {
    detail::slot<io_pool_t> number_;
  public:
    pool(const interface &io, const io_pool_options &options) { detail::check(io_pool_allocate(io.number(), &options, &number_.value)); }
    pool(pool &&) noexcept = default;
    pool &operator=(pool other) noexcept { return std::swap(number_, other.number_), *this; }
    ~pool() { if (number_.has()) io_pool_free(number_.value); }
    std::optional<overlay> take() const { ///< Nothing if no buffer is free.
        io_overlay_buffer taken{};
        const int returned = io_pool_take(number_.get(), &taken);
        if (returned < 0 && errno == EAGAIN) return {};
        return detail::check(returned), overlay(taken);
    }
    int available() const { return detail::check(io_pool_available(number_.get())); } ///< How many buffers are free.
    span<unsigned char> memory() const { ///< All frames. Throws EINVAL if the pool is none of frames.
        io_segment all{};
        return detail::check(io_pool_memory(number_.get(), &all)), span<unsigned char>(static_cast<unsigned char *>(all.addr), all.length);
    }
};
/// Data in a device's own memory, which message::outboard takes. Its functions are called in any thread, and call none of the library's.
class outboard {
  public:
    virtual ~outboard() = default;
    virtual std::size_t size() const = 0;
    virtual bool may_fail() const { return true; } ///< If not, emulated copy transfers into the client's own buffer.
    /// Stores the bytes from offset on, as many as into has. What it throws fails the request.
    virtual void transfer(std::size_t offset, segments<unsigned char> into) = 0;
};
/// Bytes of a request's buffer that stay where they are, whatever becomes of the request. Its client gets the reply with the last pin's end.
template <class Byte> class pin {
    friend class message;
    detail::slot<io_pin_t> name_; io_pinned_bytes told_{};
    pin(io_server_t server, io_request_t request, std::size_t number, std::size_t offset, std::size_t size) {
        detail::check(io_pin(server, request, number, offset, size, &told_));
        name_ = told_.pin;
    }
  public:
    pin(pin &&) noexcept = default;
    pin &operator=(pin other) noexcept { return std::swap(name_, other.name_), std::swap(told_, other.told_), *this; }
    ~pin() { if (name_.has()) io_unpin(name_.value); }
    segments<Byte> bytes() const { return name_.get(), segments<Byte>(told_.segv, told_.segc); }
};

namespace detail {
inline int transfer(void *context, std::size_t offset, std::size_t count, const io_segment *first) noexcept try {
    return static_cast<outboard *>(context)->transfer(offset, {first, count}), 0;
} catch (const std::system_error &failed) { return failed.code().value() ? failed.code().value() : EIO; } catch (...) { return EIO; }
inline void free_outboard(void *context) noexcept { delete static_cast<outboard *>(context); }
} // namespace detail
inline void message::overlay(std::size_t number, genie::overlay &&buffer, std::size_t element) {
    std::vector<genie::overlay> chain;
    chain.push_back(std::move(buffer));
    try { overlay(number, std::move(chain), element); } catch (...) { buffer = std::move(chain.front()); throw; }
}
inline void message::overlay(std::size_t number, std::vector<genie::overlay> &&chain, std::size_t element) {
    std::vector<io_overlay_t> names;
    for (const genie::overlay &each : chain) names.push_back(each.name_.get());
    detail::check(io_overlay(server_.get(), message_.request, number, element, names.size(), names.data()));
    for (genie::overlay &each : chain) each.name_ = {};
    owe(number);
}
inline void message::outboard(std::size_t number, std::unique_ptr<genie::outboard> &&data, std::size_t element) {
    io_outboard_data told{};
    told.size = sizeof told, told.length = data->size(), told.flags = data->may_fail() ? 0 : IO_NEVER_FAILS;
    told.context = data.get(), told.transfer = detail::transfer, told.free = detail::free_outboard;
    detail::check(io_outboard(server_.get(), message_.request, number, element, &told));
    data.release(), owe(number);
}
inline pin<const unsigned char> message::pin_output(std::size_t number, std::size_t offset, std::size_t size) {
    if (buffer(number).direction != IO_OUT) throw error(EINVAL, "the buffer is an input: pin_input has it");
    return {server_.get(), message_.request, number, offset, size};
}
inline pin<unsigned char> message::pin_input(std::size_t number, std::size_t offset, std::size_t size) {
    ready(number);
    return {server_.get(), message_.request, number, offset, size};
}
} // namespace genie
#endif
