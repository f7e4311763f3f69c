// Is this library the same as what it replaces? Runs prompts through a reference (side A) and the library (side B),
// prints tokens side by side and the first divergence with both sides' logits, and ends with 0 when the sides are equal,
// 1 when they diverge, 2 when they could not be compared.
//
//     golden_compare --model_path M --tokenizer_path T REFERENCE [OPTION]...
//
// The reference is one of
//     --recorded FILE      a run recorded with --trace_path; --prompt once for each of its turns
//     --executorch         ExecuTorch's own Module on the same program; needs a build with -DEXECUTORCH_DIR=…
//     --external COMMAND   another program's text, as in
//                          'llama_main --model_path {model} --tokenizer_path {tokenizer} --prompt {prompt}
//                           --temperature 0 --max_new_tokens {max_new_tokens}' or, where it writes a file,
//                          'qnn_llama_runner … --output_path {output}'
// Options
//     --prompt TEXT        may be given several times
//     --max_new_tokens N   64
//     --num_bos N          1
//     --max_gap PART       1% or 0.01: different choices are a close call, and no divergence, when on each side the
//                          other's choice is behind its own by no more than this part of the row's range
//     --teacher_forced     the library is fed the reference's tokens; what it would have chosen is compared each time
//     --logits_scale S, --logits_zero_point Z
//                          what recorded integer logits stand for, as llr inspect shows it
//     --eval_mode N, --kv_updater N, --qnn_lib_dir DIR, --decoder_model_version NAME, --cpu_threads N
//                          as in llama_runner.h
//     --json FILE          everything that was found, as JSON
#include "library.h"

#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>

using namespace golden;

namespace {

struct Arguments {
    std::map<std::string, std::string> values;
    std::vector<std::string> prompts;
    std::set<std::string> switches;

    Arguments(int argc, char **argv)
    {
        const std::set<std::string> known = {
            "model_path",    "tokenizer_path",    "recorded",  "external",   "max_new_tokens", "num_bos",
            "max_gap",       "logits_scale",      "json",      "eval_mode",  "kv_updater",     "qnn_lib_dir",
            "cpu_threads",   "logits_zero_point", "decoder_model_version"};
        for (int i = 1; i < argc; ++i) {
            std::string name = argv[i];
            if (name.rfind("--", 0) != 0) {
                throw std::invalid_argument("not an option: " + name);
            }
            name.erase(0, 2);
            if (name == "executorch" || name == "teacher_forced") {
                switches.insert(name);
                continue;
            }
            const std::size_t equals = name.find('=');
            std::string value;
            if (equals != std::string::npos) {
                value = name.substr(equals + 1);
                name.resize(equals);
            } else if (i + 1 < argc) {
                value = argv[++i];
            } else {
                throw std::invalid_argument("--" + name + " needs a value");
            }
            if (name == "prompt") {
                prompts.push_back(value);
            } else if (known.count(name) != 0) {
                values[name] = value;
            } else {
                throw std::invalid_argument("unknown option --" + name);
            }
        }
        if (prompts.empty()) {
            prompts.emplace_back("Once upon a time");
        }
        if (text("recorded").empty() + text("external").empty() + (switches.count("executorch") == 0) != 2) {
            throw std::invalid_argument("one reference is needed: --recorded, --executorch or --external");
        }
    }

    std::string text(const std::string &name) const
    {
        const auto found = values.find(name);
        return found == values.end() ? "" : found->second;
    }

