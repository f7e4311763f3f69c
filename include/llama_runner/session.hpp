// A model with its context, under the C API's own names. The classes with upstream's names (runner.hpp,
// text_llm_runner.hpp) are made of it; a new host may prefer it, because it tells more.
#ifndef LLAMA_RUNNER_SESSION_HPP
#define LLAMA_RUNNER_SESSION_HPP

#include "chunk.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// A model with its KV cache and its place in the context. Movable, not copyable; it gives back everything when it goes.
//
// One thread at a time may use it, except for cancel() and the const functions, which any thread may call at any time
// before it goes or is moved from. A callback must not destroy it. After being moved from it refuses every call.
class Session {
public:
    // Checks the options and that the files can be opened; load() reads them.
    static Result<Session> create(const Options &options)
    {
        const detail::OptionsHandle handle(llr_runner_options_new());
        if (Status status = detail::fill(handle.get(), options); !status) {
            return status;
        }
        llr_runner *runner = nullptr;
        if (Status status = Status::from(llr_runner_create(handle.get(), &runner)); !status) {
            return status;
        }
        return Session(runner);
    }

    // Without effect when it is loaded.
    Status load() { return Status::from(llr_runner_load(runner_.get())); }
    bool is_loaded() const noexcept { return llr_runner_is_loaded(runner_.get()); }

    // Runs one turn behind what is in the context, and loads first if need be. What a callback throws stops the turn and
    // comes out of here when it is over.
    Status generate(std::string_view prompt, const TurnOptions &options = {}, const ChunkCallback &on_chunk = {},
                    const StatsCallback &on_stats = {})
    {
        return turn(options, on_chunk, on_stats, [&](const llr_generation_config *config, void *callbacks) {
            return llr_runner_generate(runner_.get(), prompt.data(), prompt.size(), config,
                                       detail::Callbacks::on_chunk, detail::Callbacks::on_stats, callbacks);
        });
    }
    // The same for token ids, which are used as they are.
    Status generate(const std::vector<std::uint64_t> &tokens, const TurnOptions &options = {},
                    const ChunkCallback &on_chunk = {}, const StatsCallback &on_stats = {})
    {
        return turn(options, on_chunk, on_stats, [&](const llr_generation_config *config, void *callbacks) {
            return llr_runner_generate_tokens(runner_.get(), tokens.data(), tokens.size(), config,
                                              detail::Callbacks::on_chunk, detail::Callbacks::on_stats, callbacks);
        });
    }

    // Empties the context; also the way on after a turn that failed.
    Status reset() { return Status::from(llr_runner_reset(runner_.get())); }
    // Stops the running turn at its next token; without effect when none is running.
    void cancel() const noexcept { llr_runner_cancel(runner_.get()); }

    // Tokens in the context, and how many it can hold; 0 before loading.
    std::size_t position() const noexcept { return llr_runner_position(runner_.get()); }
    std::size_t context_length() const noexcept { return llr_runner_context_length(runner_.get()); }
    // Why the last turn ended.
    llr_finish_reason finish_reason() const noexcept { return llr_runner_finish_reason(runner_.get()); }

    // For the C API's other functions; it stays the session's own.
    llr_runner *handle() const noexcept { return runner_.get(); }

private:
    explicit Session(llr_runner *runner) : runner_(runner) {}

    template <typename Call>
    Status turn(const TurnOptions &options, const ChunkCallback &on_chunk, const StatsCallback &on_stats, Call call)
    {
        const detail::ConfigHandle config(llr_generation_config_new());
        if (Status status = detail::fill(config.get(), options); !status) {
            return status;
        }
        detail::Callbacks callbacks(on_chunk, on_stats);
        Status status = Status::from(call(config.get(), &callbacks));
        callbacks.rethrow();
        return status;
    }

    std::unique_ptr<llr_runner, detail::Deleter<llr_runner_free>> runner_;
};

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
