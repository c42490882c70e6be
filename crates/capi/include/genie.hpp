/* libgenie for C++17: genie.h with owners. genie.h says what each call means; docs/c.md has a section for C++.
 *
 * Objects can be moved, not copied. One that was moved from owns nothing: it can be destroyed and assigned to, and its functions throw
 * EBADF. Calls that fail throw genie::error; destructors and what is noexcept throw nothing. One object is for one thread at a time, but
 * its const functions are for all threads. */
#ifndef GENIE_HPP
#define GENIE_HPP
#include <genie.h>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace genie {
using std::chrono::nanoseconds;
inline constexpr nanoseconds forever{IO_FOREVER}; ///< A timeout that never ends.
enum class scheme : io_scheme_t {
    standard = IO_DEFAULT, ///< Emulated copy, unless interface::set_scheme has changed that.
    copy = IO_COPY, emulated_copy = IO_EMULATED_COPY, share = IO_SHARE, emulated_share = IO_EMULATED_SHARE,
    move = IO_MOVE, emulated_move = IO_EMULATED_MOVE, weak_move = IO_WEAK_MOVE, emulated_weak_move = IO_EMULATED_WEAK_MOVE
};
/// How an interface is to be opened: what is 0 is the default. flags may be IO_KERNEL_NEVER_STORES.
struct options : io_options { options() noexcept : io_options() { size = sizeof(io_options); } };
/// How to connect to a server: what is 0 is the default. Times are in nanoseconds. flags may be IO_UNTRUSTED and IO_RECONNECTING.
struct connect_options : io_connect_options { connect_options() noexcept : io_connect_options() { size = sizeof(io_connect_options); } };
/// Why a call has failed: code() is the errno and can be compared with std::errc, what() is the sentence of io_error_text.
class error : public std::system_error {
    std::runtime_error text_; // can be copied without throwing
  public:
    error(int code, const char *text) : std::system_error(code, std::generic_category()), text_(text) {}
    const char *what() const noexcept override { return text_.what(); }
};
namespace detail {
inline int check(int returned) {
    const int code = errno; // before anything else sets it
    return returned < 0 ? throw error(code, io_error_text()) : returned;
}
template <class T, T Nothing = T{}> struct slot { // a value that leaves the slot when it is moved
    T value = Nothing;
    slot(T initial = Nothing) noexcept : value(initial) {}
    slot(slot &&other) noexcept : value(std::exchange(other.value, Nothing)) {}
    slot &operator=(slot &&other) noexcept { return value = std::exchange(other.value, Nothing), *this; }
    bool has() const noexcept { return value != Nothing; }
    T get() const { return has() ? value : throw error(EBADF, "the object has been moved from, or what it had is over"); }
};
struct native { // a native buffer's memory
    slot<void *> first;
    explicit native(void *data) noexcept : first(data) {}
    native(native &&) noexcept = default;
    ~native() { io_free(first.value); }
};
struct part { // a buffer of a request
    io_buffer_header header{}; io_scatter_gather element{}; io_receipt receipt{};
    io_region region{}; // its address is not null while a migrant buffer is ours
    std::size_t actual = 0; std::shared_ptr<native> keeps{};
    bool is_migrant() const { return element.scheme >= IO_MOVE; }
    void *given() { // where a buffer that was given by value is; nowhere if the server has kept it, and it is freed without us
        void *first = element.location.native.addr;
        if (!first && keeps) keeps->first = nullptr;
        return first;
    }
    ~part() { is_migrant() ? void(io_free(region.segmentv[0].addr)) : void(given()); }
};
struct job { // all that stays where it is until a request is over
    io_server_t server; std::uint32_t service; std::int64_t timeout = IO_FOREVER;
    std::string argument{}, room{}; io_buffer_header arguments{}; io_receipt total{}; std::deque<part> parts{};
    void passed(bool all = false) noexcept { // outputs, or all, are not ours any more
        for (part &each : parts) if (all || each.header.direction == IO_OUT) each.region.segmentv[0].addr = nullptr;
    }
};
} // namespace detail