    double number(const std::string &name, double otherwise) const
    {
        const std::string value = text(name);
        if (value.empty()) {
            return otherwise;
        }
        std::size_t used = 0;
        const double number = std::stod(value, &used);
        if (used == value.size()) {
            return number;
        }
        if (value.substr(used) != "%") {
            throw std::invalid_argument("--" + name + ": no number: " + value);
        }
        return number / 100;
    }
};

Options options_of(const Arguments &arguments)
{
    Options options(llr_runner_options_new());
    const auto text = [&](const char *name, llr_status (*set)(llr_runner_options *, const char *, std::size_t)) {
        const std::string value = arguments.text(name);
        if (!value.empty()) {
            check(name, set(options.get(), value.data(), value.size()));
        }
    };
    const auto number = [&](const char *name, llr_status (*set)(llr_runner_options *, std::int32_t)) {
        if (!arguments.text(name).empty()) {
            check(name, set(options.get(), static_cast<std::int32_t>(arguments.number(name, 0))));
        }
    };
    text("model_path", llr_runner_options_set_model_path);
    text("tokenizer_path", llr_runner_options_set_tokenizer_path);
    text("qnn_lib_dir", llr_runner_options_set_qnn_lib_dir);
    text("decoder_model_version", llr_runner_options_set_decoder_model_version);
    number("eval_mode", llr_runner_options_set_eval_mode);
    number("kv_updater", llr_runner_options_set_kv_updater);
    number("cpu_threads", llr_runner_options_set_cpu_threads);
    return options;
}

// One prompt, and what came of it.
struct Result {
    std::string prompt;
    Answer a, b;
    Found found;
    // Of the reference that gives text alone.
    std::optional<std::string> text_a;
};

std::string shown(const Library &library, Token token)
{
    return std::to_string(token) + ' ' + json_text(library.piece(token, token));
}

std::string answer_text(const Library &library, const std::vector<Step> &steps)
{
    std::string text;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        text += library.piece(steps[i == 0 ? 0 : i - 1].token, steps[i].token);
    }
    return text;
}

// Texts have no steps: the first byte that differs is in the step of side B that made it.
Found compare_texts(const Library &library, const std::string &a, const std::vector<Step> &b)
{
    Found found;
    std::size_t at = 0;
    for (std::size_t i = 0; i < b.size(); ++i, ++found.compared) {
        std::string piece = library.piece(b[i == 0 ? 0 : i - 1].token, b[i].token);
        if (library.is_end(b[i].token) && a.compare(at, piece.size(), piece) != 0) {
            // Some runners print the end token, others do not.
            piece.clear();
        }
        if (a.compare(at, piece.size(), piece) != 0) {
            // What runners strip from the end of a text is no difference.
            const bool blank = at + piece.size() > a.size() && piece.find_last_not_of("\r\n") == std::string::npos;
            if (!blank) {
                break;
            }
        }
        at = std::min(a.size(), at + piece.size());
    }
    if (found.compared < b.size() || at < a.size()) {
        Divergence first;
        first.step = found.compared;
        if (first.step < b.size()) {
            first.b = b[first.step].token;
            first.largest_b = b[first.step].row.largest();
        }
        found.differing = 1;
        found.first = std::move(first);
    }
    return found;
}

void print_divergence(const Library &library, const Result &result)
{
    const Divergence &first = *result.found.first;
    const auto what = [&](const std::optional<Token> &token) {
        return token ? "takes " + shown(library, *token) : std::string("has ended");
    };
    if (result.text_a) {
        std::cout << "  first divergence at step " << first.step << ": the texts differ there; A: "
                  << json_text(*result.text_a) << ", B: " << json_text(answer_text(library, result.b.steps)) << '\n';
    } else {
        std::cout << (first.close ? "  first close call" : "  first divergence") << " at step " << first.step << ": A "
                  << what(first.a) << ", B " << what(first.b) << '\n';
    }
    for (std::size_t rank = 0; rank < std::max(first.largest_a.size(), first.largest_b.size()); ++rank) {
        const auto cell = [&](const std::vector<Pair> &largest) {
            char text[128] = "";
            if (rank < largest.size()) {
                std::snprintf(text, sizeof text, "%-26s %12.5g", shown(library, largest[rank].first).c_str(),
                              static_cast<double>(largest[rank].second));
            }
            return std::string(text);
        };
        std::printf("    %-39s  |  %s\n", cell(first.largest_a).c_str(), cell(first.largest_b).c_str());
    }
    const auto print_gap = [](char label, const std::optional<Gap> &gap, Token own, Token other) {
        if (gap) {
            std::printf("    %c puts %llu before %llu by %s%.5g", label, static_cast<unsigned long long>(own),
                        static_cast<unsigned long long>(other), gap->at_least ? "at least " : "",
                        static_cast<double>(gap->logits));
            if (gap->part) {
                std::printf(" (%.3f %% of the row's range)", static_cast<double>(*gap->part) * 100);
            }
            std::printf("\n");
        }
    };
    if (first.a && first.b) {
        print_gap('A', first.gap_a, *first.a, *first.b);
        print_gap('B', first.gap_b, *first.b, *first.a);
    }
    if (first.apart) {
        std::printf("    the rows are at most %.5g apart (at %s)", static_cast<double>(first.apart->largest),
                    shown(library, first.apart->at).c_str());
        if (first.apart->kl) {
            std::printf(", KL %.2e", *first.apart->kl);
        } else {
            std::printf(", over %zu known logits", first.apart->over);
        }
        std::printf("\n");
    }
}

