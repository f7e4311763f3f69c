// What a .pte is, without loading it.
#ifndef LLAMA_RUNNER_PROGRAM_HPP
#define LLAMA_RUNNER_PROGRAM_HPP

#include "status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llama_runner {
inline namespace LLAMA_RUNNER_TYPES {

// A program that was read. It never changes, so every thread may use it. Movable.
class Program {
public:
    struct Tensor {
        // "f32", "u16"; empty for what is no tensor.
        std::string dtype;
        std::vector<std::size_t> dims;
    };
    struct Method {
        std::string name;
        std::vector<Tensor> inputs;
        std::vector<Tensor> outputs;
    };

    static Result<Program> open(std::string_view path)
    {
        llr_program *program = nullptr;
        if (Status status = Status::from(llr_program_create(path.data(), path.size(), &program)); !status) {
            return status;
        }
        return Program(program);
    }

    llr_model_kind kind() const noexcept { return llr_program_kind(program_.get()); }
    // 0 for what the program does not say.
    std::size_t context_length() const noexcept { return llr_program_context_length(program_.get()); }
    std::size_t vocabulary_size() const noexcept { return llr_program_vocabulary_size(program_.get()); }
    std::size_t layer_count() const noexcept { return llr_program_layer_count(program_.get()); }
    std::size_t kv_bits() const noexcept { return llr_program_kv_bits(program_.get()); }
    bool allows(llr_eval_mode mode) const noexcept { return llr_program_allows_eval_mode(program_.get(), mode); }

    std::vector<Method> methods() const
    {
        std::vector<Method> methods(llr_program_method_count(program_.get()));
        for (std::size_t i = 0; i < methods.size(); ++i) {
            std::size_t len = 0;
            const char *name = llr_program_method_name(program_.get(), i, &len);
            methods[i] = {std::string(name, len), tensors(i, LLR_SIDE_INPUT), tensors(i, LLR_SIDE_OUTPUT)};
        }
        return methods;
    }
    std::vector<std::string> backends() const
    {
        std::vector<std::string> backends(llr_program_backend_count(program_.get()));
        for (std::size_t i = 0; i < backends.size(); ++i) {
            std::size_t len = 0;
            const char *name = llr_program_backend_name(program_.get(), i, &len);
            backends[i].assign(name, len);
        }
        return backends;
    }
    // The first integer that a constant method gives: "get_n_layers".
    Result<std::int64_t> constant(std::string_view name) const
    {
        std::int64_t value = 0;
        const llr_status code = llr_program_constant_int(program_.get(), name.data(), name.size(), &value);
        return code == LLR_STATUS_OK ? Result<std::int64_t>(value) : Status::from(code);
    }
    // Everything, as `llr inspect --json` prints it.
    Result<std::string> json() const
    {
        return detail::filled_text([&](char *buffer, std::size_t capacity, std::size_t *count) {
            return llr_program_to_json(program_.get(), buffer, capacity, count);
        });
    }

private:
    explicit Program(llr_program *program) : program_(program) {}

    std::vector<Tensor> tensors(std::size_t method, llr_side side) const
    {
        std::vector<Tensor> tensors(llr_program_tensor_count(program_.get(), method, side));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            std::size_t len = 0;
            const char *dtype = llr_program_tensor_dtype(program_.get(), method, side, i, &len);
            auto dims = detail::filled<std::vector<std::size_t>>(
                [&](std::size_t *buffer, std::size_t capacity, std::size_t *count) {
                    return llr_program_tensor_dims(program_.get(), method, side, i, buffer, capacity, count);
                });
            if (dims.ok()) {
                tensors[i] = {std::string(dtype, len), std::move(*dims)};
            }
        }
        return tensors;
    }

    std::unique_ptr<llr_program, detail::Deleter<llr_program_free>> program_;
};

} // namespace LLAMA_RUNNER_TYPES
} // namespace llama_runner

#endif