/// An interface: memory and limits. Its buffers and servers stay good after it.
class interface {
    detail::slot<io_interface_t, UINT64_MAX> number_;
  public:
    interface() noexcept : number_(0) {} ///< Interface 0, which is enough for most programs: each such object names the same one.
    explicit interface(const io_options &options) { detail::check(io_open(&options, &number_.value)); } ///< One of its own.
    interface(interface &&) noexcept = default;
    interface &operator=(interface other) noexcept { return std::swap(number_, other.number_), *this; }
    ~interface() { if (number_.has() && number_.value != 0) io_close(number_.value); }
    io_interface_t number() const { return number_.get(); }
    int descriptor() const { return detail::check(io_descriptor(number())); }
    bool arm() const { return detail::check(io_arm(number())) == 1; } int collect() const { return detail::check(io_collect(number())); }
    scheme set_scheme(scheme to) const { return scheme(detail::check(io_set_scheme(number(), static_cast<io_scheme_t>(to)))); }
};
/// What buffer and migrant have in common: bytes, as in a container, all zero at first.
class memory {
  public:
    unsigned char *data() noexcept { return data_.value; }
    unsigned char *begin() noexcept { return data(); } unsigned char *end() noexcept { return data() + size(); }
    unsigned char &operator[](std::size_t index) noexcept { return data()[index]; }
    const unsigned char *data() const noexcept { return data_.value; }
    const unsigned char *begin() const noexcept { return data(); } const unsigned char *end() const noexcept { return data() + size(); }
    const unsigned char &operator[](std::size_t index) const noexcept { return data()[index]; }
    std::size_t size() const noexcept { return size_.value; }
  protected:
    memory() noexcept = default;
    memory(void *data, std::size_t size) : data_(static_cast<unsigned char *>(data)), size_(size) { detail::check(data ? 0 : -1); }
    detail::slot<unsigned char *> data_; detail::slot<std::size_t> size_;
};
/// A native buffer. A request that names one keeps its memory until the request is over, even if the buffer is destroyed before.
class buffer : public memory { // with an offset, as io_allocate_at makes it
    friend class holder; friend class request; friend class message; std::shared_ptr<detail::native> owner_;
    buffer(std::shared_ptr<detail::native> owner, void *data, std::size_t size) noexcept : owner_(std::move(owner)) {
        data_ = static_cast<unsigned char *>(data), size_ = size;
    }
    void own() {
        detail::native freed(data()); // if this throws
        owner_ = std::make_shared<detail::native>(std::move(freed));
    }
  public:
    buffer() noexcept = default; ///< An empty one.
    buffer(const interface &io, std::size_t size) : memory(io_allocate(io.number(), size), size) { own(); }
    buffer(const interface &io, std::size_t offset, std::size_t size) : memory(io_allocate_at(io.number(), offset, size), size) { own(); }
};
/// A migrant buffer, which request::out takes; a weak one is for the weak schemes.
class migrant : public memory {
    friend class holder; friend class request;
    bool weak_ = false;
    migrant(void *data, std::size_t size, bool weak) : memory(data, size), weak_(weak) {}
  public:
    migrant() noexcept = default; ///< An empty one.
    migrant(const interface &io, std::size_t size, bool weak = false) : migrant(io_allocate_migrant(io.number(), size, !weak), size, weak) {}
    migrant(migrant &&) noexcept = default;
    migrant &operator=(migrant other) noexcept { return std::swap(data_, other.data_), std::swap(size_, other.size_), weak_ = other.weak_, *this; }
    ~migrant() { io_free(data()); }
};

/// A server of which requests can be made: a genie::server, or a genie::registered of this program.
class peer {
    int (*end_)(io_server_t);
    void leave() noexcept { if (number_.has()) end_(std::exchange(number_.value, 0)); }
  public:
    io_server_t number() const { return number_.get(); }
    std::uint32_t service(const std::string &name) const { return std::uint32_t(detail::check(io_service(number(), name.c_str()))); }
    void flush(nanoseconds timeout = forever) const { detail::check(io_flush(number(), timeout.count())); }
  protected:
    explicit peer(int (*end)(io_server_t)) noexcept : end_(end) {}
    peer(peer &&) noexcept = default;
    peer &operator=(peer &&other) noexcept { return leave(), number_ = std::move(other.number_), *this; }
    ~peer() { leave(); }
    detail::slot<io_server_t> number_;
};
/// A server in another process. Requests that are pending may outlive this object.
class server : public peer {
  public:
    /// Connects; waits so long for a server that is not there yet. Throws ENOENT.
    server(const interface &io, const std::string &name, nanoseconds timeout = nanoseconds(0)) : peer(io_disconnect) {
        detail::check(io_connect(io.number(), name.c_str(), timeout.count(), &number_.value));
    }
    server(const interface &io, const std::string &name, const connect_options &how) : peer(io_disconnect) {
        detail::check(io_connect_with(io.number(), name.c_str(), &how, &number_.value));
    }
    bool is_gone() const { return detail::check(io_is_gone(number())) == 1; }
};

