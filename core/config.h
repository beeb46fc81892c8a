// Configuration: plain structs whose fields are listed once; flags, JSON keys, help texts and the printed table come
// from that list. Precedence: flag, then --config file, then default.
//
//   core::ConfigFields fields;
//   fields.add("model", transformer_config);           // every field: --num-layers N, {"num_layers": N}
//   fields.alias("npu-deterministic", "deterministic", "true");
//   fields.parse(args);
//
// Flags may be written with '_' for '-'. An unknown flag or key is an error. A known one without effect here is
// accepted with one notice (accept_with_notice); one whose effect is not implemented is refused by name (refuse).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/flag_syntax.h"

namespace CLI {
class App;
}

namespace ms::core {

// Types of a config field. Optional values count as not given until set.
using FieldTarget =
    std::variant<bool*, int*, int64_t*, double*, std::string*, std::vector<std::string>*, std::vector<int64_t>*,
                 std::vector<double>*, std::optional<bool>*, std::optional<int64_t>*, std::optional<double>*>;

class ConfigFields {
 public:
  struct Field {
    std::string group;
    std::string section;  // its heading in help()
    std::string name;     // as in the struct: with '_'
    FieldTarget target;
    std::string help;
    bool given = false;    // by a flag or a key
    bool program = false;  // program_flag
  };

  // Adds every field that Config::fields lists. group: its object in JSON files, and its heading in help() unless
  // section() has given another. `config` must outlive this object.
  template <class Config>
  void add(std::string group, Config& config) {
    Config::fields([&](const char* name, auto member, const char* help) {
      fields_.push_back({group, sections_.empty() ? group : sections_.back().title, name, &(config.*member), help});
    });
  }
  // Begins a part of help() with its own heading and introduction, for the fields that are added from now on.
  void section(std::string title, std::string introduction);

  // A flag of the program itself, such as --print-config: parsed with the others, but not part of the configuration
  // (dump, table, help, hash, files). `target` must outlive this object.
  void program_flag(std::string flag, FieldTarget target);
  // Appends a remark such as "not built yet" to a field's help().
  void remark(std::string_view field, std::string_view text);
  // --flag [VALUE] stands for --field VALUE (value empty: VALUE is parsed as the field requires) or --field value.
  void alias(std::string flag, std::string field, std::optional<std::string> value = std::nullopt);
  // --flag stands for these flags and values, which later flags may override; answered by one log line. With kValue
  // among args, --flag takes one value, which replaces it.
  static constexpr const char* kValue = "VALUE";
  void stand_for(std::string flag, std::vector<std::string> args);
  // As stand_for, but flags of the user override these wherever they are given.
  void set_defaults(std::string flag, std::vector<std::string> args);
  // Known, without effect here: accepted with its values and answered by one log line, however often it is given.
  // num_values: kAnyNumber for all up to the next flag. only: the values that have no effect, other values are refused
  // (kUnsupported); empty: any.
  static constexpr int kAnyNumber = -1;
  void accept_with_notice(std::string flag, int num_values, std::string notice, std::vector<std::string> only = {});
  // Known, but its effect is not implemented: kUnsupported, "--flag: why".
  void refuse(std::string flag, std::string why);

  // Parses flags. Booleans: --x, --no-x, or --x=true|false. Lists: values up to the next flag, or comma-separated.
  // Returns the arguments that are not flags, in order. "--" ends flags. If a flag is given twice, the last one counts.
  // Throws kInvalidArgument for an unknown flag (with the nearest known one), or a value that is missing
  // (core/flag_syntax.h) or malformed.
  std::vector<std::string> parse_flags(const std::vector<std::string>& args);
  // Sets fields from a JSON object; grouped objects ({"model": {...}}) and flat keys are both accepted. Fields already
  // given by a flag keep their value. `where` names the file in errors.
  void load_json(const nlohmann::json& json, std::string_view where);

  // What help() says of a field.
  struct FlagHelp {
    std::string section, introduction;
    std::vector<std::string> names;  // with their dashes: the field's own, then its aliases
    std::string value;               // what follows it, "N", "TEXT" or "A B.."; empty: a switch
    std::string text;                // its meaning, and its default in parentheses
  };
  std::vector<FlagHelp> flag_help() const;  // in the order of help()

  nlohmann::json dump() const;  // {"model": {"num_layers": 2, ...}, ...}
  std::string table() const;    // as printed at start: one "  name ... value" line per field
  std::string help() const;     // every flag with default and meaning, by section; refused flags by name
  // Every flag that parse_flags accepts or refuses, for tools: [{"flag": "--lr", "kind": .., "min_values": 1,
  // "max_values": 1 (null: any number), ..}]. kind: "field" and "alias" (with "type": "switch", "number" or "text"),
  // "expansion" ("reads_as"), "notice" ("reason"; "only" where other values are refused), "refused" ("reason").
  nlohmann::json flags() const;
  std::string hash() const;                 // 16 hex digits over dump(); ranks compare it at start
  bool given(std::string_view name) const;  // whether the user set this field
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  struct Alias {
    std::string flag, field;
    std::optional<std::string> value;
  };
  struct Notice {
    std::string flag;
    int num_values;
    std::string text;
    std::vector<std::string> only;
  };
  struct Expansion {
    std::string flag;
    std::vector<std::string> args;
    bool is_default = false;  // set_defaults
    bool takes_value() const;
  };
  struct Refusal {
    std::string flag, why;
  };
  struct Section {
    std::string title, introduction;
  };
  FlagSyntax syntax() const;
  // The parts of parse_flags: what it adds to CLI11's parser.
  void add_fields(CLI::App& app);
  void add_value(CLI::App& app, const std::string& flag, Field& field);
  void add_accepted(CLI::App& app);
  void add_refused(CLI::App& app) const;
  std::vector<std::string> expand(const std::vector<std::string>& args);
  void add_notice(std::string text);
  const Field* find(std::string_view name) const;
  Field* find(std::string_view name);
  void set_from_text(Field& field, const std::string& text, std::string_view flag);

  std::vector<Field> fields_;
  std::vector<Section> sections_;
  std::vector<Alias> aliases_;
  std::vector<Notice> accepted_;
  std::vector<Expansion> expansions_;
  std::vector<Refusal> refusals_;
  std::vector<std::string> notices_;
};

}  // namespace ms::core
