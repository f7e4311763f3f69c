// Streams a text: from the model that is built into the library, or from a program of yours.
//
//     app [PROMPT [MODEL.pte TOKENIZER]]
#include <llama_runner.hpp>

#include <iostream>
#include <string>

int main(int argc, char **argv)
{
    llama_runner::Options options;
    if (argc == 4) {
        options.model_path = argv[2];
        options.tokenizer_path = argv[3];
    } else if (argc > 2) {
        std::cerr << "usage: app [PROMPT [MODEL.pte TOKENIZER]]\n";
        return 2;
    }
    const std::string prompt = argc > 1 ? argv[1] : "Once upon a time";

    auto session = llama_runner::Session::create(options);
    if (!session.ok()) {
        std::cerr << session.status().text() << '\n';
        return 1;
    }

    llama_runner::TurnOptions turn;
    turn.max_new_tokens = 100;

    std::cout << prompt;
    const auto status = session->generate(prompt, turn, [](const llama_runner::Chunk &chunk) {
        std::cout << chunk.text() << std::flush;
        return true; // false stops
    });
    std::cout << '\n';
    if (!status.ok()) {
        std::cerr << status.text() << '\n';
        return 1;
    }
    return 0;
}
