// A model with its context, under the C API's own names. The classes with upstream's names (runner.hpp,
// text_llm_runner.hpp) are made of it; a new host may prefer it, because it tells more.
#ifndef LLAMA_RUNNER_SESSION_HPP
#define LLAMA_RUNNER_SESSION_HPP

#include "chunk.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// Bytes that a session holds; llr_memory_* says what each is. What a vendor's library holds is in none of them.
struct Memory {
    std::uint64_t program = 0;
    bool program_mapped = false;
    std::uint64_t data = 0;
    std::uint64_t planned = 0;
    std::uint64_t io = 0;
    std::uint64_t kv_cache = 0;
    std::uint64_t weights = 0;
    std::uint64_t scratch = 0;
    std::uint64_t total = 0;
    // Of the whole process.
    std::uint64_t peak = 0;
};

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

    // Without effect when it is loaded. `on_progress` is told of each step; false calls loading off.
    Status load(const LoadCallback &on_progress = {})
    {
        detail::LoadProgressCallback callback(on_progress);
        Status status = Status::from(
            llr_runner_load_with_progress(runner_.get(), detail::LoadProgressCallback::on_step, &callback));
        callback.rethrow();
        return status;
    }
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

    // What follows is a turn in its parts, told more of at the C functions of these names.
    //
    // The ids of a text, with the num_bos and num_eos of `options` around it; nothing else of them is looked at.
    Result<std::vector<std::uint64_t>> encode(std::string_view text, const TurnOptions &options = {}) const
    {
        const detail::ConfigHandle config(llr_generation_config_new());
        if (Status status = detail::fill(config.get(), options); !status) {
            return status;
        }
        return detail::filled<std::vector<std::uint64_t>>([&](auto *buffer, std::size_t capacity, std::size_t *count) {
            return llr_runner_encode(runner_.get(), text.data(), text.size(), config.get(), buffer, capacity, count);
        });
    }
    // The bytes that `token` adds after `previous`, -1 at the beginning; possibly part of a character.
    Result<std::string> decode(std::int64_t previous, std::uint64_t token) const
    {
        return detail::filled<std::string>([&](char *buffer, std::size_t capacity, std::size_t *count) {
            return llr_runner_decode(runner_.get(), previous, token, reinterpret_cast<std::uint8_t *>(buffer), capacity,
                                     count);
        });
    }
    // -1 when there is none.
    std::int64_t bos_token() const noexcept { return llr_runner_bos_token(runner_.get()); }
    Result<std::vector<std::uint64_t>> eos_tokens() const
    {
        return detail::filled<std::vector<std::uint64_t>>([&](auto *buffer, std::size_t capacity, std::size_t *count) {
            return llr_runner_eos_tokens(runner_.get(), buffer, capacity, count);
        });
    }
    bool is_eos_token(std::uint64_t token) const noexcept { return llr_runner_is_eos_token(runner_.get(), token); }
    // Takes tokens into the context; the last one's logits are there then.
    Status prefill(const std::vector<std::uint64_t> &tokens)
    {
        return Status::from(llr_runner_prefill_tokens(runner_.get(), tokens.data(), tokens.size()));
    }
    Status step(std::uint64_t token) { return Status::from(llr_runner_step(runner_.get(), token)); }
    // One for each token of the vocabulary.
    Result<std::vector<float>> logits()
    {
        return detail::filled<std::vector<float>>([&](float *buffer, std::size_t capacity, std::size_t *count) {
            return llr_runner_logits(runner_.get(), buffer, capacity, count);
        });
    }
    // Chooses by the temperature, top_p and seed of `options`; step() takes the token.
    Result<std::uint64_t> sample(const TurnOptions &options = {})
    {
        const detail::ConfigHandle config(llr_generation_config_new());
        std::uint64_t token = 0;
        Status status = detail::fill(config.get(), options);
        if (status) {
            status = Status::from(llr_runner_sample(runner_.get(), config.get(), &token));
        }
        return status ? Result<std::uint64_t>(token) : status;
    }

    // Back to the first `position` tokens of the context.
    Status rewind(std::size_t position) { return Status::from(llr_runner_rewind(runner_.get(), position)); }
    // The context as bytes, for restore_state() of a session with the same program.
    Result<std::vector<std::uint8_t>> save_state()
    {
        return detail::filled<std::vector<std::uint8_t>>([&](auto *buffer, std::size_t capacity, std::size_t *count) {
            return llr_runner_save_state(runner_.get(), buffer, capacity, count);
        });
    }
    Status restore_state(const std::vector<std::uint8_t> &bytes)
    {
        return Status::from(llr_runner_restore_state(runner_.get(), bytes.data(), bytes.size()));
    }
    Status save_state_file(std::string_view path)
    {
        return Status::from(llr_runner_save_state_file(runner_.get(), path.data(), path.size()));
    }
    Status restore_state_file(std::string_view path)
    {
        return Status::from(llr_runner_restore_state_file(runner_.get(), path.data(), path.size()));
    }

    // The bytes that it holds now.
    Result<Memory> memory()
    {
        auto report = memory_report();
        if (!report.ok()) {
            return report.status();
        }
        const llr_memory *made = report->get();
        Memory memory;
        memory.program = llr_memory_program_bytes(made);
        memory.program_mapped = llr_memory_is_program_mapped(made);
        memory.data = llr_memory_data_bytes(made);
        memory.planned = llr_memory_planned_bytes(made);
        memory.io = llr_memory_io_bytes(made);
        memory.kv_cache = llr_memory_kv_cache_bytes(made);
        memory.weights = llr_memory_weight_bytes(made);
        memory.scratch = llr_memory_scratch_bytes(made);
        memory.total = llr_memory_total_bytes(made);
        memory.peak = llr_memory_process_peak_bytes(made);
        return memory;
    }
    // The same as JSON, with the C header's keys.
    Result<std::string> memory_json()
    {
        auto report = memory_report();
        if (!report.ok()) {
            return report.status();
        }
        return detail::filled_text([&](char *buffer, std::size_t capacity, std::size_t *count) {
            return llr_memory_to_json(report->get(), buffer, capacity, count);
        });
    }

    // Empties the context; also the way on after a turn that failed.
    Status reset() { return Status::from(llr_runner_reset(runner_.get())); }
    // Stops the running turn at its next token; without effect when none is running.
    void cancel() const noexcept { llr_runner_cancel(runner_.get()); }

    // Tokens in the context, and how many it can hold; 0 before loading.
    std::size_t position() const noexcept { return llr_runner_position(runner_.get()); }
    std::size_t context_length() const noexcept { return llr_runner_context_length(runner_.get()); }
    // 0 before loading.
    std::size_t vocabulary_size() const noexcept { return llr_runner_vocabulary_size(runner_.get()); }
    std::size_t cpu_threads() const noexcept { return llr_runner_cpu_threads(runner_.get()); }
    // The llr_eval_mode that was asked for or chosen.
    std::int32_t eval_mode() const noexcept { return llr_runner_eval_mode(runner_.get()); }
    // The last turn's statistics as JSON, with the keys of upstream's PyTorchObserver line.
    Result<std::string> stats_json() const
    {
        llr_stats *made = nullptr;
        if (Status status = Status::from(llr_stats_create(runner_.get(), &made)); !status) {
            return status;
        }
        const std::unique_ptr<llr_stats, detail::Deleter<llr_stats_free>> stats(made);
        return detail::filled_text([&](char *buffer, std::size_t capacity, std::size_t *count) {
            return llr_stats_to_json(made, buffer, capacity, count);
        });
    }
    // Why the last turn ended.
    llr_finish_reason finish_reason() const noexcept { return llr_runner_finish_reason(runner_.get()); }

    // For the C API's other functions; it stays the session's own.
    llr_runner *handle() const noexcept { return runner_.get(); }

private:
    using MemoryHandle = std::unique_ptr<llr_memory, detail::Deleter<llr_memory_free>>;

    explicit Session(llr_runner *runner) : runner_(runner) {}

    Result<MemoryHandle> memory_report()
    {
        llr_memory *made = nullptr;
        Status status = Status::from(llr_memory_create(runner_.get(), &made));
        return status ? Result<MemoryHandle>(MemoryHandle(made)) : std::move(status);
    }

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
