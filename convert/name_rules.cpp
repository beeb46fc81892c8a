#include "convert/name_rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

// std::regex recurses once per character.
constexpr size_t kMaxNameBytes = 1024;

std::regex expression(const std::string& text, const char* flag) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(flag, " ", printable(text), ": not a regular expression: ", error.what()));
  }
}

struct Rule {
  std::string text;
  std::regex match;
  std::string replacement;  // of --rename
  int64_t uses = 0;
};

class Rules {
 public:
  explicit Rules(const NameRules& rules) {
    for (const std::string& text : rules.rename) {
      const size_t equals = text.rfind('=');
      if (equals == std::string::npos || equals == 0) {
        throw Error(ErrorCode::kInvalidArgument, cat("--rename ", printable(text), ": expected REGEX=TEMPLATE"));
      }
      rename_.push_back({text, expression(text.substr(0, equals), "--rename"), text.substr(equals + 1)});
    }
    for (const std::string& text : rules.include) include_.push_back({text, expression(text, "--include"), ""});
    for (const std::string& text : rules.exclude) exclude_.push_back({text, expression(text, "--exclude"), ""});
  }

  // Returns nullopt if the name is left out.
  std::optional<std::string> operator()(const std::string& name) {
    if (name.size() > kMaxNameBytes) {
      throw Error(ErrorCode::kUnsupported, cat("--rename, --include, --exclude: the name ", printable(name), " has ",
                                               name.size(), " bytes; at most ", kMaxNameBytes, " are supported"));
    }
    const auto finds = [&](Rule& rule) {
      const bool found = std::regex_search(name, rule.match);
      rule.uses += found;
      return found;
    };
    if (!include_.empty() && std::count_if(include_.begin(), include_.end(), finds) == 0) return std::nullopt;
    if (std::count_if(exclude_.begin(), exclude_.end(), finds) > 0) return std::nullopt;
    std::string renamed = name;
    for (Rule& rule : rename_) {
      if (!std::regex_search(renamed, rule.match)) continue;
      ++rule.uses;
      renamed = std::regex_replace(renamed, rule.match, rule.replacement);
      if (renamed.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    cat("--rename ", printable(rule.text), ": makes an empty name from ", printable(name)));
      }
      if (renamed.size() > kMaxNameBytes) {
        throw Error(ErrorCode::kUnsupported, cat("--rename ", printable(rule.text), ": the name ", printable(name),
                                                 " becomes longer than ", kMaxNameBytes, " bytes"));
      }
    }
    return renamed;
  }

  void say_without_effect(std::vector<std::string>& decisions) const {
    const auto say = [&](const std::vector<Rule>& rules, const char* flag) {
      for (const Rule& rule : rules) {
        if (rule.uses == 0) decisions.push_back(cat(flag, " ", printable(rule.text), " matches no name"));
      }
    };
    say(rename_, "--rename");
    say(include_, "--include");
    say(exclude_, "--exclude");
  }

 private:
  std::vector<Rule> rename_, include_, exclude_;
};

class RenamedSource final : public ckpt::Source {
 public:
  RenamedSource(std::unique_ptr<ckpt::Source> source, const NameRules& asked, std::vector<std::string>& decisions)
      : source_(std::move(source)) {
    if (source_->info().has_model) {
      throw Error(ErrorCode::kUnsupported,
                  "--rename, --include and --exclude need tensors under their own names; give --as-named");
    }
    Rules rules(asked);
    const ckpt::ShardTable& from = source_->shards();
    std::vector<std::optional<std::string>> names(from.num_tensors());
    std::map<std::pair<TensorRole, std::string>, size_t> taken;
    int64_t renamed = 0, dropped = 0;
    for (size_t t = 0; t < names.size(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const std::string key(from.key(tensor));
      names[t] = name_of(rules, key, from.role(tensor));
      if (!names[t]) {
        ++dropped;
        continue;
      }
      renamed += *names[t] != key;
      const auto [at, is_new] = taken.emplace(std::pair(from.role(tensor), *names[t]), t);
      if (is_new) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--rename: ", printable(from.key(static_cast<int32_t>(at->second))), " and ", printable(key),
                      " would both be named ", printable(*names[t])));
    }
    if (taken.empty()) throw Error(ErrorCode::kInvalidArgument, "--include, --exclude: no tensor is left");
    for (size_t i = 0; i < from.size(); ++i) {
      const auto& name = names[static_cast<size_t>(from.tensor_of(i))];
      if (!name) continue;
      core::ShardedTensor shard = from[i];
      shard.key = *name;
      table_.push_back(shard);
      of_source_.push_back(static_cast<int32_t>(i));
    }
    if (renamed > 0) decisions.push_back(cat(renamed, " tensors are renamed"));
    if (dropped > 0) decisions.push_back(cat(dropped, " tensors are left out by --include and --exclude"));
    rules.say_without_effect(decisions);
  }

  const ckpt::CheckpointInfo& info() const override { return source_->info(); }
  const ckpt::ShardTable& shards() const override { return table_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(of_source_.at(static_cast<size_t>(shard)), offset, extent, out);
  }
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset) override {
    source_->read_into(of_source_.at(static_cast<size_t>(shard)), offset, extent, out, out_shape, out_offset);
  }
  bool expect_stream(int64_t cache_bytes, int threads) override { return source_->expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { source_->begin_one_pass(); }
  void end_one_pass(bool all) override { source_->end_one_pass(all); }
  int64_t scratch_bytes() const override { return source_->scratch_bytes(); }
  std::string describe(int32_t shard) const override {
    return source_->describe(of_source_.at(static_cast<size_t>(shard)));
  }

 private:
  // For "optim.state.NAME.step" the rules apply to NAME.
  static std::optional<std::string> name_of(Rules& rules, const std::string& key, TensorRole role) {
    constexpr std::string_view kState = "optim.state.";
    const size_t dot = key.rfind('.');
    if (role != TensorRole::kBuffer || !key.starts_with(kState) || dot < kState.size()) return rules(key);
    const auto name = rules(key.substr(kState.size(), dot - kState.size()));
    return name ? std::optional(cat(kState, *name, key.substr(dot))) : std::nullopt;
  }

  std::unique_ptr<ckpt::Source> source_;
  ckpt::ShardTable table_;
  std::vector<int32_t> of_source_;  // of table_
};

}  // namespace

std::unique_ptr<ckpt::Source> with_names(std::unique_ptr<ckpt::Source> source, const NameRules& rules,
                                         std::vector<std::string>& decisions) {
  if (rules.empty()) return source;
  return std::make_unique<RenamedSource>(std::move(source), rules, decisions);
}

}  // namespace ms::convert
