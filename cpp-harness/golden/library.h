// This library as a side: its token-level calls, and the text of tokens.
#pragma once

#include "llama_runner.h"
#include "references.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

template <auto Free> struct Deleter {
    template <typename T> void operator()(T *object) const noexcept { Free(object); }
};
using Options = std::unique_ptr<llr_runner_options, Deleter<llr_runner_options_free>>;
using Config = std::unique_ptr<llr_generation_config, Deleter<llr_generation_config_free>>;

// Turns a status into an exception that carries the message of the thread's last error.
inline void check(std::string_view doing, llr_status status)
{
    if (status == LLR_STATUS_OK) {
        return;
    }
    std::size_t needed = 0;
    llr_last_error_message(nullptr, 0, &needed);
    std::string message(needed, '\0');
    llr_last_error_message(message.data(), message.size(), nullptr);
    message.pop_back();
    throw std::runtime_error(std::string(doing) + ": " + llr_status_name(status) + ": " + message);
}

class Library {
  public:
    explicit Library(const Options &options)
    {
        llr_runner *made = nullptr;
        check("create", llr_runner_create(options.get(), &made));
        runner.reset(made);
        check("load", llr_runner_load(runner.get()));
    }

    // Ids of a text, with `bos` beginning-of-sequence tokens in front.
    std::vector<Token> encode(const std::string &text, std::size_t bos) const
    {
        const Config config(llr_generation_config_new());
        check("num_bos", llr_generation_config_set_num_bos(config.get(), static_cast<std::int32_t>(bos)));
        std::size_t count = 0;
        check("encode", llr_runner_encode(runner.get(), text.data(), text.size(), config.get(), nullptr, 0, &count));
        std::vector<Token> ids(count);
        check("encode", llr_runner_encode(runner.get(), text.data(), text.size(), config.get(), ids.data(), ids.size(),
                                          nullptr));
        return ids;
    }

    // The bytes that `token` adds behind `previous`.
    std::string piece(Token previous, Token token) const
    {
        const auto before = static_cast<std::int64_t>(previous);
        std::size_t count = 0;
        check("decode", llr_runner_decode(runner.get(), before, token, nullptr, 0, &count));
        std::string bytes(count, '\0');
        check("decode", llr_runner_decode(runner.get(), before, token, reinterpret_cast<std::uint8_t *>(bytes.data()),
                                          bytes.size(), nullptr));
        return bytes;
    }

    bool is_end(Token token) const { return llr_runner_is_eos_token(runner.get(), token); }

    void reset() { check("reset", llr_runner_reset(runner.get())); }

    // Answers greedily, until an end token or `most` tokens. With `forced` it is fed these, whatever it would have
    // chosen, and stops where they do.
    Answer run(const std::vector<Token> &prompt, std::size_t most, const std::vector<Token> *forced)
    {
        Answer answer;
        auto began = Clock::now();
        check("prefill", llr_runner_prefill_tokens(runner.get(), prompt.data(), prompt.size()));
        answer.prefill_seconds = seconds_since(began);
        for (;;) {
            Step step;
            check("sample", llr_runner_sample(runner.get(), nullptr, &step.token));
            read_row(step.row);
            answer.steps.push_back(step);
            const std::size_t made = answer.steps.size();
            const bool full = llr_runner_position(runner.get()) + 1 >= llr_runner_context_length(runner.get());
            const bool ends = forced != nullptr ? made == forced->size() : is_end(step.token) || made == most;
            if (ends || full) {
                return answer;
            }
            began = Clock::now();
            check("step", llr_runner_step(runner.get(), forced != nullptr ? (*forced)[made - 1] : step.token));
            answer.decode_seconds += seconds_since(began);
        }
    }

  private:
    // A program that does not say what its codes stand for leaves the row empty.
    void read_row(Row &row)
    {
        row.all.resize(llr_runner_vocabulary_size(runner.get()));
        const llr_status status = llr_runner_logits(runner.get(), row.all.data(), row.all.size(), nullptr);
        if (status == LLR_STATUS_NOT_SUPPORTED) {
            row.all.clear();
        } else {
            check("logits", status);
        }
    }

    std::unique_ptr<llr_runner, Deleter<llr_runner_free>> runner;
};

} // namespace golden
