#include "ckpt/resume_diff.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "ckpt/diff.h"
#include "ckpt/optimizer_settings.h"
#include "ckpt/param_schedule.h"
#include "ckpt/values.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::TensorRole;
using nlohmann::json;

constexpr size_t kMaxNamed = 3;  // maximum number of differences in a text

// Collects sentences; text() has the first ones.
class Sentences {
 public:
  void add(std::string sentence) {
    if (count_++ < kMaxNamed) text_ += cat(text_.empty() ? "" : "; ", sentence);
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return count_ > kMaxNamed ? cat(text_, "; and ", count_ - kMaxNamed, " more") : text_; }

 private:
  size_t count_ = 0;
  std::string text_;
};

// Of AdamW and SGD: what an optimizer continues from.
constexpr TensorRole kMoments[] = {TensorRole::kExpAvg, TensorRole::kExpAvgSq, TensorRole::kMomentumBuffer};

bool has_moments(const Source& source) {
  return std::ranges::any_of(kMoments, [&](TensorRole role) { return has_role(source, role); });
}

// SGD without momentum has no moments to continue from.
bool keeps_no_moments(const std::vector<OptimizerGroup>& groups) {
  return !groups.empty() && std::ranges::all_of(groups, [](const OptimizerGroup& group) {
    return group.options.value("momentum", json()) == 0;
  });
}

// Whether its optimizer goes on: weights that are saved alone may state a step and rates too.
bool has_optimizer(const Source& source, const std::vector<OptimizerGroup>& groups) {
  return !groups.empty() && (has_moments(source) || keeps_no_moments(groups));
}

bool is_weight(TensorRole role) { return role == TensorRole::kParam || role == TensorRole::kBuffer; }

// The tensor that holds a parameter's fp32 values: its master weights, or the parameter itself.
std::optional<int32_t> fp32_of(const ShardTable& table, std::string_view key) {
  if (const auto master = table.find(key, TensorRole::kMaster)) return master;
  const auto param = table.find(key, TensorRole::kParam);
  return param && table.dtype(*param) == DType::kFp32 ? param : std::nullopt;
}

bool same_shape(const ShardTable& a, int32_t tensor_a, const ShardTable& b, int32_t tensor_b) {
  const auto shape_a = a.global_shape(tensor_a), shape_b = b.global_shape(tensor_b);
  return std::equal(shape_a.begin(), shape_a.end(), shape_b.begin(), shape_b.end());
}

std::optional<ParamSchedule> schedule_of(const Source& source) {
  return schedule_from_json(source.info().common.value("opt_param_scheduler", json()));
}

// State of a torch.optim or DeepSpeed scheduler; null: none.
json torch_state(const Source& source) {
  const json scheduler = source.info().common.value("lr_scheduler", json());
  return scheduler.is_object() ? scheduler.value("state", json()) : json();
}

// Compares rates and decays that the schedules give; a side without a schedule uses its groups' values.
void compare_schedules(const Source& a, const Source& b, bool both, std::vector<std::string>& found) {
  const auto of_a = schedule_of(a), of_b = schedule_of(b);
  if (of_a && of_b) {
    json fields_a = schedule_to_json(*of_a), fields_b = schedule_to_json(*of_b);
    for (const char* bound : {"decoupled_lr", "decoupled_min_lr"}) {  // which only runs with --decoupled-lr have
      fields_a.emplace(bound, nullptr);
      fields_b.emplace(bound, nullptr);
    }
    const bool constant = of_a->lr_decay_style == "constant" && of_b->lr_decay_style == "constant";
    const bool steady = of_a->wd_incr_style == "constant" && of_b->wd_incr_style == "constant";
    for (const auto& [name, value] : fields_a.items()) {
      if (value == fields_b.at(name)) continue;
      if (constant && (name == "lr_decay_steps" || name == "min_lr" || name == "decoupled_min_lr")) continue;
      if (steady && name == "wd_incr_steps") continue;
      const bool annealed = name == "wsd_decay_steps" || name == "lr_wsd_decay_style";
      if (annealed && of_a->lr_decay_style != "WSD" && of_b->lr_decay_style != "WSD") continue;
      if (name == "init_lr" && of_a->lr_warmup_steps == 0 && of_b->lr_warmup_steps == 0) continue;
      found.push_back(cat("the schedule's ", name, " is ", value.dump(), " and ", fields_b.at(name).dump()));
    }
    if (!constant) {
      const auto position = [](const Source& source) {
        return source.info().common["opt_param_scheduler"].value("num_steps", json());
      };
      const json at_a = position(a), at_b = position(b);
      if (at_a != at_b) found.push_back(cat("the schedule is at ", at_a.dump(), " and ", at_b.dump(), " samples"));
    }
  } else if (!both) {
    const auto& one = of_a ? of_a : of_b;
    if (one && one->lr_decay_style != "constant") {
      found.push_back(cat("only the ", of_a ? "first" : "second", " has a schedule, ", one->lr_decay_style));
    }
  }
  const json state_a = torch_state(a), state_b = torch_state(b);
  const bool compared = !both || (!state_a.is_null() && !state_b.is_null());
  if (compared && state_a != state_b) {
    found.push_back("the states of the learning rate scheduler differ");
  }
}

