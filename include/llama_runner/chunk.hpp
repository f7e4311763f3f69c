// What a call tells while it runs: a turn its tokens and, at its end, its statistics, loading how far it is.
#ifndef LLAMA_RUNNER_CHUNK_HPP
#define LLAMA_RUNNER_CHUNK_HPP

#include "status.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// One token of a turn, or its end. Valid, with all it gives, until the callback that got it returns.
class Chunk {
public:
    explicit Chunk(const llr_chunk *chunk) noexcept : chunk_(chunk) {}

    // The whole characters that this token completes; possibly none.
    std::string_view text() const noexcept
    {
        std::size_t len = 0;
        const char *text = llr_chunk_text(chunk_, &len);
        return {text, len};
    }
    // The bytes as the tokenizer has them; possibly part of a character.
    std::string_view bytes() const noexcept
    {
        std::size_t len = 0;
        const auto *bytes = reinterpret_cast<const char *>(llr_chunk_bytes(chunk_, &len));
        return {bytes, len};
    }
    // -1 in the final chunk.
    std::int64_t token_id() const noexcept { return llr_chunk_token_id(chunk_); }
    // The natural logarithm of its probability at temperature 1; NaN where that is not known.
    double log_probability() const noexcept { return llr_chunk_log_probability(chunk_); }
    bool is_final() const noexcept { return llr_chunk_is_final(chunk_); }
    llr_finish_reason finish_reason() const noexcept { return llr_chunk_finish_reason(chunk_); }
    const llr_chunk *handle() const noexcept { return chunk_; }

private:
    const llr_chunk *chunk_;
};

// One step of loading, as it begins; `detail`, which file or method, is valid until the callback returns.
struct LoadProgress {
    llr_load_stage stage;
    // Of the whole, 0 to 1.
    float fraction;
    std::string_view detail;
};

// False calls loading off.
using LoadCallback = std::function<bool(const LoadProgress &)>;
// False stops the turn.
using ChunkCallback = std::function<bool(const Chunk &)>;
using StatsCallback = std::function<void(const Stats &)>;

namespace detail {

// What callbacks throw waits here until the C call is over: nothing may be thrown through it.
class Guard {
public:
    void rethrow()
    {
        if (thrown_) {
            std::rethrow_exception(std::exchange(thrown_, nullptr));
        }
    }

protected:
    bool has_thrown() const noexcept { return thrown_ != nullptr; }
    // Not after something was thrown.
    template <typename Body> void run(Body body) noexcept
    {
        if (thrown_) {
            return;
        }
#if LLAMA_RUNNER_EXCEPTIONS
        try {
            body();
        } catch (...) {
            thrown_ = std::current_exception();
        }
#else
        body();
#endif
    }

private:
    std::exception_ptr thrown_;
};

// The callbacks of a turn.
class Callbacks : public Guard {
public:
    Callbacks(const ChunkCallback &chunk, const StatsCallback &stats) : chunk_(chunk), stats_(stats) {}

    static std::int32_t on_chunk(const llr_chunk *chunk, void *user_data) noexcept
    {
        auto &self = *static_cast<Callbacks *>(user_data);
        bool goes_on = true;
        self.run([&] { goes_on = !self.chunk_ || self.chunk_(Chunk(chunk)); });
        return goes_on && !self.has_thrown() ? LLR_STREAM_ANSWER_CONTINUE : LLR_STREAM_ANSWER_STOP;
    }
    static void on_stats(const llr_stats *stats, void *user_data) noexcept
    {
        auto &self = *static_cast<Callbacks *>(user_data);
        self.run([&] {
            if (self.stats_) {
                self.stats_(stats_of(stats));
            }
        });
    }

private:
    const ChunkCallback &chunk_;
    const StatsCallback &stats_;
};

// The callback of loading.
class LoadProgressCallback : public Guard {
public:
    explicit LoadProgressCallback(const LoadCallback &callback) : callback_(callback) {}

    static std::int32_t on_step(const llr_load_progress *progress, void *user_data) noexcept
    {
        auto &self = *static_cast<LoadProgressCallback *>(user_data);
        bool goes_on = true;
        self.run([&] {
            goes_on = !self.callback_ || self.callback_({llr_load_progress_stage(progress),
                                                         llr_load_progress_fraction(progress),
                                                         llr_load_progress_detail(progress)});
        });
        return goes_on && !self.has_thrown() ? LLR_STREAM_ANSWER_CONTINUE : LLR_STREAM_ANSWER_STOP;
    }

private:
    const LoadCallback &callback_;
};

} // namespace detail
} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
