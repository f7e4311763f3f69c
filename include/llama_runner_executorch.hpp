// ExecuTorch's Module under llama-runner: every backend and kernel that the host links ExecuTorch with runs the program, and
// this library does the rest. Header-only C++17; needs ExecuTorch's headers (1.5 or later) and llama_runner.hpp.
//
//     auto options = llr_runner_options_new();
//     llr_runner_options_set_tokenizer_path(options, path, path_len);
//     llama_runner::set_executorch_module(options, std::make_unique<executorch::extension::Module>("model.pte"));
//
// With this header, llama_runner::Runner lets the Module that its constructor is given run the program, as upstream's does.
//
// Methods run on the thread that loads or runs the runner. Errors of ExecuTorch come back with their number as llr_status,
// and with their name in llr_last_error_message; exceptions stay on this side.
#ifndef LLAMA_RUNNER_EXECUTORCH_HPP
#define LLAMA_RUNNER_EXECUTORCH_HPP

#include "llama_runner.hpp"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#ifdef USE_ATEN_LIB
#error "llama_runner_executorch.hpp is for ExecuTorch's own tensors, not for a build with USE_ATEN_LIB"
#endif

namespace llama_runner {

// A Module as llr_module_table sees it. What `new` made is released by the table.
//
// Inputs and outputs without planned memory are pointed at the runner's; planned ones are copied in before and out after
// each execution. While a runner has it, nobody else may use or change the Module.
class ExecutorchModule {
public:
    using Error = executorch::runtime::Error;
    using EValue = executorch::runtime::EValue;
    using Module = executorch::extension::Module;
    using Tensor = executorch::aten::Tensor;
    // Gives, and forgets, more words on what went wrong, where the host keeps them; may be empty.
    using Details = std::string (*)();

    explicit ExecutorchModule(std::shared_ptr<Module> module, Details details = nullptr)
        : module_(std::move(module)), details_(details)
    {
    }
    ExecutorchModule(const ExecutorchModule &) = delete;
    ExecutorchModule &operator=(const ExecutorchModule &) = delete;

    static const llr_module_table &table() noexcept
    {
        static const llr_module_table made = make_table();
        return made;
    }

private:
    using Sizes = std::vector<executorch::aten::SizesType>;
    using Value = std::variant<std::monostate, std::int64_t, double, bool, std::string>;

    // An input or output.
    struct Slot {
        bool is_tensor = false;
        bool dynamic = false;
        bool planned = false;
        // Whether the Module does not know of `bound` yet.
        bool stale = false;
        executorch::aten::ScalarType type = executorch::aten::ScalarType::Float;
        Sizes largest;
        Sizes current;
        std::size_t bytes = 0;
        void *data = nullptr;
        executorch::extension::TensorPtr bound;

        void point()
        {
            bound = data == nullptr ? nullptr : executorch::extension::from_blob(data, current, type);
            stale = data != nullptr;
        }
    };

    struct LoadedMethod {
        std::string name;
        std::vector<Slot> inputs;
        std::vector<Slot> outputs;
    };

    // Runs the body of a callback: no exception leaves it, and what went wrong is kept as words.
    template <typename Body> static std::int32_t guard(void *module, Body body) noexcept
    {
        auto &self = *static_cast<ExecutorchModule *>(module);
        try {
            self.words_.clear();
            if (self.details_ != nullptr) {
                // What was kept until now is of earlier calls, of whatever module.
                static_cast<void>(self.details_());
            }
            const Error error = body(self);
            if (error != Error::Ok && self.details_ != nullptr) {
                const std::string details = self.details_();
                self.words_ += self.words_.empty() || details.empty() ? "" : ": ";
                self.words_ += details;
            }
            return static_cast<std::int32_t>(error);
        } catch (const std::bad_alloc &) {
            self.say("out of memory");
            return static_cast<std::int32_t>(Error::MemoryAllocationFailed);
        } catch (const std::exception &exception) {
            self.say(exception.what());
        } catch (...) {
            self.say("an exception of an unknown type");
        }
        return static_cast<std::int32_t>(Error::Internal);
    }

    void say(const char *words) noexcept
    {
        try {
            words_ = words;
        } catch (...) {
            words_.clear();
        }
    }

    // Keeps words for an error, and gives it back.
    Error refuse(Error error, std::string words)
    {
        words_ = std::move(words);
        return error;
    }

