// Stands in for ExecuTorch's header of this name, which its Python package lacks: the same declarations, as the revision
// that STAND_IN_REVISION names (year and month) has them.
#pragma once

#include <executorch/extension/llm/runner/stats.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/result.h>

#include <cstdint>
#include <functional>
#include <string>

#if !defined(STAND_IN_REVISION)
#define STAND_IN_REVISION 202608
#endif

namespace executorch {
namespace extension {
namespace llm {

struct GenerationConfig {
    bool echo = true;
#if STAND_IN_REVISION >= 202605
    std::string grammar;
    std::string grammar_type;
#endif
#if STAND_IN_REVISION >= 202602
    bool ignore_eos = false;
#endif
    int32_t max_new_tokens = -1;
    bool warming = false;
    int32_t seq_len = -1;
    float temperature = 0.8f;
    int32_t num_bos = 0;
    int32_t num_eos = 0;
};

class IRunner {
public:
    virtual ~IRunner() = default;
    virtual bool is_loaded() const = 0;
    virtual runtime::Error load() = 0;
    virtual runtime::Error generate(const std::string &prompt, const GenerationConfig &config,
                                    std::function<void(const std::string &)> token_callback,
                                    std::function<void(const Stats &)> stats_callback) = 0;
#if STAND_IN_REVISION < 202509
    virtual runtime::Error generate_from_pos(const std::string &prompt, int64_t start_pos,
                                             const GenerationConfig &config,
                                             std::function<void(const std::string &)> token_callback,
                                             std::function<void(const Stats &)> stats_callback) = 0;
#endif
#if STAND_IN_REVISION >= 202602
    virtual runtime::Error prefill(const std::string &, const GenerationConfig & = {})
    {
        return runtime::Error::NotSupported;
    }
#endif
#if STAND_IN_REVISION >= 202608
    virtual runtime::Result<uint64_t> prefill(const std::string &, int32_t, int32_t)
    {
        return runtime::Error::NotSupported;
    }
#endif
    virtual void stop() = 0;
#if STAND_IN_REVISION >= 202509
    virtual void reset() = 0;
#endif
};

} // namespace llm
} // namespace extension
} // namespace executorch