// Returns a sentence for each setting that differs between two groups with a parameter in common. both: compare only
// settings that both sides state; else a setting that only one side states is a difference.
std::vector<std::string> compare_settings(const Source& a, const std::vector<OptimizerGroup>& groups_a, const Source& b,
                                          const std::vector<OptimizerGroup>& groups_b, bool both) {
  std::vector<std::string> found;
  // The pairs of groups with common parameters, each with the name of one such parameter.
  std::map<std::pair<const OptimizerGroup*, const OptimizerGroup*>, std::string> pairs;
  const ShardTable& table = a.shards();
  for (size_t t = 0; t < table.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (table.role(tensor) != TensorRole::kParam) continue;
    const std::string_view key = table.key(tensor);
    const OptimizerGroup *of_a = group_of(groups_a, key), *of_b = group_of(groups_b, key);
    if (of_a != nullptr && of_b != nullptr) pairs.emplace(std::pair(of_a, of_b), key);
  }
  for (const auto& [pair, key] : pairs) {
    visit_settings([&, &one = *pair.first, &other = *pair.second, &name = key](std::string_view field, auto member) {
      // Only settings that enter the update are compared; the others say how a program derives them.
      const bool counts = field == "lr" || field == "weight_decay" || field == "beta1" || field == "beta2" ||
                          field == "eps" || (field == "step" && both);
      if (!counts || one.*member == other.*member) return;
      if (both && !((one.*member) && (other.*member))) return;
      const auto text = [](const auto& value) { return value ? cat(*value) : std::string("unstated"); };
      found.push_back(cat(field, " ", text(one.*member), " and ", text(other.*member), " (", name, ")"));
    });
    for (const char* option : {"momentum", "dampening", "nesterov", "amsgrad", "maximize", "decoupled_weight_decay"}) {
      const json of_a = pair.first->options.value(option, json()), of_b = pair.second->options.value(option, json());
      if (of_a != of_b && !of_a.is_null() && !of_b.is_null())
        found.push_back(cat(option, " ", core::dump_json(of_a), " and ", core::dump_json(of_b), " (", key, ")"));
    }
  }
  compare_schedules(a, b, both, found);
  return found;
}

class ResumeDiff {
 public:
  ResumeDiff(Source& a, Source& b) : a_(a), b_(b), groups_a_(optimizer_groups(a)), groups_b_(optimizer_groups(b)) {}

  ResumeReport run() {
    add("weights", weights());
    add("master weights", masters());
    add("moments", moments());
    add("step", step());
    add("groups and schedule", settings());
    add("rng", stated("rng"));
    add("data position", data_position());
    report_.verdict = verdict();
    return std::move(report_);
  }

 private:
  using Finding = std::pair<ResumeAnswer, std::string>;

  void add(std::string_view kind, Finding finding) {
    report_.kinds.push_back({kind, finding.first, std::move(finding.second)});
  }

  // nullopt if the values are the same.
  std::optional<std::string> differ(int32_t tensor_a, int32_t tensor_b) {
    const ShardTable &a = a_.shards(), &b = b_.shards();
    if (!same_shape(a, tensor_a, b, tensor_b)) {
      return cat("shape ", a.global_shape(tensor_a), " and ", b.global_shape(tensor_b));
    }
    if (a.dtype(tensor_a) != b.dtype(tensor_b)) {
      return cat("stored as ", core::dtype_name(a.dtype(tensor_a)), " and ", core::dtype_name(b.dtype(tensor_b)));
    }
    const TensorPair pair{tensor_a, tensor_b};
    const auto values = compare_values(a_, b_, std::span(&pair, 1))[0];
    return values ? std::optional(difference_text(*values)) : std::nullopt;
  }

