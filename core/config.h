// Configuration: plain structs whose fields are listed once; flag, JSON key, help text and the printed table come from
// that list. Default, then --config file, then flag.
//
//   core::ConfigFields fields;
//   fields.add("model", transformer_config);           // every field: --num-layers N, {"num_layers": N}
//   fields.alias("npu-deterministic", "deterministic", "true");
//   fields.parse(args);
//
// '_' passes for '-' in flags. An unknown flag or key is an error; a known one without effect here is taken with one
// notice (accept_with_notice), and one whose effect is not built is refused by name (refuse).
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

namespace ms::core {

// What a config field may be. Optional values are "not given" until set.
using FieldTarget = std::variant<bool*, int*, int64_t*, double*, std::string*, std::vector<std::string>*,
                                 std::vector<int64_t>*, std::optional<int64_t>*, std::optional<double>*>;

class ConfigFields {
 public:
  struct Field {
    std::string group;
    std::string name;  // as in the struct: with '_'
    FieldTarget target;
    std::string help;
    bool given = false;    // by a flag or a key
    bool program = false;  // program_flag
  };

  // Adds every field that Config::fields lists. `config` must outlive this object.
  template <class Config>
  void add(std::string group, Config& config) {
    Config::fields([&](const char* name, auto member, const char* help) {
      fields_.push_back({group, name, &(config.*member), help, false, false});
    });
  }

  // A flag of the program itself, --print-config: read with the others, but no part of the configuration (dump, table,
  // help, hash, files). `target` must outlive this object.
  void program_flag(std::string flag, FieldTarget target);
  // Added to what help() says of a field: "not built yet".
  void remark(std::string_view field, std::string_view text);
  // --flag [VALUE] stands for --field VALUE (value empty: VALUE is read as the field wants) or --field value.
  void alias(std::string flag, std::string field, std::optional<std::string> value = std::nullopt);
  // --flag stands for these flags and values, which may be overridden by what follows it; answered by one log line.
  void stand_for(std::string flag, std::vector<std::string> args);
  // Known, without effect here: taken with its values and answered by one log line, however often it is given.
  // num_values: kAnyNumber for all up to the next flag. only: the values that have no effect; others are refused
  // (kUnsupported). Empty: any.
  static constexpr int kAnyNumber = -1;
  void accept_with_notice(std::string flag, int num_values, std::string notice, std::vector<std::string> only = {});
  // Known, but what it asks for is not built: kUnsupported, "--flag: why".
  void refuse(std::string flag, std::string why);

  // Reads flags. Booleans: --x, --no-x, or --x=true|false. Lists: values up to the next flag, or comma-separated.
  // Returns what is not a flag, in order. "--" ends flags. Throws kInvalidArgument: unknown flag (with the nearest
  // known one), missing (core/flag_syntax.h) or unreadable value. A flag given twice: the last counts.
  std::vector<std::string> parse_flags(const std::vector<std::string>& args);
  // Sets fields from a JSON object; grouped objects ({"model": {...}}) and flat keys are both accepted. Fields already
  // given by a flag are left alone. `where` names the file in errors.
  void load_json(const nlohmann::json& json, std::string_view where);

  nlohmann::json dump() const;              // {"model": {"num_layers": 2, ...}, ...}
  std::string table() const;                // as printed at start: one "  name ... value" line per field
  std::string help() const;                 // every flag with its default and meaning, by group; refused ones by name
  std::string hash() const;                 // 16 hex digits over dump(); ranks compare it first
  bool given(std::string_view name) const;  // was this field set by the user?
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
  };
  struct Refusal {
    std::string flag, why;
  };
  FlagSyntax syntax() const;
  std::vector<std::string> expand(const std::vector<std::string>& args);
  void add_notice(std::string text);
  const Field* find(std::string_view name) const;
  Field* find(std::string_view name);
  void set_from_text(Field& field, const std::string& text, std::string_view flag);

  std::vector<Field> fields_;
  std::vector<Alias> aliases_;
  std::vector<Notice> accepted_;
  std::vector<Expansion> expansions_;
  std::vector<Refusal> refusals_;
  std::vector<std::string> notices_;
};

}  // namespace ms::core