/// What requests, pending requests and replies have in common. Buffers are numbered from 0; wrong numbers throw std::out_of_range.
class holder {
  public:
    /// The migrant buffer that has come back: an input after success, an output after failure. Throws EFAULT. What is not taken is freed.
    migrant take(std::size_t number) {
        detail::part &part = job().parts.at(number);
        io_segment &back = part.region.segmentv[0];
        if (!part.is_migrant() || !back.addr) throw error(EFAULT, "this buffer of the request has no migrant buffer to take");
        return migrant(std::exchange(back.addr, nullptr), back.length, part.element.scheme >= IO_WEAK_MOVE);
    }
    /// The buffer that was given by value, after success and after failure. Throws EFAULT if none was, it was taken, or the request has
    /// failed and its server has not let the buffer go.
    buffer take_buffer(std::size_t number) {
        detail::part &part = job().parts.at(number);
        void *first = part.element.flags & IO_OWNED ? part.given() : nullptr;
        if (!first) throw error(EFAULT, "this buffer of the request has no buffer to take that was given by value");
        part.element.location.native.addr = nullptr;
        return buffer(std::move(part.keeps), first, part.element.length);
    }
  protected:
    explicit holder(std::unique_ptr<detail::job> job) noexcept : job_(std::move(job)) {}
    detail::job &job() const { return job_ ? *job_ : throw error(EBADF, "the request has been moved from, or is pending, or over"); }
    std::unique_ptr<detail::job> job_;
};
/// The reply to a request that has succeeded.
class reply : public holder {
    friend class request; friend class pending;
    using holder::holder;
  public:
    std::size_t actual(std::size_t number) const { return job().parts.at(number).actual; } ///< Bytes that were passed.
    const io_receipt &receipt() const { return job().total; } ///< What was done with all buffers together.
    const io_receipt &receipt(std::size_t number) const { return job().parts.at(number).receipt; } ///< What was done with one.
    std::string_view argument() const { return {job().room.data(), job().arguments.in_arg_actual}; } ///< Good while this object is.
};
/// A request that is pending. If it is dropped, it is aborted, which takes at most the interface's abort_timeout.
class pending : public holder {
    friend class request; detail::slot<io_request_t> number_;
    pending(io_request_t number, std::unique_ptr<detail::job> job) noexcept : holder(std::move(job)), number_(number) {}
    int end() noexcept {
        const int ended = io_abort(std::exchange(number_.value, 0));
        return ended ? job_->passed(ended < 0), ended : ended; // if it was not this process's, nothing of it is
    }
    void ensure_over() const { if (number_.has()) throw error(EBUSY, "the request is pending"); }
  public:
    pending(pending &&) noexcept = default;
    pending &operator=(pending other) noexcept { return std::swap(job_, other.job_), std::swap(number_, other.number_), *this; }
    ~pending() { if (number_.has()) end(); }
    /// Waits so long for the reply; says whether it has come, so that sync need not wait.
    bool wait(nanoseconds time) const { return io_sync(number_.get(), IO_PEEKED, 0, nullptr, time.count()) != IO_PENDING; }
    /// Waits so long until more than `beyond` bytes of a buffer are final (message::progress), or the reply has come; says how many are.
    std::size_t wait_for_progress(std::size_t number, std::size_t beyond, nanoseconds time) const {
        std::size_t come = 0;
        job().parts.at(number);
        return detail::check(io_wait_for_progress(number_.get(), number, beyond, time.count(), &come)), come;
    }
    /// Waits for the reply, and brings it, once. Throws why the request has failed; take then has migrant outputs.
    reply sync() {
        const int returned = io_sync(number_.get(), IO_NORMAL, 0, nullptr, IO_FOREVER);
        number_ = {};
        return detail::check(returned), job_->passed(), reply(std::move(job_));
    }
    /// Aborts the request. Brings the reply if it had succeeded before that, or succeeds with what is final; if not, take has migrant outputs.
    std::optional<reply> abort() { return number_.get(), end() == 1 ? std::optional(reply(std::move(job_))) : std::nullopt; }
    migrant take(std::size_t number) { return ensure_over(), holder::take(number); }
    buffer take_buffer(std::size_t number) { return ensure_over(), holder::take_buffer(number); }
};
/// A request to be made: request(server, "invert").out(text).in(room).send(). One that has failed can be sent again. Memory that is given
/// by its address is the caller's: an input, and any under share, has to stay until the request is over.
class request : public holder {
    io_scatter_gather &last() const { return !job().parts.empty() ? job().parts.back().element : throw error(EINVAL, "no buffer is named yet"); }
    detail::part &push(std::uint32_t direction, std::size_t size, std::shared_ptr<detail::native> keeps = {}) {
        detail::part &part = job().parts.emplace_back();
        part.header.direction = direction, part.header.first_sg = &part.element, part.header.actual_lengthp = &part.actual;
        part.element.length = size, part.element.receiptp = &part.receipt, part.keeps = std::move(keeps);
        return part;
    }
    request &migrates(detail::part &part, void *data, bool weak) {
        part.element.scheme = weak ? IO_EMULATED_WEAK_MOVE : IO_EMULATED_MOVE, part.element.location.region = &part.region;
        return part.region = {1, {{data, part.element.length}}}, *this;
    }
    request &owned(std::uint32_t direction, buffer &&given) {
        detail::part &part = push(direction, given.size(), given.owner_);
        part.element.flags = IO_OWNED, native(part, given.data()), given = {};
        return *this;
    }
    request &native(detail::part &part, const void *data) { return part.element.location.native.addr = const_cast<void *>(data), *this; }
    void make(io_request_t *number) {
        std::vector<io_buffer_header *> headers{&job().arguments};
        for (detail::part &part : job_->parts) headers.push_back(&part.header);
        job_->arguments.out_arg = job_->argument.data(), job_->arguments.out_arg_length = job_->argument.size();
        job_->arguments.in_arg = job_->room.data(), job_->arguments.in_arg_length = job_->room.size(), job_->arguments.totalp = &job_->total;
        detail::check(io_request(job_->server, job_->service, headers.size(), headers.data(), job_->timeout, number));
    }
  public:
    request(const peer &server, std::uint32_t service) : holder(std::unique_ptr<detail::job>(new detail::job{server.number(), service})) {}
    request(const peer &server, const std::string &service) : request(server, server.service(service)) {}
    request &out(const buffer &data) { return native(push(IO_OUT, data.size(), data.owner_), data.data()); }
    request &out(const void *data, std::size_t size) { return native(push(IO_OUT, size), data); }
    request &in(buffer &room) { return native(push(IO_IN, room.size(), room.owner_), room.data()); }
    request &in(void *room, std::size_t size) { return native(push(IO_IN, size), room); }
    /// By value: the request has the buffer until take_buffer of the reply, or of what has failed, brings it back.
    request &out(buffer &&data) { return owned(IO_OUT, std::move(data)); }
    request &in(buffer &&room) { return owned(IO_IN, std::move(room)); }
    request &out(migrant &&data) { ///< Gives it away.
        migrates(push(IO_OUT, data.size()), data.data(), data.weak_);
        return data.data_ = {}, data.size_ = {}, *this;
    }
    request &in_migrant(std::size_t size, bool weak = false) { return migrates(push(IO_IN, size), nullptr, weak); } ///< reply::take has it.
    /// How what was named last is passed: by a native scheme, or if it is migrant by a migrant one.
    request &scheme(genie::scheme by) {
        if ((by >= genie::scheme::move) != (last().scheme >= IO_MOVE)) throw error(EINVAL, "the scheme is not for this kind of buffer");
        return last().scheme = static_cast<io_scheme_t>(by), *this;
    }
    request &held() { return last().flags |= IO_HELD, *this; } ///< Nobody stores into what was named last before send returns.
    request &argument(std::string_view bytes) { return job().argument = bytes, *this; }
    request &room(std::size_t size) { return job().room.resize(size), *this; } ///< Room for the reply's argument.
    request &timeout(nanoseconds time) { return job().timeout = time.count(), *this; }
    /// Makes the request, and waits for the reply. If it throws, take has migrant outputs.
    reply send() { return make(nullptr), job_->passed(), reply(std::move(job_)); }
    /// Makes the request. Data of outputs by copy and emulated copy may be stored into at once.
    pending submit() { io_request_t number = 0; return make(&number), pending(number, std::move(job_)); }
};