  Finding weights() {
    const ShardTable &a = a_.shards(), &b = b_.shards();
    Sentences found;
    size_t compared = 0;
    for (size_t t = 0; t < a.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (!is_weight(a.role(tensor))) continue;
      const std::string key(a.key(tensor));
      auto of_a = std::optional(tensor), of_b = b.find(key, a.role(tensor));
      if (!of_b) {
        found.add(cat(key, " is only in the first"));
        continue;
      }
      if (a.dtype(*of_a) != b.dtype(*of_b)) {  // one side stores its fp32 values separately
        const auto wide_a = fp32_of(a, key), wide_b = fp32_of(b, key);
        if (wide_a && wide_b) {
          of_a = wide_a;
          of_b = wide_b;
        }
      }
      ++compared;
      if (auto text = differ(*of_a, *of_b)) found.add(cat(key, ": ", *text));
    }
    for (size_t t = 0; t < b.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (is_weight(b.role(tensor)) && !a.find(b.key(tensor), b.role(tensor))) {
        found.add(cat(b.key(tensor), " is only in the second"));
      }
    }
    if (!found.empty()) return {ResumeAnswer::kDiffers, found.text()};
    return {ResumeAnswer::kSame, cat(compared, " tensors")};
  }

  Finding masters() {
    return pairs([&](const ShardTable& table, std::string_view key) { return fp32_of(table, key); });
  }

  Finding moments() {
    Finding found{ResumeAnswer::kNeither, moments_not_needed() ? "SGD without momentum keeps none" : ""};
    for (const TensorRole role : kMoments) {
      Finding of_role = pairs([&](const ShardTable& table, std::string_view key) { return table.find(key, role); });
      if (of_role.first == ResumeAnswer::kNeither) continue;
      found = std::move(of_role);
      if (found.first != ResumeAnswer::kSame) break;
    }
    return found;
  }

  bool moments_not_needed() const { return keeps_no_moments(groups_a_) && keeps_no_moments(groups_b_); }

  // For each parameter of the first side, compares the tensors that tensor_of finds on both sides.
  Finding pairs(const auto& tensor_of) {
    const ShardTable &a = a_.shards(), &b = b_.shards();
    Sentences found;
    size_t same = 0, only_a = 0, only_b = 0;
    for (size_t t = 0; t < a.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (a.role(tensor) != TensorRole::kParam) continue;
      const std::string_view key = a.key(tensor);
      const auto of_a = tensor_of(a, key), of_b = tensor_of(b, key);
      only_a += of_a && !of_b;
      only_b += of_b && !of_a;
      if (!of_a || !of_b) continue;
      if (auto text = differ(*of_a, *of_b)) {
        found.add(cat(key, ": ", *text));
      } else {
        ++same;
      }
    }
    if (!found.empty()) return {ResumeAnswer::kDiffers, found.text()};
    if (same > 0 && only_a + only_b == 0) return {ResumeAnswer::kSame, cat(same, " tensors")};
    if (same > 0) return {ResumeAnswer::kDiffers, cat(only_a + only_b, " of ", same + only_a + only_b, " are missing")};
    if (only_a > 0) return {ResumeAnswer::kOnlyFirst, cat(only_a, " tensors")};
    if (only_b > 0) return {ResumeAnswer::kOnlySecond, cat(only_b, " tensors")};
    return {ResumeAnswer::kNeither, ""};
  }

  static std::optional<int64_t> step_of(const Source& source, const std::vector<OptimizerGroup>& groups) {
    return has_optimizer(source, groups) ? groups[0].step : std::nullopt;
  }

  Finding step() { return compare(step_of(a_, groups_a_), step_of(b_, groups_b_)); }

  template <class Value>
  static Finding compare(const std::optional<Value>& a, const std::optional<Value>& b) {
    const auto text = [](const Value& value) {
      if constexpr (std::is_same_v<Value, json>) return value.dump();
      if constexpr (!std::is_same_v<Value, json>) return cat(value);
    };
    if (!a && !b) return {ResumeAnswer::kNeither, ""};
    if (!b) return {ResumeAnswer::kOnlyFirst, text(*a)};
    if (!a) return {ResumeAnswer::kOnlySecond, text(*b)};
    if (*a == *b) return {ResumeAnswer::kSame, text(*a)};
    return {ResumeAnswer::kDiffers, cat(text(*a), " and ", text(*b))};
  }

