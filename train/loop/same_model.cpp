#include "train/loop/same_model.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"

namespace ms::train {

using core::cat;

void check_same_model(const core::TransformerConfig& saved, const core::TransformerConfig& wanted) {
  if (saved.has_experts() != wanted.has_experts()) {
    const auto number = [](const core::TransformerConfig& model) {
      return model.has_experts() ? model.num_experts : 0;
    };
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("--num-experts is ", number(wanted), " but the checkpoint has ", number(saved),
                          " experts. Give the model of the checkpoint, or --use-checkpoint-args"));
  }
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    const std::string_view field = name;
    for (const char* free : {"make_vocab_size_divisible_by", "init_method_std", "group_query_attention",
                             "num_query_groups", "hidden_dropout", "attention_dropout"}) {
      if (field == free) return;
    }
    // With learned positions it is the size of a weight.
    if (field == "max_position_embeddings" && !wanted.has_learned_positions() &&
        !wanted.frequencies_follow_max_position()) {
      return;
    }
    // Once both were kept; the latter includes the former.
    if (field == "add_qkv_bias" && saved.add_bias_linear && wanted.add_bias_linear) return;
    if (saved.*member == wanted.*member) return;
    if (field == "mtp_num_layers") {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        cat("the checkpoint has ", saved.mtp_num_layers,
                            " layers of multi-token prediction, which cannot be added or left out yet: give "
                            "--mtp-num-layers ",
                            saved.mtp_num_layers));
    }
    std::string flag(field);
    std::replace(flag.begin(), flag.end(), '_', '-');
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("--", flag, " is ", wanted.*member, " but the checkpoint was made with ", saved.*member,
                          ". Give the same, or --use-checkpoint-args"));
  });
  if (saved.query_groups() != wanted.query_groups()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("--num-query-groups is ", wanted.query_groups(), " but the checkpoint was made with ",
                          saved.query_groups(), ". Give the same, or --use-checkpoint-args"));
  }
}

}  // namespace ms::train
