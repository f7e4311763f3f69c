// Just enough JSON for recorded runs: a reader of one value, and the escaping of a string.
#pragma once

#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace golden {

class Json {
  public:
    enum class Kind { Null, Bool, Number, Text, List, Object };

    // Reads one value that is the whole of `text`; throws std::runtime_error with the place where it is none.
    static Json parse(std::string_view text)
    {
        Reader reader{text};
        Json value = reader.value(0);
        reader.blanks();
        if (reader.at != text.size()) {
            reader.fail("more behind the value");
        }
        return value;
    }

    Kind kind() const { return kind_; }
    double number() const { return number_; }
    const std::string &text() const { return text_; }
    const std::vector<Json> &list() const { return list_; }

    // A member of an object; null where there is none.
    const Json &operator[](const std::string &name) const
    {
        static const Json null;
        const auto found = object_.find(name);
        return found == object_.end() ? null : found->second;
    }

  private:
    struct Reader {
        std::string_view text;
        std::size_t at = 0;

        [[noreturn]] void fail(const char *what) const
        {
            throw std::runtime_error("no JSON at byte " + std::to_string(at) + ": " + what);
        }

        void blanks()
        {
            while (at < text.size() && std::string_view(" \t\r\n").find(text[at]) != std::string_view::npos) {
                ++at;
            }
        }

        bool take(std::string_view word)
        {
            const bool there = text.substr(at, word.size()) == word;
            at += there ? word.size() : 0;
            return there;
        }

        Json value(int depth)
        {
            if (depth > 32) {
                fail("nested too deep");
            }
            blanks();
            Json value;
            if (take("null")) {
                return value;
            }
            if (take("true") || take("false")) {
                value.kind_ = Kind::Bool;
                value.number_ = text[at - 2] == 'u' ? 1 : 0;
            } else if (take("\"")) {
                value.kind_ = Kind::Text;
                value.text_ = string();
            } else if (take("[")) {
                value.kind_ = Kind::List;
                members("]", [&] { value.list_.push_back(this->value(depth + 1)); });
            } else if (take("{")) {
                value.kind_ = Kind::Object;
                members("}", [&] {
                    blanks();
                    if (!take("\"")) {
                        fail("a name is missing");
                    }
                    std::string name = string();
                    blanks();
                    if (!take(":")) {
                        fail("a colon is missing");
                    }
                    value.object_.insert_or_assign(std::move(name), this->value(depth + 1));
                });
            } else {
                value.kind_ = Kind::Number;
                value.number_ = digits();
            }
            return value;
        }

        template <typename Member> void members(std::string_view end, Member member)
        {
            blanks();
            if (take(end)) {
                return;
            }
            do {
                member();
                blanks();
            } while (take(","));
            if (!take(end)) {
                fail("an end is missing");
            }
        }

        double digits()
        {
            const std::size_t from = at;
            while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                                        std::string_view("+-.").find(text[at]) != std::string_view::npos)) {
                ++at;
            }
            const std::string word(text.substr(from, at - from));
            char *end = nullptr;
            const double number = std::strtod(word.c_str(), &end);
            if (word.empty() || *end != '\0') {
                at = from;
                fail("no value is there");
            }
            return number;
        }

        std::string string()
        {
            std::string out;
            while (at < text.size() && text[at] != '"') {
                if (text[at] != '\\') {
                    out += text[at++];
                    continue;
                }
                ++at;
                static constexpr std::string_view names = "\"\\/bfnrt", bytes = "\"\\/\b\f\n\r\t";
                const std::size_t which = at < text.size() ? names.find(text[at]) : std::string_view::npos;
                if (which == std::string_view::npos) {
                    // \u is not written into traces.
                    fail("an escape that is not known");
                }
                out += bytes[which];
                ++at;
            }
            if (!take("\"")) {
                fail("a string does not end");
            }
            return out;
        }
    };

    Kind kind_ = Kind::Null;
    double number_ = 0;
    std::string text_;
    std::vector<Json> list_;
    std::map<std::string, Json> object_;
};

// Bytes of the UTF-8 sequence that `bytes` begin with; 0 for what is none.
inline std::size_t utf8_length(std::string_view bytes)
{
    const auto first = static_cast<unsigned char>(bytes[0]);
    // Bounds of the first byte, and the length that it begins below them.
    constexpr std::pair<unsigned, std::size_t> lengths[] = {{0x80, 1}, {0xc2, 0}, {0xe0, 2}, {0xf0, 3}, {0xf5, 4}};
    std::size_t length = 0;
    for (const auto &[bound, of] : lengths) {
        if (first < bound) {
            length = of;
            break;
        }
    }
    if (length == 0 || length > bytes.size()) {
        return 0;
    }
    for (std::size_t i = 1; i < length; ++i) {
        if ((static_cast<unsigned char>(bytes[i]) & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

// `bytes` between quotes; what is no UTF-8 becomes the replacement character.
inline std::string json_text(std::string_view bytes)
{
    std::string out = "\"";
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = utf8_length(bytes.substr(at));
        const auto code = static_cast<unsigned char>(bytes[at]);
        if (length == 0) {
            out += "\xef\xbf\xbd";
        } else if (bytes[at] == '"' || bytes[at] == '\\') {
            out += '\\';
            out += bytes[at];
        } else if (bytes[at] == '\n') {
            out += "\\n";
        } else if (code < 0x20) {
            char text[8];
            std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(code));
            out += text;
        } else {
            out += bytes.substr(at, length);
        }
        at += length == 0 ? 1 : length;
    }
    return out + '"';
}

// JSON has no infinite numbers.
inline std::string json_number(double number)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", number);
    return std::isfinite(number) ? text : "null";
}

} // namespace golden
