// What a call came to, as a value: a status with its reason, or a result. Nothing here throws unless value() is called.
#ifndef LLAMA_RUNNER_STATUS_HPP
#define LLAMA_RUNNER_STATUS_HPP

#include "upstream_types.hpp"

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

// With -fno-exceptions value() is not there, and callbacks are trusted not to throw.
#if !defined(LLAMA_RUNNER_EXCEPTIONS)
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define LLAMA_RUNNER_EXCEPTIONS 1
#else
#define LLAMA_RUNNER_EXCEPTIONS 0
#endif
#endif

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Success, or what failed and why.
class [[nodiscard]] Status {
public:
    Status() noexcept = default;
    Status(llr_status code, std::string message) : code_(code), message_(std::move(message)) {}

    // What a C function of the calling thread just returned, with the library's message.
    static Status from(llr_status code)
    {
        if (code == LLR_STATUS_OK) {
            return {};
        }
        std::size_t needed = 0;
        llr_last_error_message(nullptr, 0, &needed);
        std::string message(needed, '\0');
        llr_last_error_message(message.data(), message.size(), nullptr);
        if (!message.empty()) {
            message.pop_back(); // the NUL
        }
        return {code, std::move(message)};
    }

    bool ok() const noexcept { return code_ == LLR_STATUS_OK; }
    explicit operator bool() const noexcept { return ok(); }
    llr_status code() const noexcept { return code_; }
    // The same as ExecuTorch's enumeration. The numbers that llr_status adds keep their value, though ExecuTorch has no
    // names for them.
    Error error() const noexcept { return static_cast<Error>(static_cast<std::uint32_t>(code_)); }
    // "LLR_STATUS_NOT_FOUND".
    const char *name() const noexcept { return llr_status_name(code_); }
    // What failed and its causes: "what: why: why". Empty on success.
    const std::string &message() const noexcept { return message_; }
    // Name and message in one line.
    std::string text() const { return message_.empty() ? std::string(name()) : std::string(name()) + ": " + message_; }

#if LLAMA_RUNNER_EXCEPTIONS
    // Throws an Exception unless it is a success.
    void value() const;
#endif

private:
    llr_status code_ = LLR_STATUS_OK;
    std::string message_;
};

#if LLAMA_RUNNER_EXCEPTIONS
// What value() throws.
class Exception : public std::runtime_error {
public:
    explicit Exception(Status status) : std::runtime_error(status.text()), status_(std::move(status)) {}
    const Status &status() const noexcept { return status_; }

private:
    Status status_;
};

inline void Status::value() const
{
    if (!ok()) {
        throw Exception(*this);
    }
}
#endif

// A value, or why there is none. get(), * and -> are for results that are ok(); on others they end the program, as
// those of executorch::runtime::Result do.
template <typename T> class [[nodiscard]] Result {
public:
    using value_type = T;

    Result(T value) : held_(std::in_place_index<1>, std::move(value)) {}
    // A status that is ok() is no reason to have no value, and becomes LLR_STATUS_INTERNAL.
    Result(Status status)
        : held_(std::in_place_index<0>,
                status.ok() ? Status(LLR_STATUS_INTERNAL, "a success without a value") : std::move(status))
    {
    }

    bool ok() const noexcept { return held_.index() == 1; }
    explicit operator bool() const noexcept { return ok(); }
    Error error() const noexcept { return status().error(); }
    const Status &status() const noexcept
    {
        static const Status success;
        const Status *failure = std::get_if<0>(&held_);
        return failure != nullptr ? *failure : success;
    }

    T &get() { return *pointer(std::get_if<1>(&held_)); }
    const T &get() const { return *pointer(std::get_if<1>(&held_)); }
    T &operator*() & { return get(); }
    const T &operator*() const & { return get(); }
    // By value, so that `for (auto x : *call())` does not look into what is gone.
    T operator*() && { return std::move(get()); }
    T *operator->() { return &get(); }
    const T *operator->() const { return &get(); }

#if LLAMA_RUNNER_EXCEPTIONS
    // The value; throws an Exception when there is none.
    T &value() &
    {
        status().value();
        return get();
    }
    T value() && { return std::move(value()); }
#endif

private:
    template <typename P> static P *pointer(P *value)
    {
        if (value == nullptr) {
            std::abort();
        }
        return value;
    }

    std::variant<Status, T> held_;
};

namespace detail {

// What a C function gives that is asked for the size first: call(buffer, capacity, out_count).
template <typename Sequence, typename Call> Result<Sequence> filled(Call call)
{
    std::size_t count = 0;
    typename Sequence::value_type *const asks = nullptr;
    if (Status status = Status::from(call(asks, std::size_t{0}, &count)); !status) {
        return status;
    }
    Sequence sequence(count, typename Sequence::value_type());
    if (count != 0) {
        if (Status status = Status::from(call(sequence.data(), sequence.size(), &count)); !status) {
            return status;
        }
    }
    return sequence;
}

// The same for a text, which comes with a NUL.
template <typename Call> Result<std::string> filled_text(Call call)
{
    auto text = filled<std::string>(call);
    if (text.ok() && !text->empty()) {
        text->pop_back();
    }
    return text;
}

template <auto Free> struct Deleter {
    template <typename T> void operator()(T *object) const noexcept { Free(object); }
};

} // namespace detail

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