    Error load()
    {
        if (module_->is_loaded() && module_->program() != nullptr) {
            return Error::Ok;
        }
        const Error error = module_->load();
        return error == Error::Ok ? error : refuse(error, "the program cannot be loaded");
    }

    LoadedMethod *method(std::uint32_t id)
    {
        return id < methods_.size() ? &methods_[id] : nullptr;
    }

    Slot *slot(std::uint32_t id, std::size_t index, std::vector<Slot> LoadedMethod::*side)
    {
        LoadedMethod *found = method(id);
        return found == nullptr || index >= (found->*side).size() ? nullptr : &(found->*side)[index];
    }

    Error evaluate(const std::string &name)
    {
        values_.clear();
        const auto meta = module_->method_meta(name);
        if (!meta.ok()) {
            return meta.error();
        }
        if (meta->num_inputs() != 0) {
            return refuse(Error::InvalidArgument, "the method takes inputs");
        }
        const bool was_loaded = module_->is_method_loaded(name);
        {
            auto outputs = module_->execute(name);
            if (!outputs.ok()) {
                return outputs.error();
            }
            for (const EValue &output : *outputs) {
                if (!take(output)) {
                    return refuse(Error::InvalidType, "the method gives tensors");
                }
            }
        }
        if (!was_loaded) {
            module_->unload_method(name);
        }
        return Error::Ok;
    }

    // Keeps a value, a list as its elements. False for what has no place here.
    bool take(const EValue &value)
    {
        const auto take_all = [this](const auto &list) {
            for (const auto element : list) {
                values_.emplace_back(element);
            }
        };
        if (value.isInt()) {
            values_.emplace_back(value.toInt());
        } else if (value.isDouble()) {
            values_.emplace_back(value.toDouble());
        } else if (value.isBool()) {
            values_.emplace_back(value.toBool());
        } else if (value.isString()) {
            values_.emplace_back(std::string(value.toString()));
        } else if (value.isNone()) {
            values_.emplace_back();
        } else if (value.isIntList()) {
            take_all(value.toIntList());
        } else if (value.isDoubleList()) {
            take_all(value.toDoubleList());
        } else if (value.isBoolList()) {
            take_all(value.toBoolList());
        } else {
            return false;
        }
        return true;
    }

    Error load_method(const std::string &name, std::uint32_t &id)
    {
        const auto same = [&](const LoadedMethod &loaded) { return loaded.name == name; };
        const auto found = std::find_if(methods_.begin(), methods_.end(), same);
        id = static_cast<std::uint32_t>(found - methods_.begin());
        if (found != methods_.end()) {
            return Error::Ok;
        }
        const Error error = module_->load_method(name);
        if (error != Error::Ok) {
            return error;
        }
        const auto meta = module_->method_meta(name);
        if (!meta.ok()) {
            return meta.error();
        }
        LoadedMethod loaded{name, {}, {}};
        for (std::size_t i = 0; i < meta->num_inputs(); ++i) {
            const auto value = input(name, i);
            if (!value.ok()) {
                return value.error();
            }
            loaded.inputs.push_back(describe(**value, meta->input_tensor_meta(i)));
        }
        for (std::size_t i = 0; i < meta->num_outputs(); ++i) {
            const auto value = module_->get_output(name, i);
            if (!value.ok()) {
                return value.error();
            }
            loaded.outputs.push_back(describe(*value, meta->output_tensor_meta(i)));
        }
        if (meta->uses_backend("QnnBackend") && !says_what_it_takes(loaded)) {
            return refuse(Error::NotSupported,
                          "it states floats for what QNN stores as integers of 8 and 16 bits, which ExecuTorch takes at its "
                          "word: this library's own runtime reads the types from the QNN context instead");
        }
        methods_.push_back(std::move(loaded));
        return Error::Ok;
    }

    // Which sizes may change is told by nothing else.
    executorch::runtime::Result<const EValue *> input(const std::string &name, std::size_t index)
    {
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
        const auto method = module_->method(name);
        if (!method.ok()) {
            return method.error();
        }
        return &(*method)->get_input(index);
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
    }

