// The classes under upstream's namespaces; included by llama_runner.hpp when LLAMA_RUNNER_AS_UPSTREAM is defined.
#ifndef LLAMA_RUNNER_AS_UPSTREAM_HPP
#define LLAMA_RUNNER_AS_UPSTREAM_HPP

#include "runner.hpp"
#include "text_llm_runner.hpp"

namespace example {

using llama_runner::DecoderModelVersion;
#if LLAMA_RUNNER_AS_UPSTREAM + 0 == 2
template <typename> using Runner = llama_runner::Runner;
#else
using llama_runner::Runner;
#endif

using llama_runner::kCodegen;
using llama_runner::kGemma;
using llama_runner::kGemma2;
using llama_runner::kGemma3;
using llama_runner::kGemma4;
using llama_runner::kGlm;
using llama_runner::kGranite;
using llama_runner::kLlama2;
using llama_runner::kLlama3;
using llama_runner::kPhi4;
using llama_runner::kQwen2_5;
using llama_runner::kQwen3;
using llama_runner::kSmollm2_135m;
using llama_runner::kSmollm3;

} // namespace example

namespace executorch {
namespace extension {
namespace llm {

using llama_runner::create_text_llm_runner;
using llama_runner::load_tokenizer;
using llama_runner::TextLLMRunner;
#if !LLAMA_RUNNER_EXECUTORCH
using llama_runner::GenerationConfig;
using llama_runner::IRunner;
using llama_runner::Stats;
#endif

} // namespace llm
} // namespace extension

#if !LLAMA_RUNNER_EXECUTORCH
namespace llm {
using llama_runner::Stats;
} // namespace llm

namespace runtime {
using llama_runner::Error;
template <typename T> using Result = llama_runner::Result<T>;
} // namespace runtime
#endif

} // namespace executorch

#endif
