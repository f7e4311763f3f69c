// libllr_module_executorch.so: ExecuTorch's Module for programs that load it at run time, as `--module executorch` and
// llr_runner_options_set_module_library do. What ExecuTorch logs as an error goes into the library's error text instead of
// stderr; the rest of its log is dropped.
#include "llama_runner_executorch.hpp"

#include <executorch/runtime/platform/platform.h>

#include <mutex>
#include <type_traits>

using executorch::extension::Module;

namespace {

// Longest text that is kept of the log.
constexpr std::size_t MAX_LOG = 2048;

struct Log {
    std::mutex mutex;
    std::string text;

    // Never destroyed: threads of ExecuTorch's may log while the program ends.
    static Log &instance()
    {
        static auto *log = new Log;
        return *log;
    }
};

void on_log(et_timestamp_t, et_pal_log_level_t level, const char *, const char *, std::size_t, const char *message,
            std::size_t length)
{
    if (level != et_pal_log_level_t::kError && level != et_pal_log_level_t::kFatal) {
        return;
    }
    Log &log = Log::instance();
    const std::lock_guard<std::mutex> lock(log.mutex);
    try {
        const std::size_t room = MAX_LOG - std::min(MAX_LOG, log.text.size());
        log.text += log.text.empty() || room == 0 ? "" : "; ";
        log.text.append(message, std::min(length, room));
    } catch (...) {
        log.text.clear();
    }
}

std::string take_log()
{
    Log &log = Log::instance();
    const std::lock_guard<std::mutex> lock(log.mutex);
    return std::exchange(log.text, {});
}

// Methods called prefill and decode share their cache, which the Module must be told.
std::unique_ptr<Module> open(const char *path, const std::vector<std::string> &data)
{
    const auto make = [&](bool shared) {
        return std::make_unique<Module>(path, data, Module::LoadMode::Mmap, nullptr, nullptr, nullptr, shared);
    };
    auto module = make(false);
    const auto names = module->method_names();
    if (names.ok() && names->count("prefill") != 0 && names->count("decode") != 0) {
        module = make(true);
    }
    return module;
}

} // namespace

extern "C" __attribute__((visibility("default"))) std::int32_t
llr_module_open_v1(const char *path, const char *const *data_paths, std::size_t data_path_count,
                   const llr_module_table **out_table, void **out_module) noexcept
{
    try {
        static const bool registered =
            executorch::runtime::register_pal(executorch::runtime::PalImpl::create(on_log, __FILE__));
        static_cast<void>(registered);
        const std::vector<std::string> data(data_paths, data_paths + data_path_count);
        *out_module = new llama_runner::ExecutorchModule(open(path, data), take_log);
        *out_table = &llama_runner::ExecutorchModule::table();
        return LLR_STATUS_OK;
    } catch (const std::bad_alloc &) {
        return LLR_STATUS_MEMORY_ALLOCATION_FAILED;
    } catch (...) {
        return LLR_STATUS_INTERNAL;
    }
}

// What is built here is what the library asks for.
static_assert(std::is_convertible_v<decltype(&llr_module_open_v1), llr_module_open_function>);