    static Slot describe(const EValue &value, const executorch::runtime::Result<executorch::runtime::TensorInfo> &info)
    {
        Slot slot;
        if (!value.isTensor() || !info.ok()) {
            return slot;
        }
        const auto dynamism = value.toTensor().unsafeGetTensorImpl()->shape_dynamism();
        slot.is_tensor = true;
        slot.dynamic = dynamism != executorch::aten::TensorShapeDynamism::STATIC;
        slot.planned = info->is_memory_planned();
        slot.type = info->scalar_type();
        slot.largest.assign(info->sizes().begin(), info->sizes().end());
        slot.current = slot.largest;
        slot.bytes = info->nbytes();
        return slot;
    }

    // Exports until the spring of 2026 state floats for everything; since then only those that really take them, which then
    // say that keys and values have 32 bits.
    bool says_what_it_takes(const LoadedMethod &loaded)
    {
        const auto is_float = [](const Slot &slot) {
            return slot.is_tensor && slot.type == executorch::aten::ScalarType::Float;
        };
        if (std::none_of(loaded.inputs.begin(), loaded.inputs.end(), is_float)) {
            return true;
        }
        const std::string name = "get_kv_io_bit_width";
        if (!module_->method_meta(name).ok() || evaluate(name) != Error::Ok || values_.empty()) {
            return false;
        }
        const auto *bits = std::get_if<std::int64_t>(&values_[0]);
        return bits != nullptr && *bits == 32;
    }

    Error bind(Slot *slot, void *data, std::size_t byte_len)
    {
        if (slot == nullptr || !slot->is_tensor || byte_len != (data == nullptr ? 0 : slot->bytes)) {
            return Error::InvalidArgument;
        }
        slot->data = data;
        slot->point();
        return Error::Ok;
    }

    Error resize(Slot *slot, const std::int64_t *sizes, std::size_t rank)
    {
        if (slot == nullptr || !slot->dynamic || rank != slot->largest.size()) {
            return Error::InvalidArgument;
        }
        std::int64_t left = static_cast<std::int64_t>(slot->bytes);
        Sizes asked;
        for (std::size_t i = 0; i < rank; ++i) {
            if (sizes[i] < 0 || sizes[i] > left) {
                return Error::InvalidArgument;
            }
            left /= std::max<std::int64_t>(sizes[i], 1);
            asked.push_back(static_cast<executorch::aten::SizesType>(sizes[i]));
        }
        slot->current = std::move(asked);
        slot->point();
        return Error::Ok;
    }

    Error execute(std::uint32_t id)
    {
        LoadedMethod *loaded = method(id);
        if (loaded == nullptr) {
            return Error::InvalidArgument;
        }
        for (std::size_t i = 0; i < loaded->inputs.size(); ++i) {
            Slot &slot = loaded->inputs[i];
            if (slot.bound != nullptr && (slot.planned || slot.stale)) {
                const Error error = module_->set_input(loaded->name, EValue(slot.bound), i);
                if (error != Error::Ok) {
                    return refuse(error, "input " + std::to_string(i) + " is refused");
                }
                slot.stale = false;
            }
        }
        for (std::size_t i = 0; i < loaded->outputs.size(); ++i) {
            Slot &slot = loaded->outputs[i];
            if (slot.bound != nullptr && !slot.planned && slot.stale) {
                const Error error = module_->set_output(loaded->name, EValue(slot.bound), i);
                if (error != Error::Ok) {
                    return refuse(error, "output " + std::to_string(i) + " is refused");
                }
                slot.stale = false;
            }
        }
        const auto outputs = module_->execute(loaded->name);
        if (!outputs.ok()) {
            return outputs.error();
        }
        for (std::size_t i = 0; i < std::min(outputs->size(), loaded->outputs.size()); ++i) {
            const Slot &slot = loaded->outputs[i];
            if (slot.bound == nullptr || !slot.planned || !(*outputs)[i].isTensor()) {
                continue;
            }
            const Tensor &tensor = (*outputs)[i].toTensor();
            if (tensor.nbytes() > slot.bytes) {
                return refuse(Error::Internal, "output " + std::to_string(i) + " is larger than its largest size");
            }
            if (tensor.const_data_ptr() != slot.data) {
                std::memcpy(slot.data, tensor.const_data_ptr(), tensor.nbytes());
            }
        }
        return Error::Ok;
    }

    Error output(std::uint32_t id, std::size_t index, llr_module_tensor &out)
    {
        if (slot(id, index, &LoadedMethod::outputs) == nullptr) {
            return Error::InvalidArgument;
        }
        const auto value = module_->get_output(methods_[id].name, index);
        if (!value.ok()) {
            return value.error();
        }
        if (!value->isTensor()) {
            return Error::InvalidType;
        }
        const Tensor &tensor = value->toTensor();
        out.dtype = static_cast<std::int32_t>(tensor.scalar_type());
        put_sizes(tensor.sizes(), out);
        out.data = tensor.const_data_ptr();
        out.byte_len = tensor.nbytes();
        return Error::Ok;
    }