/// A batch (io_begin_batch): while it exists, servers are told together of the requests that its thread submits. It stays in its thread.
class batch {
  public:
    batch() { detail::check(io_begin_batch()); } ///< Throws EBUSY: there is one already.
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;
    ~batch() { io_end_batch(); }
};

/// Bytes in one run of addresses, as a std::span, which C++17 does not have.
template <class Byte> class span {
    Byte *data_ = nullptr; std::size_t size_ = 0;
  public:
    span() noexcept = default;
    span(Byte *data, std::size_t size) noexcept : data_(data), size_(size) {}
    Byte *data() const noexcept { return data_; } std::size_t size() const noexcept { return size_; }
    Byte *begin() const noexcept { return data_; } Byte *end() const noexcept { return data_ + size_; }
    Byte &operator[](std::size_t index) const noexcept { return data_[index]; }
};
template <class Byte> class piece;
/// The bytes of a buffer of a request where they are: for (auto part : segments) visits the spans of which they consist, in order. A view:
/// a copy is of the same bytes. Each thread uses a copy of its own, which remembers the segment where it was last.
template <class Byte> class segments {
    const io_segment *first_, *last_, *here_; std::size_t before_ = 0, size_ = 0; // before_ bytes lie before *here_
    template <class Act> void each(std::size_t offset, std::size_t size, Act act) { // act(place, bytes before it, how many are there)
        for (std::size_t done = 0; done < size;) {
            const span<Byte> there = from(offset + done);
            const std::size_t part = there.size() < size - done ? there.size() : size - done;
            act(there.data(), done, part), done += part;
        }
    }
    void ensure(std::size_t offset, std::size_t size) const {
        if (offset > size_ || size > size_ - offset) throw error(EINVAL, "bytes beyond the end of the buffer");
    }
    friend class piece<Byte>;
  public:
    class iterator {
        const io_segment *at_;
      public:
        explicit iterator(const io_segment *at) noexcept : at_(at) {}
        span<Byte> operator*() const noexcept { return {static_cast<Byte *>(at_->addr), at_->length}; }
        iterator &operator++() noexcept { return ++at_, *this; }
        bool operator!=(const iterator &other) const noexcept { return at_ != other.at_; }
    };
    segments(const io_segment *first, std::size_t count) noexcept : first_(first), last_(first + count), here_(first) {
        for (span<Byte> each : *this) size_ += each.size();
    }
    iterator begin() const noexcept { return iterator(first_); } iterator end() const noexcept { return iterator(last_); }
    std::size_t size() const noexcept { return size_; } ///< All bytes.
    /// The bytes from there on that are in one segment; none at the end. Takes no time if it is asked in order.
    span<Byte> from(std::size_t offset) noexcept {
        if (offset >= size_) return {};
        while (offset < before_) before_ -= (--here_)->length;
        while (offset - before_ >= here_->length) before_ += (here_++)->length;
        return {static_cast<Byte *>(here_->addr) + (offset - before_), here_->length - (offset - before_)};
    }
    /// So many bytes from there on in one run of addresses, such as a row of an image. Throws EINVAL beyond the end.
    genie::piece<Byte> piece(std::size_t offset, std::size_t size) { return {*this, offset, size}; }
    void load(std::size_t offset, void *to, std::size_t size) { ///< Copies bytes from there on.
        ensure(offset, size);
        each(offset, size, [to](const Byte *at, std::size_t done, std::size_t part) { std::memcpy(static_cast<char *>(to) + done, at, part); });
    }
    void store(std::size_t offset, const void *from, std::size_t size) { ///< The same in the other direction, for inputs.
        ensure(offset, size);
        each(offset, size, [from](Byte *at, std::size_t done, std::size_t part) { std::memcpy(at, static_cast<const char *>(from) + done, part); });
    }
};
/// Some bytes of segments: in place if they are in one segment; else a copy, which an input gets back when this object ends: before the reply.
template <class Byte> class piece {
    using stored = std::remove_const_t<Byte>;
    segments<Byte> of_; std::size_t offset_; span<Byte> bytes_; std::unique_ptr<stored[]> copy_{};
  public:
    piece(const segments<Byte> &of, std::size_t offset, std::size_t size) : of_(of), offset_(offset) {
        of_.ensure(offset, size);
        bytes_ = {of_.from(offset).data(), size};
        if (of_.from(offset).size() >= size) return;
        copy_.reset(new stored[size]), bytes_ = {copy_.get(), size};
        of_.load(offset, copy_.get(), size);
    }
    piece(piece &&) noexcept = default;
    ~piece() { if constexpr (!std::is_const_v<Byte>) if (copy_) of_.store(offset_, copy_.get(), bytes_.size()); }
    Byte *data() const noexcept { return bytes_.data(); } std::size_t size() const noexcept { return bytes_.size(); }
    Byte *begin() const noexcept { return bytes_.begin(); } Byte *end() const noexcept { return bytes_.end(); }
    Byte &operator[](std::size_t index) const noexcept { return bytes_[index]; }
};
/// Calls act(from, to, size) for as many bytes as both have, in order, and each time for as many as are in one segment of both. Returns how
/// many these are in all.
template <class From, class To, class Act> std::size_t together(segments<From> from, segments<To> to, Act act) {
    const std::size_t all = from.size() < to.size() ? from.size() : to.size();
    for (std::size_t done = 0; done < all;) {
        const span<From> source = from.from(done);
        const span<To> target = to.from(done);
        const std::size_t part = source.size() < target.size() ? source.size() : target.size();
        act(source.data(), target.data(), part), done += part;
    }
    return all;
}

