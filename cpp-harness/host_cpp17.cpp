// The main job in C++17: load a model, stream the answer to a prompt. With --tokens it prints token ids instead of text.
//
//     host_cpp17 [--tokens] [--eval-mode N] [--seq-len N] [--max-new-tokens N] [--qnn-lib-dir DIR] MODEL TOKENIZER PROMPT
#include "llama_runner.h"

#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

template <auto Free> struct Deleter {
    template <typename T> void operator()(T *object) const noexcept { Free(object); }
};
using Options = std::unique_ptr<llr_runner_options, Deleter<llr_runner_options_free>>;
using Config = std::unique_ptr<llr_generation_config, Deleter<llr_generation_config_free>>;
using Runner = std::unique_ptr<llr_runner, Deleter<llr_runner_free>>;

// Turns a status into an exception that carries the message of the thread's last error.
void check(std::string_view doing, llr_status status)
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

// What the stream callback collects. Nothing may be thrown through the library, so a failure waits here.
struct Output {
    bool tokens = false;
    std::exception_ptr failure;
};

std::int32_t on_chunk(const llr_chunk *chunk, void *user_data) noexcept
{
    auto *output = static_cast<Output *>(user_data);
    try {
        if (!output->tokens) {
            std::size_t len = 0;
            const char *text = llr_chunk_text(chunk, &len);
            std::cout << std::string_view(text, len) << std::flush;
        } else if (!llr_chunk_is_final(chunk)) {
            std::cout << llr_chunk_token_id(chunk) << ' ';
        }
        return LLR_STREAM_ANSWER_CONTINUE;
    } catch (...) {
        output->failure = std::current_exception();
        return LLR_STREAM_ANSWER_STOP;
    }
}

int run(const std::vector<std::string> &arguments)
{
    Output output;
    std::map<std::string, std::string> flags;
    std::vector<std::string> positional;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--tokens") {
            output.tokens = true;
        } else if (arguments[i].rfind("--", 0) == 0 && i + 1 < arguments.size()) {
            flags.emplace(arguments[i], arguments[i + 1]);
            ++i;
        } else {
            positional.push_back(arguments[i]);
        }
    }
    if (positional.size() != 3) {
        throw std::invalid_argument("wanted: MODEL TOKENIZER PROMPT");
    }
    const auto &[model, tokenizer, prompt] = std::tie(positional[0], positional[1], positional[2]);

    const Options options(llr_runner_options_new());
    check("model", llr_runner_options_set_model_path(options.get(), model.data(), model.size()));
    check("tokenizer", llr_runner_options_set_tokenizer_path(options.get(), tokenizer.data(), tokenizer.size()));
    const Config config(llr_generation_config_new());
    for (const auto &[flag, value] : flags) {
        if (flag == "--eval-mode") {
            check(flag, llr_runner_options_set_eval_mode(options.get(), std::stoi(value)));
        } else if (flag == "--qnn-lib-dir") {
            check(flag, llr_runner_options_set_qnn_lib_dir(options.get(), value.data(), value.size()));
        } else if (flag == "--seq-len") {
            check(flag, llr_generation_config_set_seq_len(config.get(), std::stoll(value)));
        } else if (flag == "--max-new-tokens") {
            check(flag, llr_generation_config_set_max_new_tokens(config.get(), std::stoll(value)));
        } else {
            throw std::invalid_argument("unknown flag " + flag);
        }
    }

    llr_runner *made = nullptr;
    check("create", llr_runner_create(options.get(), &made));
    const Runner runner(made);
    check("load", llr_runner_load(runner.get()));
    check("generate", llr_runner_generate(runner.get(), prompt.data(), prompt.size(), config.get(), on_chunk, nullptr,
                                          &output));
    if (output.failure) {
        std::rethrow_exception(output.failure);
    }
    std::cout << '\n';
    std::cerr << "finish reason: " << llr_runner_finish_reason(runner.get())
              << ", position: " << llr_runner_position(runner.get()) << " of "
              << llr_runner_context_length(runner.get()) << '\n';
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception &failure) {
        std::cerr << failure.what() << '\n';
        return 1;
    }
}