    template <typename List> static void put_sizes(const List &sizes, llr_module_tensor &out)
    {
        out.rank = sizes.size();
        const std::size_t count = std::min<std::size_t>(sizes.size(), LLR_MODULE_MAX_RANK);
        std::copy_n(sizes.begin(), count, out.sizes);
    }

    static Error put_info(const Slot *slot, llr_module_tensor &out)
    {
        if (slot == nullptr) {
            return Error::InvalidArgument;
        }
        if (!slot->is_tensor) {
            out.dtype = LLR_MODULE_NO_TENSOR;
            return Error::Ok;
        }
        out.dtype = static_cast<std::int32_t>(slot->type);
        out.flags = (slot->dynamic ? LLR_MODULE_TENSOR_DYNAMIC : 0u) | (slot->planned ? LLR_MODULE_TENSOR_PLANNED : 0u);
        put_sizes(slot->largest, out);
        return Error::Ok;
    }

    static void put_value(const Value &value, llr_module_value &out)
    {
        if (const auto *integer = std::get_if<std::int64_t>(&value)) {
            out.kind = LLR_MODULE_VALUE_KIND_INT;
            out.integer = *integer;
        } else if (const auto *real = std::get_if<double>(&value)) {
            out.kind = LLR_MODULE_VALUE_KIND_DOUBLE;
            out.real = *real;
        } else if (const auto *boolean = std::get_if<bool>(&value)) {
            out.kind = LLR_MODULE_VALUE_KIND_BOOL;
            out.integer = *boolean ? 1 : 0;
        } else if (const auto *text = std::get_if<std::string>(&value)) {
            out.kind = LLR_MODULE_VALUE_KIND_STRING;
            out.text = text->data();
            out.text_len = text->size();
        } else {
            out.kind = LLR_MODULE_VALUE_KIND_NONE;
        }
    }