  Finding settings() {
    const bool in_a = has_optimizer(a_, groups_a_), in_b = has_optimizer(b_, groups_b_);
    if (!in_a && !in_b) return {ResumeAnswer::kNeither, ""};
    if (!in_b) return {ResumeAnswer::kOnlyFirst, settings_text(groups_a_[0])};
    if (!in_a) return {ResumeAnswer::kOnlySecond, settings_text(groups_b_[0])};
    const std::vector<std::string> differences = compare_settings(a_, groups_a_, b_, groups_b_, /*both=*/false);
    if (differences.empty()) {
      return {ResumeAnswer::kSame,
              cat(groups_a_.size(), groups_a_.size() == 1 ? " group: " : " groups: ", settings_text(groups_a_[0]))};
    }
    Sentences found;
    for (const std::string& sentence : differences) found.add(sentence);
    return {ResumeAnswer::kDiffers, found.text()};
  }

  Finding stated(const char* key) const {
    const auto of = [&](const Source& source) {
      const json value = source.info().common.value(key, json());
      return value.is_null() ? std::nullopt : std::optional(value);
    };
    return compare(of(a_), of(b_));
  }

  // 0 samples and an absent count are the same: formats that must store a count store 0.
  Finding data_position() const {
    const auto of = [](const Source& source) {
      std::optional<int64_t> samples;
      const json value = source.info().common.value("consumed_train_samples", json());
      if (value.is_number_integer() && value.get<int64_t>() != 0) samples = value.get<int64_t>();
      return samples;
    };
    Finding found = compare(of(a_), of(b_));
    if (!found.second.empty()) found.second += " samples";
    return found;
  }

  ResumeVerdict verdict() const {
    const auto is = [&](size_t kind, bool neither_counts) {
      const ResumeAnswer answer = report_.kinds[kind].answer;
      return answer == ResumeAnswer::kSame || (neither_counts && answer == ResumeAnswer::kNeither);
    };
    if (!is(0, false)) return ResumeVerdict::kOtherModel;
    if (!is(1, true) || !is(2, moments_not_needed())) return ResumeVerdict::kFreshOptimizer;
    for (size_t kind = 3; kind < report_.kinds.size(); ++kind) {
      if (!is(kind, true)) return ResumeVerdict::kOtherSettings;
    }
    return ResumeVerdict::kContinuesExactly;
  }

  Source &a_, &b_;
  std::vector<OptimizerGroup> groups_a_, groups_b_;
  ResumeReport report_;
};

}  // namespace

ResumeReport diff_resume(Source& a, Source& b) { return ResumeDiff(a, b).run(); }

std::string_view verdict_text(ResumeVerdict verdict) {
  switch (verdict) {
    case ResumeVerdict::kContinuesExactly:
      return "continues exactly";
    case ResumeVerdict::kOtherSettings:
      return "continues with other settings";
    case ResumeVerdict::kFreshOptimizer:
      return "continues with a fresh optimizer";
    case ResumeVerdict::kOtherModel:
      break;
  }
  return "is another model";
}

std::string_view answer_text(ResumeAnswer answer) {
  switch (answer) {
    case ResumeAnswer::kSame:
      return "same";
    case ResumeAnswer::kDiffers:
      return "differs";
    case ResumeAnswer::kOnlyFirst:
      return "only in the first";
    case ResumeAnswer::kOnlySecond:
      return "only in the second";
    case ResumeAnswer::kNeither:
      break;
  }
  return "in neither";
}

json to_json(const ResumeReport& report) {
  json kinds = json::array();
  for (const ResumeFinding& finding : report.kinds) {
    kinds.push_back({{"kind", finding.kind}, {"answer", answer_text(finding.answer)}, {"text", finding.text}});
  }
  return {{"verdict", verdict_text(report.verdict)}, {"kinds", std::move(kinds)}};
}

std::vector<std::string> settings_differences(const Source& a, const Source& b) {
  const std::vector<OptimizerGroup> groups_a = optimizer_groups(a), groups_b = optimizer_groups(b);
  if (!has_optimizer(a, groups_a) || !has_optimizer(b, groups_b)) return {};
  return compare_settings(a, groups_a, b, groups_b, /*both=*/true);
}

}  // namespace ms::ckpt
