// Text of tokens, for a host that takes them one by one.
#ifndef LLAMA_RUNNER_TEXT_STREAM_HPP
#define LLAMA_RUNNER_TEXT_STREAM_HPP

#include "session.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Makes whole characters of tokens. Movable; the session may go before it.
class TextStream {
public:
    // The text goes on behind the token `previous`; -1 begins one.
    static Result<TextStream> create(const Session &session, std::int64_t previous = -1)
    {
        llr_text_stream *stream = nullptr;
        if (Status status = Status::from(llr_text_stream_create(session.handle(), previous, &stream)); !status) {
            return status;
        }
        return TextStream(stream);
    }

    // Takes the next token; text() and bytes() tell what it adds.
    Status push(std::uint64_t token) { return Status::from(llr_text_stream_push(stream_.get(), token)); }
    // Ends the text; text() then gives what was held back. More tokens may follow.
    Status finish() { return Status::from(llr_text_stream_finish(stream_.get())); }

    // Valid until the next push(), finish(), or the end of the stream.
    std::string_view text() const noexcept
    {
        std::size_t len = 0;
        const char *text = llr_text_stream_text(stream_.get(), &len);
        return {text, len};
    }
    std::string_view bytes() const noexcept
    {
        std::size_t len = 0;
        const auto *bytes = reinterpret_cast<const char *>(llr_text_stream_bytes(stream_.get(), &len));
        return {bytes, len};
    }

private:
    explicit TextStream(llr_text_stream *stream) : stream_(stream) {}

    std::unique_ptr<llr_text_stream, detail::Deleter<llr_text_stream_free>> stream_;
};

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
