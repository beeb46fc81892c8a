// Reads and writes the `args` of a Megatron checkpoint: the argparse.Namespace that megatron/training/arguments.py
// makes of the command line.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "convert/megatron/layer_map.h"
#include "convert/safetensors.h"
#include "convert/torch/pickle.h"
#include "core/transformer_config.h"

namespace ms::convert {

class MegatronArgs {
 public:
  // value: the Namespace, or a dictionary of its members; members are checked when they are read. where is prepended to
  // messages. Throws kCorruptData for any other value.
  MegatronArgs(PickleValue value, std::string where);

  // These return nullopt if the member is absent or None, and throw kCorruptData if its value is of another kind.
  std::optional<PickleValue> find(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> real(std::string_view name) const;  // accepts integers too
  std::optional<std::string> text(std::string_view name) const;
  bool flag(std::string_view name) const;    // false: absent, None or False
  bool is_set(std::string_view name) const;  // not absent, None, False, 0 or empty
  // A parallel size: a number from 1 to 2^20; 1 if absent.
  int size(std::string_view name) const;

  const std::string& where() const { return where_; }
  const std::map<std::string, PickleValue, std::less<>>& members() const { return members_; }

 private:
  [[noreturn]] void refuse(std::string_view name, const char* expected) const;

  std::map<std::string, PickleValue, std::less<>> members_;
  std::string where_;
};

// Returns the model, without its vocabulary: vocab_size is 1. Members that have the same name in TransformerConfig mean
// the same; others (layernorm_epsilon, use_rope_scaling, ..) are translated. Throws kUnsupported for a model that
// TransformerConfig cannot express (experts, latent attention, ..), kCorruptData for contradictory args. noop_layers:
// which of args.num_layers are no-op layers (layer_map.h).
core::TransformerConfig megatron_model(const MegatronArgs& args, std::span<const int64_t> noop_layers = {});

// Returns noop_layers, in any of the forms that MindSpeed-LLM stores, and schedules_method. Throws kCorruptData,
// kUnsupported.
PipelineExtras pipeline_extras(const MegatronArgs& args);

// Throws kUnsupported for a model with experts, latent attention or multi-token prediction. where is prepended to the
// message; what: "such checkpoints are read, but not written yet".
void require_dense_model(const core::TransformerConfig& model, std::string_view where, std::string_view what);

// Lists what neither Megatron nor MindSpeed-LLM has a flag for, by TransformerConfig's field names:
// "residual_multiplier 0.22, pre_norm off". Empty if args can express the model.
std::string megatron_cannot_express(const core::TransformerConfig& model);

// The value of an args member to write; SafetensorsDType is written as torch.bfloat16 and the like.
using MegatronArg =
    std::variant<std::monostate, bool, int64_t, double, std::string, SafetensorsDType, std::vector<int64_t>>;
using MegatronArgList = std::vector<std::pair<std::string, MegatronArg>>;

// --mg-args: the form in which args are written. PyTorch's weights_only loader accepts a Namespace only if it is
// allowed explicitly.
enum class MegatronArgsForm : uint8_t { kNamespace, kDict, kOmit };

// The inverse of megatron_model: members that describe this model, and others that Megatron's loaders require, which
// are None where the model has no value for them. model: resolved.
MegatronArgList megatron_args(const core::TransformerConfig& model);

// Returns true if Megatron itself, which has two kinds of RoPE scaling, computes this model's scaling.
bool megatron_supports_rope_scaling(const core::TransformerConfig& model);

// Returns how many of a vocabulary's padded_rows stored rows are real tokens. asked: --true-vocab-size, 0 if not given.
// Without it: args.vocab_size, if that leaves fewer padding rows than args.make_vocab_size_divisible_by x tp; else all
// rows. Appends to `decisions` that rows are padding, or that no plausible size is known. Throws kInvalidArgument if
// `asked` exceeds padded_rows.
int64_t true_vocab_size(const MegatronArgs& args, int64_t asked, int64_t padded_rows, int tp,
                        std::vector<std::string>& decisions);

}  // namespace ms::convert
