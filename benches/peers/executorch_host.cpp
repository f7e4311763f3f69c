// ExecuTorch's own runtime behind the protocol of benches/forward_speed/peer.rs: the fastest host one can write for
// forward(tokens, input_pos) with the libraries of its Python package, which lack the custom operators (_sdpa programs).
// There is no tokenizer and no text: it is given the ids, and chooses the first of the largest logits.
//
// Compile, with E = the directory `executorch` of the installed or unzipped package (1.5.1):
//   g++ -O2 -std=c++17 -DC10_USING_CUSTOM_GENERATED_MACROS benches/peers/executorch_host.cpp -o executorch_host
//       -isystem $E/include -isystem $E/include/executorch/runtime/core/portable_type/c10 -L$E/lib -Wl,--no-as-needed
//       -lexecutorch -lexecutorch_backend_xnnpack -lexecutorch_kernels_quantized -lexecutorch_kernels_optimized
//       -lexecutorch_threadpool -Wl,-rpath,$E/lib
// Usage: executorch_host PROGRAM TOKENIZER THREADS

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

// The package has this library without its header.
namespace executorch::extension::threadpool {
class ThreadPool {
   public:
    bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

using executorch::extension::from_blob;
using executorch::extension::Module;

namespace {

struct Seconds {
    double clock;
    double processor;
};

Seconds now() {
    timespec processor;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &processor);
    const std::chrono::duration<double> clock = std::chrono::steady_clock::now().time_since_epoch();
    return {clock.count(), static_cast<double>(processor.tv_sec) + 1e-9 * static_cast<double>(processor.tv_nsec)};
}

[[noreturn]] void fail(const char* what, int code) {
    std::fprintf(stderr, "%s: error %d\n", what, code);
    std::exit(1);
}

// Feeds `ids` at `position`; the token that the last row of logits makes likeliest.
int64_t forward(Module& module, std::vector<int64_t>& ids, int64_t position) {
    const auto count = static_cast<executorch::aten::SizesType>(ids.size());
    auto tokens = from_blob(ids.data(), {1, count}, executorch::aten::ScalarType::Long);
    auto start = from_blob(&position, {1}, executorch::aten::ScalarType::Long);
    auto result = module.forward({tokens, start});
    if (!result.ok()) {
        fail("forward", static_cast<int>(result.error()));
    }
    const auto logits = result->at(0).toTensor();
    const auto vocabulary = logits.size(logits.dim() - 1);
    const float* end = logits.const_data_ptr<float>() + logits.numel();
    return std::max_element(end - vocabulary, end) - (end - vocabulary);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        fail("usage: executorch_host PROGRAM TOKENIZER THREADS", 2);
    }
    executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(
        static_cast<uint32_t>(std::atoi(argv[3])));
    Module module(argv[1]);
    const auto loaded = module.load_forward();
    if (loaded != executorch::runtime::Error::Ok) {
        fail("load", static_cast<int>(loaded));
    }
    const auto most = module.get("get_max_seq_len");
    const size_t chunk = most.ok() ? static_cast<size_t>(most->toInt()) : 1;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream fields(line);
        size_t wanted = 0;
        fields >> wanted;
        std::vector<int64_t> prompt;
        for (int64_t id; fields >> id;) {
            prompt.push_back(id);
        }
        const Seconds begin = now();
        int64_t next = 0;
        for (size_t at = 0; at < prompt.size(); at += chunk) {
            std::vector<int64_t> ids(prompt.begin() + at, prompt.begin() + std::min(prompt.size(), at + chunk));
            next = forward(module, ids, static_cast<int64_t>(at));
        }
        const Seconds first = now();
        for (size_t made = 1; made < wanted; ++made) {
            std::vector<int64_t> ids = {next};
            next = forward(module, ids, static_cast<int64_t>(prompt.size() + made - 1));
        }
        const Seconds last = now();
        rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        std::printf("{\"prompt\": %zu, \"tokens\": %zu, \"prefill\": [%.9f, %.9f], \"decode\": [%.9f, %.9f], \"peak\": %ld}\n",
                    prompt.size(), wanted, first.clock - begin.clock, first.processor - begin.processor,
                    last.clock - first.clock, last.processor - first.processor, usage.ru_maxrss * 1024);
        std::fflush(stdout);
    }
}
