// Runs programs in this library's own runtime and in ExecuTorch's Module, in one process, and compares the tokens.
//
//     both_ways TOKENIZER NEW_TOKENS PROGRAM...
//
// Prints a line for each program: its path, the tokens, and whether they are equal. Exits with 0 when all are, 1 when one
// differs or fails, 2 when it was not understood.
#include "llama_runner_executorch.hpp"

#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using executorch::extension::Module;
using Tokens = std::vector<std::int64_t>;

constexpr char PROMPT[] = "Once upon a time";

std::string last_error()
{
    std::size_t needed = 0;
    llr_last_error_message(nullptr, 0, &needed);
    std::string words(needed, '\0');
    llr_last_error_message(words.data(), words.size(), nullptr);
    return words.c_str();
}

void check(llr_status status, const std::string &doing)
{
    if (status != LLR_STATUS_OK) {
        throw std::runtime_error(doing + ": " + llr_status_name(status) + ": " + last_error());
    }
}

struct Free {
    void operator()(llr_runner_options *options) const { llr_runner_options_free(options); }
    void operator()(llr_runner *runner) const { llr_runner_free(runner); }
    void operator()(llr_generation_config *config) const { llr_generation_config_free(config); }
};
template <typename T> using Owned = std::unique_ptr<T, Free>;

Owned<llr_runner_options> options_for(const std::string &tokenizer)
{
    Owned<llr_runner_options> options(llr_runner_options_new());
    check(llr_runner_options_set_tokenizer_path(options.get(), tokenizer.data(), tokenizer.size()), "tokenizer");
    return options;
}

Owned<llr_runner> runner_of(const llr_runner_options *options)
{
    llr_runner *runner = nullptr;
    check(llr_runner_create(options, &runner), "create");
    return Owned<llr_runner>(runner);
}

std::int32_t collect(const llr_chunk *chunk, void *tokens)
{
    if (!llr_chunk_is_final(chunk)) {
        static_cast<Tokens *>(tokens)->push_back(llr_chunk_token_id(chunk));
    }
    return LLR_STREAM_ANSWER_CONTINUE;
}

Tokens generate(llr_runner *runner, int new_tokens)
{
    Owned<llr_generation_config> config(llr_generation_config_new());
    check(llr_generation_config_set_max_new_tokens(config.get(), new_tokens), "max_new_tokens");
    check(llr_generation_config_set_ignore_eos(config.get(), true), "ignore_eos");
    Tokens tokens;
    check(llr_runner_generate(runner, PROMPT, sizeof PROMPT - 1, config.get(), collect, nullptr, &tokens), "generate");
    check(llr_runner_reset(runner), "reset");
    return tokens;
}

// Upstream's class, given a Module as upstream's hosts give it one: the Module runs, whatever the path says.
bool by_runner(const std::string &tokenizer, const std::string &program, int new_tokens)
{
    llama_runner::GenerationConfig config;
    config.echo = false;
    config.max_new_tokens = new_tokens;
    const auto text_of = [&](llama_runner::Runner &&runner) {
        std::string text;
        const auto error = runner.generate(PROMPT, config, [&](const std::string &piece) { text += piece; });
        if (error != llama_runner::Error::Ok) {
            throw std::runtime_error("example::Runner: " + runner.last_status().text());
        }
        return text;
    };
    using llama_runner::Runner;
    const std::string text =
        text_of(Runner(nullptr, "llama2", program, tokenizer, "", "", 0.0f, LLR_EVAL_MODE_AUTO));
    auto module = std::make_unique<Module>(program);
    return text_of(Runner(std::move(module), "llama2", "nowhere.pte", tokenizer, "", "", 0.0f, LLR_EVAL_MODE_AUTO)) == text &&
           text_of(Runner(std::make_shared<Module>(program), "llama2", "", tokenizer, "", "", 0.0f, LLR_EVAL_MODE_AUTO)) ==
               text;
}

// The program in this library's runtime, in a Module that the runner owns, and in one that stays here, for two runners.
bool compare(const std::string &tokenizer, const std::string &program, int new_tokens)
{
    auto options = options_for(tokenizer);
    check(llr_runner_options_set_model_path(options.get(), program.data(), program.size()), "model");
    const Tokens native = generate(runner_of(options.get()).get(), new_tokens);

    options = options_for(tokenizer);
    check(llama_runner::set_executorch_module(options.get(), std::make_unique<Module>(program)), "owned module");
    const auto owner = runner_of(options.get());
    options.reset();
    bool equal = generate(owner.get(), new_tokens) == native;
    equal = generate(owner.get(), new_tokens) == native && equal;

    Module borrowed(program);
    options = options_for(tokenizer);
    check(llama_runner::set_executorch_module(options.get(), borrowed), "borrowed module");
    for (int round = 0; round < 2; ++round) {
        equal = generate(runner_of(options.get()).get(), new_tokens) == native && equal;
    }

    equal = by_runner(tokenizer, program, new_tokens) && equal;

    std::cout << program << ':';
    for (const auto token : native) {
        std::cout << ' ' << token;
    }
    std::cout << (equal ? " equal" : " differ") << std::endl;
    return equal;
}

// ExecuTorch's error comes through with its number and its name.
bool fails_as_executorch_says(const std::string &tokenizer)
{
    const auto options = options_for(tokenizer);
    check(llama_runner::set_executorch_module(options.get(), std::make_unique<Module>("nowhere.pte")), "module");
    const auto runner = runner_of(options.get());
    const llr_status status = llr_runner_load(runner.get());
    const std::string words = last_error();
    std::cout << llr_status_name(status) << ": " << words << std::endl;
    return status == LLR_STATUS_ACCESS_FAILED && words.find("AccessFailed (0x22)") != std::string::npos;
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc < 4) {
        std::cerr << "usage: both_ways TOKENIZER NEW_TOKENS PROGRAM...\n";
        return 2;
    }
    bool good = fails_as_executorch_says(argv[1]);
    for (int i = 3; i < argc; ++i) {
        good = compare(argv[1], argv[i], std::atoi(argv[2])) && good;
    }
    return good ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
