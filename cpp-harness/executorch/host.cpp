// Runs an exported program in ExecuTorch itself and prints the greedy token ids: the prompt's, then those that follow.
//
//     host PROGRAM STEPS ID...
//
// Links against ExecuTorch's Python wheel; needs nothing of this project.
#include "decode_loop.h"

#include <cstdlib>
#include <iostream>

int main(int argc, char **argv)
try {
    if (argc < 4) {
        std::cerr << "usage: host PROGRAM STEPS ID...\n";
        return 2;
    }
    executorch::extension::Module module(argv[1]);
    decode_loop::check("load", module.load());
    const auto loop = decode_loop::open(module);
    std::vector<std::int64_t> ids;
    for (int i = 3; i < argc; ++i) {
        ids.push_back(std::atoll(argv[i]));
    }
    loop->prefill(ids);
    for (int step = 0, steps = std::atoi(argv[2]); step < steps; ++step) {
        if (step > 0) {
            loop->step(ids.back());
        }
        ids.push_back(loop->choice());
    }
    for (const auto id : ids) {
        std::cout << id << ' ';
    }
    std::cout << '\n';
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