void print(const Library &library, const Result &result, std::size_t number)
{
    std::cout << "\nprompt " << number << ": " << json_text(result.prompt) << '\n';
    const std::vector<Step> &a = result.a.steps, &b = result.b.steps;
    for (std::size_t step = 0; step < std::max(a.size(), b.size()); ++step) {
        const auto cell = [&](const std::vector<Step> &steps) {
            return step < steps.size() ? shown(library, steps[step].token) : std::string("-");
        };
        const bool same = result.text_a || (step < a.size() && step < b.size() && a[step].token == b[step].token);
        std::printf("  %4zu  %c %-26s  %s\n", step, same ? ' ' : '*', cell(a).c_str(), cell(b).c_str());
    }
    const Found &found = result.found;
    std::printf("  the same %zu tokens%s", found.until(), found.differing == 0 ? "" : ", then not");
    if (found.differing > 1) {
        std::printf(" (%zu of %zu choices differ, %zu of them close calls)", found.differing, found.compared,
                    found.close);
    }
    if (found.farthest && found.farthest->second.largest > 0) {
        std::printf("; where the choice is the same, rows are at most %.5g apart (step %zu)",
                    static_cast<double>(found.farthest->second.largest), found.farthest->first);
    }
    std::printf("\n");
    if (found.first) {
        print_divergence(library, result);
    }
    for (const auto &[label, side] : {std::pair<char, const Answer &>{'A', result.a}, {'B', result.b}}) {
        if (side.prefill_seconds > 0) {
            const double seconds = side.decode_seconds;
            const double rate = seconds > 0 ? static_cast<double>(side.steps.size() - 1) / seconds : 0;
            std::printf("  %c: first token after %.4f s, then %.1f tokens/s\n", label, side.prefill_seconds, rate);
        }
    }
    std::fflush(stdout);
}

std::string json_of(const Library &library, const Result &result)
{
    std::ostringstream out;
    const auto ids = [&](const char *name, const Answer &answer) {
        out << "\"tokens_" << name << "\":[";
        for (std::size_t i = 0; i < answer.steps.size(); ++i) {
            out << (i == 0 ? "" : ",") << answer.steps[i].token;
        }
        out << "],\"text_" << name << "\":" << json_text(answer_text(library, answer.steps)) << ',';
    };
    out << "{\"prompt\":" << json_text(result.prompt) << ',';
    if (result.text_a) {
        out << "\"text_a\":" << json_text(*result.text_a) << ',';
    } else {
        ids("a", result.a);
    }
    ids("b", result.b);
    const Found &found = result.found;
    out << "\"compared\":" << found.compared << ",\"differing\":" << found.differing << ",\"close\":" << found.close
        << ",\"first\":";
    if (!found.first) {
        out << "null}";
        return out.str();
    }
    const Divergence &first = *found.first;
    const auto side = [&](const char *name, const std::optional<Token> &token, const std::vector<Pair> &largest,
                          const std::optional<Gap> &gap) {
        out << ",\"" << name << "\":{\"token\":" << (token ? std::to_string(*token) : "null") << ",\"top5\":[";
        for (std::size_t i = 0; i < largest.size(); ++i) {
            out << (i == 0 ? "[" : ",[") << largest[i].first << ',' << json_number(largest[i].second) << ']';
        }
        out << "],\"gap\":" << (gap ? json_number(gap->logits) : "null") << '}';
    };
    out << "{\"step\":" << first.step << ",\"close\":" << (first.close ? "true" : "false");
    side("a", first.a, first.largest_a, first.gap_a);
    side("b", first.b, first.largest_b, first.gap_b);
    out << ",\"distance\":" << (first.apart ? json_number(first.apart->largest) : "null") << "}}";
    return out.str();
}

// Side A's answer to prompt `index`, and its text where it has no tokens.
using Reference = std::function<std::pair<Answer, std::optional<std::string>>(std::size_t index,
                                                                              const std::vector<Token> &ids)>;

