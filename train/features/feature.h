// A feature: what a user switches on by a flag, such as sequence parallelism or recomputation, with all that the rest
// of the program has to know about it. Help, start-up errors, --print-active-features, the plan and the table in
// train/README.md are made from the list of them in registry.cpp.
//
// To add one: a pair of files here with its flags (a struct, from which one of train/config.h derives) and its Feature,
// and a line in registry.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace ms::train {

struct TrainerConfig;

using Condition = bool (*)(const TrainerConfig&);

// What else must, or must not, be on the command line if a flag is.
struct Rule {
  enum Kind { kNeeds, kExcludes };
  std::string flag;  // as users write it: "--recompute-num-layers"
  Condition given;
  Kind kind;
  std::string other;  // as users write it: "--recompute-granularity full"
  Condition holds;    // whether `other` is given
  std::string why;    // follows "FLAG needs OTHER" or "FLAG excludes OTHER", with its comma or colon; may be empty
  std::string text() const;   // "--reuse-fp32-param needs --bf16", and why
  std::string brief() const;  // without why
};
Rule needs(std::string flag, Condition given, std::string other, Condition holds, std::string why = "");
Rule excludes(std::string flag, Condition given, std::string other, Condition holds, std::string why = "");

// A flag that is accepted and, with these others, does nothing.
struct Ineffective {
  Condition given;
  std::string warning;
};

struct Feature {
  std::string name;
  // MindSpeed's optimization level from which it exists: 0 basic, 1 fused operators, 2 what saves memory or time
  // (mindspeed/features_manager).
  int level = 0;
  std::string effect;  // one sentence, without a full stop
  // Adds its fields, and their aliases, to `fields`.
  void (*add_flags)(core::ConfigFields& fields, TrainerConfig& config) = nullptr;
  Condition is_active = nullptr;  // of a valid configuration
  std::vector<Rule> rules = {};
  std::vector<Ineffective> ineffective = {};
  // Fills what follows from its flags. Idempotent, does not throw; may be null.
  void (*resolve)(TrainerConfig& config) = nullptr;
  // Checks its values. Throws kInvalidArgument or kUnsupported, naming the flags; may be null.
  void (*check)(const TrainerConfig& config, int world_size) = nullptr;
  // Of a valid configuration: values that do something else than they say; may be null.
  std::vector<std::string> (*notices)(const TrainerConfig& config) = nullptr;
};

// Throws kInvalidArgument if a rule of the feature is broken, or what its check() throws.
void check_feature(const Feature& feature, const TrainerConfig& config, int world_size);

// Every flag of the feature, without its aliases: "--recompute-method".
std::vector<std::string> flags_of(const Feature& feature);

// For help: its effect, level, and rules.
std::string describe(const Feature& feature);

// The flags of the feature that differ from their defaults, "--loss-scale 1024", switches that are on among them,
// "--bf16". If there are none, what is on by default: "--async-save".
std::vector<std::string> given_flags(const Feature& feature, const TrainerConfig& config);

}  // namespace ms::train