    static llr_module_table make_table() noexcept
    {
        llr_module_table table{};
        table.struct_size = sizeof(table);
        table.version = LLR_MODULE_TABLE_VERSION;
        table.release = [](void *module) { delete static_cast<ExecutorchModule *>(module); };
        table.last_error = [](void *module, char *buffer, std::size_t buffer_len) {
            const std::string &words = static_cast<ExecutorchModule *>(module)->words_;
            std::memcpy(buffer, words.data(), std::min(words.size(), buffer_len));
            return words.size();
        };
        table.method_count = [](void *module, std::size_t *out_count) {
            return guard(module, [&](ExecutorchModule &self) {
                const Error error = self.load();
                *out_count = error == Error::Ok ? self.module_->program()->num_methods() : 0;
                return error;
            });
        };
        table.method_name = [](void *module, std::size_t index, const char **out_name, std::size_t *out_name_len) {
            return guard(module, [&](ExecutorchModule &self) {
                const auto name = self.module_->program()->get_method_name(index);
                if (name.ok()) {
                    *out_name = *name;
                    *out_name_len = std::strlen(*name);
                }
                return name.error();
            });
        };
        table.evaluate = [](void *module, const char *name, std::size_t name_len, std::size_t *out_count) {
            return guard(module, [&](ExecutorchModule &self) {
                const Error error = self.evaluate(std::string(name, name_len));
                *out_count = self.values_.size();
                return error;
            });
        };
        table.value = [](void *module, std::size_t index, llr_module_value *out_value) {
            return guard(module, [&](ExecutorchModule &self) {
                if (index >= self.values_.size()) {
                    return Error::InvalidArgument;
                }
                put_value(self.values_[index], *out_value);
                return Error::Ok;
            });
        };
        table.load_method = [](void *module, const char *name, std::size_t name_len, std::uint32_t *out_method) {
            return guard(module, [&](ExecutorchModule &self) {
                return self.load_method(std::string(name, name_len), *out_method);
            });
        };
        table.input_count = [](void *module, std::uint32_t method, std::size_t *out_count) {
            return guard(module, [&](ExecutorchModule &self) {
                const LoadedMethod *loaded = self.method(method);
                *out_count = loaded == nullptr ? 0 : loaded->inputs.size();
                return loaded == nullptr ? Error::InvalidArgument : Error::Ok;
            });
        };
        table.output_count = [](void *module, std::uint32_t method, std::size_t *out_count) {
            return guard(module, [&](ExecutorchModule &self) {
                const LoadedMethod *loaded = self.method(method);
                *out_count = loaded == nullptr ? 0 : loaded->outputs.size();
                return loaded == nullptr ? Error::InvalidArgument : Error::Ok;
            });
        };
        table.input_info = [](void *module, std::uint32_t method, std::size_t index, llr_module_tensor *out_info) {
            return guard(module, [&](ExecutorchModule &self) {
                return put_info(self.slot(method, index, &LoadedMethod::inputs), *out_info);
            });
        };
        table.output_info = [](void *module, std::uint32_t method, std::size_t index, llr_module_tensor *out_info) {
            return guard(module, [&](ExecutorchModule &self) {
                return put_info(self.slot(method, index, &LoadedMethod::outputs), *out_info);
            });
        };
        table.bind_input = [](void *module, std::uint32_t method, std::size_t index, const void *data,
                              std::size_t byte_len) {
            return guard(module, [&](ExecutorchModule &self) {
                return self.bind(self.slot(method, index, &LoadedMethod::inputs), const_cast<void *>(data), byte_len);
            });
        };
        table.bind_output = [](void *module, std::uint32_t method, std::size_t index, void *data,
                               std::size_t byte_len) {
            return guard(module, [&](ExecutorchModule &self) {
                return self.bind(self.slot(method, index, &LoadedMethod::outputs), data, byte_len);
            });
        };
        table.resize_input = [](void *module, std::uint32_t method, std::size_t index, const std::int64_t *sizes,
                                std::size_t rank) {
            return guard(module, [&](ExecutorchModule &self) {
                return self.resize(self.slot(method, index, &LoadedMethod::inputs), sizes, rank);
            });
        };
        table.execute = [](void *module, std::uint32_t method) {
            return guard(module, [&](ExecutorchModule &self) { return self.execute(method); });
        };
        table.output = [](void *module, std::uint32_t method, std::size_t index, llr_module_tensor *out_output) {
            return guard(module, [&](ExecutorchModule &self) { return self.output(method, index, *out_output); });
        };
        return table;
    }

    std::shared_ptr<Module> module_;
    Details details_;
    std::vector<LoadedMethod> methods_;
    std::vector<Value> values_;
    std::string words_;
};

// Lets `module` run the program of the runners that are made of `options`; see llr_runner_options_set_host_module. It is
// shared, and given up when the last of them is freed.
inline llr_status set_executorch_module(llr_runner_options *options,
                                        std::shared_ptr<executorch::extension::Module> module) noexcept
{
    if (module == nullptr) {
        return LLR_STATUS_INVALID_ARGUMENT;
    }
    try {
        auto host = std::make_unique<ExecutorchModule>(std::move(module));
        const llr_status status = llr_runner_options_set_host_module(options, &ExecutorchModule::table(), host.get());
        if (status == LLR_STATUS_OK) {
            static_cast<void>(host.release());
        }
        return status;
    } catch (...) {
        return LLR_STATUS_MEMORY_ALLOCATION_FAILED;
    }
}

// The same with a module that stays the caller's and must outlive the options and the runners.
inline llr_status set_executorch_module(llr_runner_options *options, executorch::extension::Module &module) noexcept
{
    using Module = executorch::extension::Module;
    return set_executorch_module(options, std::shared_ptr<Module>(std::shared_ptr<Module>(), &module));
}

inline namespace LLAMA_RUNNER_TYPES {
namespace detail {

template <typename Module> struct GivenExecutorchModule {
    static bool take(std::shared_ptr<Module> module, Options &options)
    {
        if (module == nullptr) {
            return false;
        }
        options.more = [module = std::move(module)](llr_runner_options *to) { return set_executorch_module(to, module); };
        return true;
    }
};
template <>
struct GivenModule<std::unique_ptr<executorch::extension::Module>>
    : GivenExecutorchModule<executorch::extension::Module> {
};
template <>
struct GivenModule<std::shared_ptr<executorch::extension::Module>>
    : GivenExecutorchModule<executorch::extension::Module> {
};

} // namespace detail
} // namespace LLAMA_RUNNER_TYPES

} // namespace llama_runner

#endif