Reference reference(const Arguments &arguments, const Library &library, std::size_t most)
{
    if (!arguments.text("recorded").empty()) {
        const Encoding encoding{arguments.number("logits_scale", 0), arguments.number("logits_zero_point", 0)};
        auto turns = read_trace(arguments.text("recorded"), encoding);
        if (turns.size() != arguments.prompts.size()) {
            throw std::runtime_error("the recorded run has " + std::to_string(turns.size()) + " turns, and " +
                                     std::to_string(arguments.prompts.size()) + " prompts are given");
        }
        return [turns](std::size_t index, const std::vector<Token> &) {
            return std::pair(turns[index], std::optional<std::string>());
        };
    }
    if (!arguments.text("external").empty()) {
        return [&arguments, most](std::size_t index, const std::vector<Token> &) {
            const std::map<std::string, std::string> names = {{"model", arguments.text("model_path")},
                                                              {"tokenizer", arguments.text("tokenizer_path")},
                                                              {"prompt", arguments.prompts[index]},
                                                              {"max_new_tokens", std::to_string(most)}};
            return std::pair(Answer(), std::optional(external_answer(arguments.text("external"), names)));
        };
    }
#ifdef GOLDEN_EXECUTORCH
    const auto executorch = std::make_shared<Executorch>(arguments.text("model_path"));
    return [executorch, &library, most](std::size_t, const std::vector<Token> &ids) {
        const auto is_end = [&](Token token) { return library.is_end(token); };
        return std::pair(executorch->run(ids, most, is_end), std::optional<std::string>());
    };
#else
    static_cast<void>(library);
    throw std::runtime_error("--executorch: this build has no ExecuTorch; configure it with -DEXECUTORCH_DIR=…");
#endif
}

int run(const Arguments &arguments)
{
    const double asked = arguments.number("max_new_tokens", 64);
    if (!(asked >= 1 && asked <= 1e9)) {
        throw std::invalid_argument("--max_new_tokens must be 1 or more");
    }
    const auto most = static_cast<std::size_t>(asked);
    const bool forced = arguments.switches.count("teacher_forced") != 0;
    const bool recorded = !arguments.text("recorded").empty();
    if (forced && !arguments.text("external").empty()) {
        throw std::invalid_argument("--teacher_forced needs the reference's tokens, and --external gives text alone");
    }
    std::optional<float> max_gap;
    if (!arguments.text("max_gap").empty()) {
        max_gap = static_cast<float>(arguments.number("max_gap", 0));
    }
    Library library(options_of(arguments));
    const Reference side_a = reference(arguments, library, most);
    std::vector<Result> results;
    for (std::size_t index = 0; index < arguments.prompts.size(); ++index) {
        Result result;
        result.prompt = arguments.prompts[index];
        // A recorded run is one conversation.
        const bool begins = index == 0 || !recorded;
        const auto bos = static_cast<std::size_t>(begins ? arguments.number("num_bos", 1) : 0);
        const std::vector<Token> ids = library.encode(result.prompt, bos);
        std::tie(result.a, result.text_a) = side_a(index, ids);
        if (begins) {
            library.reset();
        }
        std::vector<Token> tokens;
        for (const Step &step : result.a.steps) {
            tokens.push_back(step.token);
        }
        result.b = library.run(ids, recorded ? tokens.size() : most, forced ? &tokens : nullptr);
        result.found = result.text_a ? compare_texts(library, *result.text_a, result.b.steps)
                                     : compare(result.a.steps, result.b.steps, max_gap, forced);
        print(library, result, index + 1);
        results.push_back(std::move(result));
        if (recorded && !forced && results.back().found.differing > 0) {
            // The contexts are different ones from here on.
            break;
        }
    }
    std::size_t diverged = 0, compared = 0, until = 0;
    std::string json = "[";
    for (const Result &result : results) {
        diverged += result.found.diverged() ? 1 : 0;
        compared += result.found.compared;
        until += result.found.until();
        json += (json.size() > 1 ? ",\n" : "\n") + json_of(library, result);
    }
    std::printf("\nsummary: of %zu prompts, %zu diverged; %zu of %zu tokens before the first differences\n",
                results.size(), diverged, until, compared);
    if (!arguments.text("json").empty()) {
        std::ofstream file(arguments.text("json"));
        file << "{\"diverged\":" << diverged << ",\"prompts\":" << json << "\n]}\n";
        if (!file.flush()) {
            throw std::runtime_error("cannot write " + arguments.text("json"));
        }
    }
    return diverged > 0 ? 1 : 0;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(Arguments(argc, argv));
    } catch (const std::exception &failure) {
        std::cerr << "golden_compare: error: " << failure.what() << '\n';
        return 2;
    }
}