class overlay; class outboard; template <class Byte> class pin;
/// What a registered server gets. A request that is dropped without a reply fails with EREMOTEIO.
class message {
    friend class registered; detail::slot<io_server_t> server_; // while the request is held
    io_message message_{};
    std::vector<std::size_t> actual_{};
    io_reply_message said(int code, const char *text, std::string_view argument) const noexcept {
        return {message_.request, code, text, argument.data(), argument.size(), actual_.size(), actual_.data()};
    }
    void answer(int code, const char *text, std::string_view argument) {
        const io_reply_message reply = said(code, text, argument);
        const int returned = io_server(server_.get(), &reply, nullptr, 0);
        if (returned == 0 || errno == EMSGSIZE) server_ = {}, message_.bufc = message_.argument_length = 0;
        detail::check(returned);
    }
    void owe(std::size_t number) { if (!actual_.at(number)) actual_[number] = SIZE_MAX; } // the program has to say how much of it came
    void swap(message &other) noexcept { std::swap(server_, other.server_), std::swap(message_, other.message_), actual_.swap(other.actual_); }
  public:
    message() noexcept = default;
    message(message &&other) noexcept { swap(other); }
    message &operator=(message other) noexcept { return swap(other), *this; }
    ~message() { try { if (server_.has()) fail(EREMOTEIO, "the server dropped the request"); } catch (...) {} }
    const io_message *operator->() const noexcept { return &message_; } ///< message->what, ->service, ->client and so on.
    std::string_view argument() const noexcept { return {static_cast<const char *>(message_.argument), message_.argument_length}; }
    const io_server_buffer &buffer(std::size_t at) const { return at < message_.bufc ? message_.bufv[at] : throw error(EINVAL, "no such buffer"); }
    /// The bytes of an output, where they are. Good until the reply, as what ready returns is. A client that is hostile may store into
    /// them meanwhile: load what you check once, and use what you have loaded.
    segments<const unsigned char> output(std::size_t number) const {
        const io_server_buffer &found = buffer(number);
        if (found.direction != IO_OUT) throw error(EINVAL, "the buffer is an input: ready has it");
        if (!found.segc && found.length) throw error(EINVAL, "the output was kept, or the service was not registered with IO_READ");
        return {found.segv, found.segc};
    }
    /// Makes an input ready to be filled, if it is not yet: the bytes to be stored into, where they are. Say by actual, afterwards, how
    /// many pass, if only 0: a reply without that throws.
    segments<unsigned char> ready(std::size_t number) {
        const io_server_buffer &found = buffer(number);
        if (found.direction != IO_IN || !found.segc) {
            detail::check(io_ready(server_.get(), message_.request, number));
            owe(number);
        }
        return {found.segv, found.segc};
    }
    /// Makes an input ready, and copies so many bytes there, or as many as fit. Returns how many; reply passes these.
    std::size_t fill(std::size_t number, const void *from, std::size_t size) {
        segments<unsigned char> to = ready(number);
        return size = size < to.size() ? size : to.size(), to.store(0, from, size), actual(number, size), size;
    }
    std::string read(std::size_t number) const { ///< A copy of an output.
        std::string bytes;
        segments<const unsigned char> from = output(number);
        bytes.reserve(from.size());
        for (span<const unsigned char> each : from) bytes.append(reinterpret_cast<const char *>(each.data()), each.size());
        return bytes;
    }
    /// Makes an output the server's own, to be changed, and to be there for as long as the object that is returned. The message has it no
    /// more. Requests may name it, but not be given it by value.
    genie::buffer keep(std::size_t number) {
        void *place = nullptr;
        const std::size_t size = buffer(number).length;
        detail::check(io_keep(server_.get(), message_.request, number, &place));
        detail::native freed(place);
        return {std::make_shared<detail::native>(std::move(freed)), place, size};
    }
    /// Overlays buffers of the server's own on an element of an input, in place of ready. If this throws, they are still the caller's.
    void overlay(std::size_t number, genie::overlay &&buffer, std::size_t element = 0);
    void overlay(std::size_t number, std::vector<genie::overlay> &&chain, std::size_t element = 0);
    /// Links a device's data to an element of an input, in place of ready. If this throws, it is still the caller's.
    void outboard(std::size_t number, std::unique_ptr<genie::outboard> &&data, std::size_t element = 0);
    /// Bytes to be read, or an input's to be filled, until the object that is returned ends, also after the reply.
    pin<const unsigned char> pin_output(std::size_t number, std::size_t offset, std::size_t size);
    pin<unsigned char> pin_input(std::size_t number, std::size_t offset, std::size_t size);
    void actual(std::size_t number, std::size_t size) { buffer(number), actual_.at(number) = size; } ///< How much is passed.
    /// Tells the client, before the reply, that the first bytes are final. fail(ECANCELED) passes them if the client gives the request up.
    void progress(std::size_t number, std::size_t size) { detail::check(io_progress(server_.get(), message_.request, number, size)); }
    bool is_aborted() const { return detail::check(io_is_aborted(server_.get(), message_.request)) == 1; }
    void reply(std::string_view argument = {}) { answer(0, nullptr, argument); }
    /// Replies before the work is done, if that will surely succeed. The outputs stay until reply, of which nothing else counts then.
    void anticipate(std::string_view argument = {}) {
        const io_reply_message early = said(0, nullptr, argument);
        detail::check(io_anticipate(server_.get(), &early));
    }
    void fail(int code, const char *text = nullptr) { answer(code, text, {}); }
};
/// A server of this program, which is unregistered with the object. No thread may be in next then: close it before.
class registered : public peer {
  public:
    /// Clients in other processes find it by the name, unless that is empty.
    registered(const std::string &name, const std::vector<io_service_mapping> &services, std::size_t pool_size = 0) : peer(io_server_unregister) {
        detail::check(io_server_register(name.empty() ? nullptr : name.data(), services.size(), services.data(), pool_size, &number_.value));
    }
    /// Brings the next message, which may be IO_NO_MESSAGE if it must not block. Returns false once the server is closed.
    bool next(message &to, bool blocking = true) const {
        to = message();
        const int returned = io_server(number(), nullptr, &to.message_, blocking);
        if (returned < 0 && (errno == ECANCELED || errno == EBADF)) return false;
        if (detail::check(returned); to->what == IO_REQUEST) to.server_.value = number(), to.actual_.resize(to->bufc);
        for (std::size_t i = 0; i < to.actual_.size(); i++) if (to->bufv[i].direction == IO_OUT) to.actual_[i] = to->bufv[i].length;
        return true;
    }
    int descriptor() const { return detail::check(io_server_descriptor(number())); }
    void watch(const interface &io) const { detail::check(io_server_watch(number(), io.number())); } ///< Its replies bring IO_REPLIES here.
    void close() const { detail::check(io_server_unregister(number())); } ///< Threads in next return.
};
} // namespace genie
#include <genie_device.hpp>
#endif
