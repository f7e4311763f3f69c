// A host that knows executorch::extension::llm::IRunner only, as Android's and the desktop's do, with this library under
// it. Compiled against each revision of IRunner; prints the text of a turn of the built-in model.
#define LLAMA_RUNNER_AS_UPSTREAM 1
#include "llama_runner.hpp"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#if !LLAMA_RUNNER_EXECUTORCH
#error "ExecuTorch's headers were not found"
#endif

// ExecuTorch's classes are marked [[deprecated]], as things that may change; llama_runner.hpp knows.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace llm = ::executorch::extension::llm;
using ::executorch::runtime::Error;

static_assert(std::is_base_of_v<llm::IRunner, example::Runner>);
static_assert(std::is_base_of_v<llm::IRunner, llm::TextLLMRunner>);
static_assert(std::is_same_v<decltype(std::declval<example::Runner &>().get_decoder_model_version()),
                             ::executorch::runtime::Result<example::DecoderModelVersion>>);

namespace {

std::string turn(llm::IRunner &runner)
{
    llm::GenerationConfig config;
    config.max_new_tokens = 8;
    config.temperature = 0.0f;
    config.num_bos = 1;
    std::string text;
    long made = 0;
    const Error error = runner.generate(
        "Once upon a time", config, [&](const std::string &piece) { text += piece; },
        [&](const ::executorch::llm::Stats &stats) { made = static_cast<long>(stats.num_generated_tokens); });
    return error == Error::Ok && made == 7 && runner.is_loaded() ? text : "failed";
}

#if STAND_IN_REVISION >= 202603
// What a host does through IRunner: the parts that a runner of texts can take, and one that it cannot.
bool prefills_in_parts(llm::IRunner &runner)
{
    const std::vector<std::uint64_t> tokens{263, 931};
    const llm::MultimodalInput text(std::string("Once upon"));
    runner.reset();
    const auto next = runner.prefill({text, llm::MultimodalInput(tokens)}, 1);
    const auto image = runner.prefill({text, llm::MultimodalInput(llm::Image())});
    return next.ok() && image.error() == Error::NotSupported && runner.prefill({}).error() == Error::InvalidArgument;
}
#endif

} // namespace

int main()
{
    llama_runner::RunnerOptions built_in;
    built_in.temperature = 0.0f;
    const std::unique_ptr<llm::IRunner> runner = std::make_unique<example::Runner>(built_in);
    const std::unique_ptr<llm::IRunner> other = std::make_unique<llm::TextLLMRunner>(llama_runner::Options());
    const std::string text = turn(*runner);
    runner->stop();
#if STAND_IN_REVISION >= 202603
    if (!prefills_in_parts(*other)) {
        return 1;
    }
#endif
    example::Runner missing(nullptr, "llama2", "no-such.pte", "no-such.bin", "", "");
    if (text != turn(*other) || missing.load() != Error::AccessFailed || missing.get_decoder_model_version().ok()) {
        return 1;
    }
    std::cout << text << '\n';
    return 0;
}
