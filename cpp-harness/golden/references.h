// What the library is compared with: a recorded run, ExecuTorch's own Module, or another program's text.
#pragma once

#include "comparison.h"
#include "json.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <unistd.h>
#include <vector>

#ifdef GOLDEN_EXECUTORCH
#include "../executorch/decode_loop.h"
#endif

namespace golden {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point from)
{
    return std::chrono::duration<double>(Clock::now() - from).count();
}

// A turn of one side.
struct Answer {
    std::vector<Step> steps;
    double prefill_seconds = 0, decode_seconds = 0;
};

// What integer codes of logits stand for.
struct Encoding {
    double scale = 0, zero_point = 0;

    bool known() const { return scale > 0; }
    float real(double code) const { return static_cast<float>((code - zero_point) * scale); }
};

inline std::string contents(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// The turns in a file of the JSON lines that --trace_path writes.
inline std::vector<Answer> read_trace(const std::string &path, const Encoding &encoding)
{
    std::vector<Answer> turns;
    std::ifstream file(path);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    std::string line;
    for (std::size_t number = 1; std::getline(file, line); ++number) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) {
            continue;
        }
        const auto fail = [&](const std::string &why) {
            throw std::runtime_error(path + ": line " + std::to_string(number) + ": " + why);
        };
        Json json;
        try {
            json = Json::parse(line);
        } catch (const std::exception &error) {
            fail(error.what());
        }
        if (json["turn"].kind() != Json::Kind::Number || json["token"].kind() != Json::Kind::Number) {
            fail("it has no \"turn\" or no \"token\"");
        }
        const double turn = json["turn"].number();
        if (turn == static_cast<double>(turns.size())) {
            turns.emplace_back();
        } else if (turn + 1 != static_cast<double>(turns.size())) {
            fail("its turn does not follow the one before");
        }
        Step step;
        step.token = static_cast<Token>(json["token"].number());
        const std::string &dtype = json["dtype"].text();
        const bool codes = dtype == "u8" || dtype == "u16" || dtype == "bits16";
        step.row.unit = codes && !encoding.known() ? dtype : "real";
        for (const Json &pair : json["top5"].list()) {
            // What JSON cannot hold is recorded as null.
            if (pair.list().size() == 2 && pair.list()[1].kind() == Json::Kind::Number) {
                const double logit = pair.list()[1].number();
                const float real = codes && encoding.known() ? encoding.real(logit) : static_cast<float>(logit);
                step.row.known.emplace_back(static_cast<Token>(pair.list()[0].number()), real);
            }
        }
        turns.back().steps.push_back(std::move(step));
    }
    if (turns.empty()) {
        throw std::runtime_error(path + ": no token is recorded");
    }
    return turns;
}

// A file of its own that is gone afterwards.
class TemporaryFile {
  public:
    TemporaryFile() : path_((std::filesystem::temp_directory_path() / "golden-XXXXXX").string())
    {
        const int file = ::mkstemp(path_.data());
        if (file < 0) {
            throw std::runtime_error("cannot make a file in " + std::filesystem::temp_directory_path().string());
        }
        ::close(file);
    }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile &operator=(const TemporaryFile &) = delete;
    ~TemporaryFile() { std::remove(path_.c_str()); }
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

// `text` as one word of a shell's command line.
inline std::string shell_word(const std::string &text)
{
    std::string word = "'";
    for (const char letter : text) {
        word += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    return word + "'";
}

// Runs the command line that `pattern` makes with its {names} filled in, and gives the text of its answer: the file
// that {output} names, where the pattern has it, else its standard output up to the line of its statistics. The prompt
// that runners echo in front and line ends behind are left out.
inline std::string external_answer(const std::string &pattern, std::map<std::string, std::string> names)
{
    const TemporaryFile output;
    names["output"] = output.path();
    std::string command;
    for (std::size_t at = 0; at < pattern.size(); ++at) {
        const std::size_t end = pattern[at] == '{' ? pattern.find('}', at) : std::string::npos;
        if (end == std::string::npos) {
            command += pattern[at];
            continue;
        }
        const auto found = names.find(pattern.substr(at + 1, end - at - 1));
        if (found == names.end()) {
            throw std::runtime_error("the command has " + pattern.substr(at, end - at + 1) +
                                     ", which is none of {model}, {tokenizer}, {prompt}, {output}, {max_new_tokens}");
        }
        command += shell_word(found->second);
        at = end;
    }
    std::string text;
    // The command line is the user's own.
    std::FILE *pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) {
        throw std::runtime_error("cannot run " + command);
    }
    char buffer[4096];
    for (std::size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        text.append(buffer, count);
    }
    if (::pclose(pipe) != 0) {
        throw std::runtime_error("the command failed: " + command);
    }
    if (pattern.find("{output}") != std::string::npos) {
        text = contents(names["output"]);
    } else {
        text.resize(std::min(text.size(), text.find("PyTorchObserver")));
    }
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
        text.pop_back();
    }
    const std::string &prompt = names["prompt"];
    return text.compare(0, prompt.size(), prompt) == 0 ? text.substr(prompt.size()) : text;
}

#ifdef GOLDEN_EXECUTORCH
// ExecuTorch's Module with a program of its own load.
class Executorch {
  public:
    explicit Executorch(const std::string &path) : module(path)
    {
        decode_loop::check("ExecuTorch: load " + path, module.load());
        const auto names = decode_loop::get("methods", module.method_names());
        const auto real = [&](const char *name) {
            const auto value = decode_loop::get(name, module.get(name));
            return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
        };
        if (names.count("get_logits_scale") != 0 && names.count("get_logits_zero_point") != 0) {
            encoding = {real("get_logits_scale"), real("get_logits_zero_point")};
        }
        loop = decode_loop::open(module);
    }

    // Greedy, until an end token or `most` tokens.
    template <typename IsEnd> Answer run(const std::vector<Token> &prompt, std::size_t most, IsEnd is_end)
    {
        Answer answer;
        auto began = Clock::now();
        loop->prefill({prompt.begin(), prompt.end()});
        answer.prefill_seconds = seconds_since(began);
        for (std::size_t position = prompt.size();; ++position) {
            const auto token = static_cast<Token>(loop->choice());
            answer.steps.push_back({token, row()});
            if (is_end(token) || answer.steps.size() == most || position + 1 >= loop->context()) {
                return answer;
            }
            began = Clock::now();
            loop->step(static_cast<std::int64_t>(token));
            answer.decode_seconds += seconds_since(began);
        }
    }

  private:
    Row row() const
    {
        Row row;
        row.all = loop->logits();
        if (loop->codes() && encoding.known()) {
            for (float &logit : row.all) {
                logit = encoding.real(static_cast<double>(logit));
            }
        } else if (loop->codes()) {
            row.unit = "u16";
        }
        return row;
    }

    executorch::extension::Module module;
    Encoding encoding;
    std::unique_ptr<decode_loop::DecodeLoop> loop;
};
#endif

} // namespace golden
