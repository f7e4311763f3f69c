// llama-runner in C++17: header-only classes over llama_runner.h that own what they hold and return what went wrong.
//
//     llama_runner::Session         the C API's own shape: chunks, every option, a Status with its reason; token by token,
//                                   saved contexts; with TextStream, and Program for what a .pte is
//     llama_runner::Runner          upstream's example::Runner (Qualcomm)
//     llama_runner::TextLLMRunner   upstream's executorch::extension::llm::TextLLMRunner
//
// The last two derive from executorch::extension::llm::IRunner and take its GenerationConfig, Stats and Error where
// ExecuTorch's headers are found, else from ones with the same names; see llama_runner/upstream_types.hpp.
//
// Errors are values. Nothing throws, but for value() of a Status or Result, for memory that runs out, and for what the
// caller's callbacks throw: it stops the turn, waits until the library has returned, and goes on to the caller.
//
// LLAMA_RUNNER_AS_UPSTREAM, defined before this header, gives the classes upstream's namespaces too, so that a host
// changes an include and a library, and nothing else. Its value says which upstream: none or 1 for today's
// example::Runner, 2 for the revisions until 2026-05, where it is a template.
#ifndef LLAMA_RUNNER_HPP
#define LLAMA_RUNNER_HPP

// ExecuTorch marks its classes [[deprecated]], as what may change.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

#include "llama_runner/program.hpp"
#include "llama_runner/runner.hpp"
#include "llama_runner/session.hpp"
#include "llama_runner/text_llm_runner.hpp"
#include "llama_runner/text_stream.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

static_assert(LLR_VERSION_NUMBER == 1000, "llama_runner.hpp and llama_runner.h are of different versions");

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// LLR_VERSION_NUMBER of the library that is running.
inline std::uint32_t version() noexcept
{
    return llr_version();
}

// Level and text of one line of the log.
using LogCallback = std::function<void(llr_log_level level, std::string_view line)>;

namespace detail {

struct LogSlot {
    std::mutex mutex;
    std::shared_ptr<const LogCallback> callback;

    // Never destroyed: a thread may log while the program ends.
    static LogSlot &instance()
    {
        static auto *slot = new LogSlot;
        return *slot;
    }
    static void on_line(std::int32_t level, const char *line, std::size_t line_len, void *) noexcept
    {
        LogSlot &slot = instance();
        std::unique_lock<std::mutex> lock(slot.mutex);
        const auto callback = slot.callback;
        lock.unlock();
        if (callback) {
            (*callback)(static_cast<llr_log_level>(level), std::string_view(line, line_len));
        }
    }
};

} // namespace detail

// Sends the log of the whole process, up to `level`, to `callback`, from whichever thread has something to say; an empty
// one silences the library, which is how it starts. A callback that throws ends the program.
inline Status set_log_callback(llr_log_level level, LogCallback callback)
{
    detail::LogSlot &slot = detail::LogSlot::instance();
    auto next = callback ? std::make_shared<const LogCallback>(std::move(callback)) : nullptr;
    const llr_log_callback hook = next ? detail::LogSlot::on_line : nullptr;
    {
        const std::lock_guard<std::mutex> lock(slot.mutex);
        slot.callback.swap(next);
    }
    auto status = Status::from(llr_set_log_callback(level, hook, nullptr));
    if (!status.ok()) {
        const std::lock_guard<std::mutex> lock(slot.mutex);
        slot.callback.swap(next);
    }
    return status;
}

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#if defined(LLAMA_RUNNER_AS_UPSTREAM)
#include "llama_runner/as_upstream.hpp"
#endif

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#endif
