#include "core/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <utility>

#include "core/error.h"
#include "core/io/json.h"
#include "core/printable.h"
#include "kernels/checksum.h"

namespace ms::core {
namespace {

std::string dashed(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string underscored(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

bool is_list(const FieldTarget& target) {
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<int64_t>*>(target) || std::holds_alternative<std::vector<double>*>(target);
}

bool is_switch(const FieldTarget& target) {
  return std::holds_alternative<bool*>(target) || std::holds_alternative<std::optional<bool>*>(target);
}

nlohmann::json to_json(const FieldTarget& target) {
  return std::visit(
      [](auto* value) -> nlohmann::json {
        if constexpr (requires { value->has_value(); }) {
          if (!value->has_value()) return nullptr;
          return **value;
        } else {
          return *value;
        }
      },
      target);
}

// Parses all of `text` as T; throws kInvalidArgument naming `where`.
template <class T>
T parse_number(const std::string& text, std::string_view where) {
  T value{};
  size_t used = 0;
  try {
    if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(std::stod(text, &used));
      if (!std::isfinite(value)) used = 0;
    } else {
      const int64_t wide = std::stoll(text, &used);
      value = static_cast<T>(wide);
      if (static_cast<int64_t>(value) != wide) used = 0;
    }
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty()) {
    throw Error(ErrorCode::kInvalidArgument, cat(where, ": ", printable(text), " is not a ",
                                                 std::is_floating_point_v<T> ? "number" : "whole number in range"));
  }
  return value;
}

// Replaces '_' by '-' in the names of flags; values are unchanged.
std::vector<std::string> with_dashes(const std::vector<std::string>& args) {
  std::vector<std::string> dashes;
  bool flags = true;
  for (const std::string& arg : args) {
    flags &= arg != "--";
    const size_t equals = std::min(arg.find('='), arg.size());
    const bool flag = flags && arg.size() > 2 && arg.compare(0, 2, "--") == 0;
    dashes.push_back(flag ? dashed(arg.substr(0, equals)) + arg.substr(equals) : arg);
  }
  return dashes;
}

}  // namespace

void ConfigFields::program_flag(std::string flag, FieldTarget target) {
  fields_.push_back({"", "", underscored(flag), target, "", false, true});
}

void ConfigFields::section(std::string title, std::string introduction) {
  sections_.push_back({std::move(title), std::move(introduction)});
}

void ConfigFields::remark(std::string_view field, std::string_view text) {
  Field* found = find(field);
  MS_CHECK(found != nullptr, "no field ", field);
  found->help += cat(" [", text, "]");
}

void ConfigFields::alias(std::string flag, std::string field, std::optional<std::string> value) {
  MS_CHECK(find(field) != nullptr, "alias --", flag, " for unknown field ", field);
  aliases_.push_back({std::move(flag), std::move(field), std::move(value)});
}

void ConfigFields::stand_for(std::string flag, std::vector<std::string> args) {
  expansions_.push_back({std::move(flag), std::move(args), false});
}

void ConfigFields::set_defaults(std::string flag, std::vector<std::string> args) {
  expansions_.push_back({std::move(flag), std::move(args), true});
}

bool ConfigFields::Expansion::takes_value() const { return std::find(args.begin(), args.end(), kValue) != args.end(); }

void ConfigFields::accept_with_notice(std::string flag, int num_values, std::string notice,
                                      std::vector<std::string> only) {
  accepted_.push_back({std::move(flag), num_values, std::move(notice), std::move(only)});
}

void ConfigFields::refuse(std::string flag, std::string why) { refusals_.push_back({std::move(flag), std::move(why)}); }

void ConfigFields::add_notice(std::string text) {
  if (std::find(notices_.begin(), notices_.end(), text) == notices_.end()) notices_.push_back(std::move(text));
}

FlagSyntax ConfigFields::syntax() const {
  FlagSyntax syntax;
  const auto add_field = [&](const std::string& flag, const Field& field) {
    const bool switches = is_switch(field.target);
    syntax.add("--" + flag, switches ? 0 : 1, switches ? 0 : is_list(field.target) ? FlagSyntax::kNoLimit : 1);
    if (switches) syntax.add("--no-" + flag, 0, 0);
  };
  for (const Field& field : fields_) add_field(dashed(field.name), field);
  for (const Alias& alias : aliases_) {
    if (alias.value) {
      syntax.add("--" + alias.flag, 0, 0);
    } else {
      add_field(alias.flag, *find(alias.field));
    }
  }
  for (const Notice& notice : accepted_) {
    const bool any = notice.num_values == kAnyNumber;
    syntax.add("--" + notice.flag, any ? 1 : notice.num_values, any ? FlagSyntax::kNoLimit : notice.num_values);
  }
  for (const Expansion& expansion : expansions_) {
    const int values = expansion.takes_value() ? 1 : 0;
    syntax.add("--" + expansion.flag, values, values);
  }
  for (const Refusal& refusal : refusals_) syntax.add("--" + refusal.flag, 0, FlagSyntax::kNoLimit);
  return syntax;
}

// Replaces flags that were registered with stand_for or set_defaults by the flags they stand for. args has passed
// FlagSyntax::check, so that a flag that takes a value has it.
std::vector<std::string> ConfigFields::expand(const std::vector<std::string>& args) {
  std::vector<std::string> expanded, defaults;
  bool flags = true;
  for (size_t i = 0; i < args.size(); ++i) {
    flags &= args[i] != "--";
    const size_t equals = args[i].find('=');
    const auto found = std::find_if(expansions_.begin(), expansions_.end(), [&](const Expansion& expansion) {
      return flags && args[i].substr(0, expansion.takes_value() ? equals : std::string::npos) == "--" + expansion.flag;
    });
    if (found == expansions_.end()) {
      expanded.push_back(args[i]);
      continue;
    }
    std::vector<std::string>& target = found->is_default ? defaults : expanded;
    std::string value, reads;
    if (found->takes_value()) value = equals == std::string::npos ? args[++i] : args[i].substr(equals + 1);
    for (const std::string& stands_for : found->args) {
      target.push_back(stands_for == kValue ? value : stands_for);
      reads += " " + target.back();
    }
    add_notice(cat("--", found->flag, ": read as", reads));
  }
  defaults.insert(defaults.end(), expanded.begin(), expanded.end());
  return defaults;
}

const ConfigFields::Field* ConfigFields::find(std::string_view name) const {
  const auto found = std::ranges::find(fields_, underscored(name), &Field::name);
  return found == fields_.end() ? nullptr : &*found;
}

ConfigFields::Field* ConfigFields::find(std::string_view name) {
  return const_cast<Field*>(std::as_const(*this).find(name));
}

bool ConfigFields::given(std::string_view name) const {
  const Field* field = find(name);
  MS_CHECK(field != nullptr, "no field ", name);
  return field->given;
}

void ConfigFields::set_from_text(Field& field, const std::string& text, std::string_view flag) {
  std::visit(
      [&](auto* value) {
        using T = std::decay_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) {
          if (text != "true" && text != "false") {
            throw Error(ErrorCode::kInvalidArgument, cat(flag, ": ", printable(text), " is neither true nor false"));
          }
          *value = text == "true";
        } else if constexpr (std::is_same_v<T, std::string>) {
          *value = text;
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          value->push_back(text);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>) {
          std::stringstream parts(text);
          for (std::string part; std::getline(parts, part, ',');)
            value->push_back(parse_number<typename T::value_type>(part, flag));
        } else if constexpr (requires { typename T::value_type; }) {
          *value = parse_number<typename T::value_type>(text, flag);
        } else {
          *value = parse_number<T>(text, flag);
        }
      },
      field.target);
  field.given = true;
}

// Values arrive as text, so that one parser serves both flags and files.
void ConfigFields::add_value(CLI::App& app, const std::string& flag, Field& field) {
  auto* option =
      app.add_option_function<std::vector<std::string>>("--" + flag, [this, flag, &field](const auto& values) {
        std::visit(
            [](auto* value) {
              if constexpr (
                  requires { value->push_back({}); } && requires { value->clear(); })
                value->clear();
            },
            field.target);
        if (std::holds_alternative<std::string*>(field.target)) std::get<std::string*>(field.target)->clear();
        for (const std::string& value : values) set_from_text(field, value, "--" + flag);
      });
  const bool list = is_list(field.target);
  option->expected(1, list ? 1 << 20 : 1);
  option->allow_extra_args(list);  // without this, TakeLast takes the 4 of `--seed 3 4`
  option->trigger_on_parse(list);  // at each occurrence, so that the last one counts
  option->multi_option_policy(list ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
}

void ConfigFields::add_fields(CLI::App& app) {
  for (Field& field : fields_) {
    const std::string flag = dashed(field.name);
    if (is_switch(field.target)) {
      app.add_flag_function(
             "--" + flag + ",!--no-" + flag,
             [this, flag, &field](int64_t count) { set_from_text(field, count > 0 ? "true" : "false", "--" + flag); })
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      add_value(app, flag, field);
    }
  }
  for (const Alias& alias : aliases_) {
    Field& field = *find(alias.field);
    if (alias.value) {
      app.add_flag_function("--" + alias.flag,
                            [this, &alias, &field](int64_t) { set_from_text(field, *alias.value, "--" + alias.flag); });
    } else {
      add_value(app, alias.flag, field);
    }
  }
}

void ConfigFields::add_accepted(CLI::App& app) {
  for (const Notice& notice : accepted_) {
    const auto take = [this, &notice] { add_notice(cat("--", notice.flag, ": ", notice.text)); };
    if (notice.num_values == 0) {
      app.add_flag_function("--" + notice.flag, [take](int64_t) { take(); });
      continue;
    }
    auto* option =
        app.add_option_function<std::vector<std::string>>("--" + notice.flag, [take, &notice](const auto& values) {
          for (const std::string& value : values) {
            if (notice.only.empty() || std::find(notice.only.begin(), notice.only.end(), value) != notice.only.end())
              continue;
            throw Error(ErrorCode::kUnsupported, cat("--", notice.flag, " ", shown_value(value),
                                                     " is not supported; here it is always ", notice.only[0]));
          }
          take();
        });
    const bool any = notice.num_values == kAnyNumber;
    option->expected(any ? 1 : notice.num_values, any ? 1 << 20 : notice.num_values);
    option->allow_extra_args(any);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

void ConfigFields::add_refused(CLI::App& app) const {
  for (const Refusal& refusal : refusals_) {
    app.add_option_function<std::vector<std::string>>("--" + refusal.flag,
                                                      [&refusal](const auto&) {
                                                        throw Error(ErrorCode::kUnsupported,
                                                                    cat("--", refusal.flag, ": ", refusal.why));
                                                      })
        ->expected(0, 1 << 20);
  }
}

std::vector<std::string> ConfigFields::parse_flags(const std::vector<std::string>& args) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras(false);
  std::vector<std::string> rest;
  app.add_option("rest", rest);
  add_fields(app);
  add_accepted(app);
  add_refused(app);
  const FlagSyntax known = syntax();
  const std::vector<std::string> dashes = with_dashes(args);
  known.check(dashes);
  std::vector<std::string> normal = expand(dashes);
  std::reverse(normal.begin(), normal.end());  // CLI11 consumes its vector from the back
  try {
    app.parse(normal);
  } catch (const CLI::ExtrasError& e) {
    const std::vector<std::string> remaining = app.remaining();
    const auto first =
        std::ranges::find_if(remaining, [](const std::string& arg) { return arg.size() > 1 && arg[0] == '-'; });
    const std::string unknown = first == remaining.end() ? "" : *first, near = known.nearest(unknown);
    throw Error(ErrorCode::kInvalidArgument,
                cat("unknown flag ", shown_value(unknown), near.empty() ? "" : cat(". Did you mean ", near, "?")));
  } catch (const CLI::ParseError& e) {
    throw Error(ErrorCode::kInvalidArgument, e.what());
  }
  return rest;
}

void ConfigFields::load_json(const nlohmann::json& json, std::string_view where) {
  if (!json.is_object()) throw Error(ErrorCode::kInvalidArgument, cat(where, ": expected a JSON object"));
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      load_json(value, where);
      continue;
    }
    Field* field = find(key);
    if (field == nullptr || field->program) {
      std::vector<std::string> names;
      for (const Field& known : fields_) {
        if (!known.program) names.push_back(known.name);
      }
      const std::string near = nearest_word(underscored(key), names);
      throw Error(ErrorCode::kInvalidArgument,
                  cat(where, ": unknown key ", printable(key), near.empty() ? "" : ". Did you mean ", near,
                      near.empty() ? "" : "?"));
    }
    if (field->given || value.is_null()) continue;
    const std::string place = cat(where, ": ", key);
    if (value.is_array()) {
      if (!is_list(field->target))
        throw Error(ErrorCode::kInvalidArgument, cat(place, ": one value expected, not a list"));
      std::visit(
          [](auto* list) {
            if constexpr (
                requires { list->push_back({}); } && requires { list->clear(); })
              list->clear();
          },
          field->target);
      for (const auto& item : value)
        set_from_text(*field, item.is_string() ? item.get<std::string>() : item.dump(), place);
    } else {
      set_from_text(*field, value.is_string() ? value.get<std::string>() : value.dump(), place);
    }
  }
}

nlohmann::json ConfigFields::dump() const {
  nlohmann::json json = nlohmann::json::object();
  for (const Field& field : fields_) {
    if (!field.program) json[field.group][field.name] = to_json(field.target);
  }
  return json;
}

std::string ConfigFields::table() const {
  std::ostringstream out;
  for (const Field& field : fields_) {
    if (field.program) continue;
    const auto value = to_json(field.target);
    out << "  " << std::left << std::setw(44) << field.name
        << (value.is_string() ? value.get<std::string>() : value.dump()) << (field.given ? "" : "  (default)") << '\n';
  }
  return out.str();
}

std::vector<ConfigFields::FlagHelp> ConfigFields::flag_help() const {
  std::vector<FlagHelp> flags;
  for (const Field& field : fields_) {
    if (field.program) continue;
    FlagHelp flag = {field.section, "", {"--" + dashed(field.name)}, "", field.help};
    for (const Section& section : sections_) {
      if (section.title == field.section) flag.introduction = section.introduction;
    }
    for (const Alias& alias : aliases_) {
      if (alias.field == field.name) flag.names.push_back("--" + alias.flag);
    }
    const auto value = to_json(field.target);
    if (is_switch(field.target)) {
      if (value == true) flag.text += cat(" (on; --no-", dashed(field.name), " turns it off)");
    } else {
      flag.value = is_list(field.target) ? "A B.." : std::holds_alternative<std::string*>(field.target) ? "TEXT" : "N";
      if (!value.is_null() && !value.empty() && value != "")
        flag.text += cat(" (", value.is_string() ? value.get<std::string>() : value.dump(), ")");
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::string ConfigFields::help() const {
  std::ostringstream out;
  std::string section;
  for (const FlagHelp& flag : flag_help()) {
    if (flag.section != section) {
      out << (section.empty() ? "" : "\n") << flag.section << ":\n";
      if (!flag.introduction.empty()) out << "  " << flag.introduction << "\n";
    }
    section = flag.section;
    std::string left = "  " + flag.names[0];
    if (!flag.value.empty()) left += " " + flag.value;
    for (size_t i = 1; i < flag.names.size(); ++i) left += ", " + flag.names[i];
    out << left << (left.size() < 46 ? std::string(46 - left.size(), ' ') : "\n" + std::string(46, ' ')) << flag.text
        << '\n';
  }
  if (!accepted_.empty()) {
    out << "\naccepted with one notice, without effect here:\n ";
    for (const Notice& notice : accepted_) out << " --" << notice.flag;
    out << '\n';
  }
  if (!refusals_.empty()) {
    out << "\nrefused, because the feature is not implemented:\n ";
    for (const Refusal& refusal : refusals_) out << " --" << refusal.flag;
    out << '\n';
  }
  if (!expansions_.empty()) out << "\naliases of other flags:\n";
  for (const Expansion& expansion : expansions_) {
    out << "  --" << expansion.flag << ":";
    for (const std::string& arg : expansion.args) out << ' ' << arg;
    out << '\n';
  }
  return out.str();
}

nlohmann::json ConfigFields::flags() const {
  nlohmann::json out = nlohmann::json::array();
  const auto add = [&](const std::string& flag, const char* kind, int min_values, int max_values) -> nlohmann::json& {
    out.push_back({{"flag", "--" + flag}, {"kind", kind}, {"min_values", min_values}});
    out.back()["max_values"] = max_values == FlagSyntax::kNoLimit ? nlohmann::json() : nlohmann::json(max_values);
    return out.back();
  };
  const auto add_field = [&](const std::string& flag, const char* kind, const Field& field) {
    const bool switches = is_switch(field.target);
    const bool is_text = std::holds_alternative<std::string*>(field.target) ||
                         std::holds_alternative<std::vector<std::string>*>(field.target);
    nlohmann::json& entry = add(flag, kind, switches ? 0 : 1,
                                switches                ? 0
                                : is_list(field.target) ? FlagSyntax::kNoLimit
                                                        : 1);
    entry["type"] = switches ? "switch" : is_text ? "text" : "number";
    entry["field"] = field.name;
  };
  for (const Field& field : fields_) {
    add_field(dashed(field.name), "field", field);
    if (is_switch(field.target)) add_field("no-" + dashed(field.name), "field", field);
  }
  for (const Alias& alias : aliases_) {
    if (!alias.value) {
      add_field(alias.flag, "alias", *find(alias.field));
    } else {
      add(alias.flag, "alias", 0, 0).update({{"type", "switch"}, {"field", alias.field}});
    }
  }
  for (const Expansion& expansion : expansions_) {
    const int values = expansion.takes_value() ? 1 : 0;
    add(expansion.flag, "expansion", values, values)["reads_as"] = expansion.args;
  }
  for (const Notice& notice : accepted_) {
    const bool any = notice.num_values == kAnyNumber;
    nlohmann::json& entry =
        add(notice.flag, "notice", any ? 1 : notice.num_values, any ? FlagSyntax::kNoLimit : notice.num_values);
    entry["reason"] = notice.text;
    if (!notice.only.empty()) entry["only"] = notice.only;
  }
  for (const Refusal& refusal : refusals_) {
    add(refusal.flag, "refused", 0, FlagSyntax::kNoLimit)["reason"] = refusal.why;
  }
  return out;
}

std::string ConfigFields::hash() const {
  const std::string text = dump().dump();
  return hex16(kernels::xxh3(text.data(), text.size()));
}

}  // namespace ms::core
