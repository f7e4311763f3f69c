// The main job in C++17: load a model, stream the answer to a prompt. With --tokens it prints token ids instead of text.
//
//     host_cpp17 [--tokens] [--eval-mode N] [--seq-len N] [--max-new-tokens N] [--qnn-lib-dir DIR] MODEL TOKENIZER PROMPT
#include "llama_runner.hpp"

#include <cstddef>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using llama_runner::Chunk;
using llama_runner::Status;

int refused(const char *doing, const Status &status)
{
    std::cerr << doing << ": " << status.text() << '\n';
    return 1;
}

int run(const std::vector<std::string> &arguments)
{
    bool print_tokens = false;
    std::map<std::string, std::string> flags;
    std::vector<std::string> positional;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--tokens") {
            print_tokens = true;
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

    llama_runner::Options options;
    options.model_path = positional[0];
    options.tokenizer_path = positional[1];
    llama_runner::TurnOptions turn;
    for (const auto &[flag, value] : flags) {
        if (flag == "--eval-mode") {
            options.eval_mode = std::stoi(value);
        } else if (flag == "--qnn-lib-dir") {
            options.qnn_lib_dir = value;
        } else if (flag == "--seq-len") {
            turn.seq_len = std::stoll(value);
        } else if (flag == "--max-new-tokens") {
            turn.max_new_tokens = std::stoll(value);
        } else {
            throw std::invalid_argument("unknown flag " + flag);
        }
    }

    auto session = llama_runner::Session::create(options);
    if (!session) {
        return refused("create", session.status());
    }
    if (const Status status = session->load(); !status) {
        return refused("load", status);
    }
    const auto print = [&](const Chunk &chunk) {
        if (!print_tokens) {
            std::cout << chunk.text() << std::flush;
        } else if (!chunk.is_final()) {
            std::cout << chunk.token_id() << ' ';
        }
        return true;
    };
    if (const Status status = session->generate(positional[2], turn, print); !status) {
        return refused("generate", status);
    }
    std::cout << '\n';
    std::cerr << "finish reason: " << session->finish_reason() << ", position: " << session->position() << " of "
              << session->context_length() << '\n';
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
