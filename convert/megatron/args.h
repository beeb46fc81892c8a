// The `args` of a Megatron checkpoint: what megatron/training/arguments.py made of the command line, an
// argparse.Namespace in the file.
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
  // value: the Namespace, or a dictionary of its members; it is looked into later. where begins messages. Throws
  // kCorruptData for something else.
  MegatronArgs(PickleValue value, std::string where);

  // Nothing for a member that is absent or None; the others throw kCorruptData for a value of another kind.
  std::optional<PickleValue> find(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> real(std::string_view name) const;  // an integer is one too
  std::optional<std::string> text(std::string_view name) const;
  bool flag(std::string_view name) const;    // false: absent, None or False
  bool is_set(std::string_view name) const;  // neither absent, None, False, 0 nor empty
  // A number from 1 to 2^20, 1 for nothing: a parallel size.
  int size(std::string_view name) const;

  const std::string& where() const { return where_; }
  const std::map<std::string, PickleValue, std::less<>>& members() const { return members_; }

 private:
  [[noreturn]] void refuse(std::string_view name, const char* expected) const;

  std::map<std::string, PickleValue, std::less<>> members_;
  std::string where_;
};

// The model, but for its vocabulary: vocab_size is 1. Members that TransformerConfig has by the same name mean the
// same; what is spelled otherwise (layernorm_epsilon, use_rope_scaling, ..) is translated. Throws kUnsupported for a
// model that TransformerConfig cannot say (experts, latent attention, ..), kCorruptData for one that cannot be.
// noop_layers: which of args.num_layers are none (layer_map.h).
core::TransformerConfig megatron_model(const MegatronArgs& args, std::span<const int64_t> noop_layers = {});

// noop_layers, in any of the forms that MindSpeed-LLM stores, and schedules_method. Throws kCorruptData, kUnsupported.
PipelineExtras pipeline_extras(const MegatronArgs& args);

// Throws kUnsupported for a model with experts, latent attention or multi-token prediction. where begins the message;
// what: "such checkpoints are read, but not written yet".
void require_dense_model(const core::TransformerConfig& model, std::string_view where, std::string_view what);

// What of the model neither Megatron nor MindSpeed-LLM has a flag for, by our fields' names: "residual_multiplier 0.22,
// pre_norm off". Empty: args say the model.
std::string megatron_cannot_say(const core::TransformerConfig& model);

// The value of a member that is written; SafetensorsDType is torch.bfloat16 and the like.
using MegatronArg =
    std::variant<std::monostate, bool, int64_t, double, std::string, SafetensorsDType, std::vector<int64_t>>;
using MegatronArgList = std::vector<std::pair<std::string, MegatronArg>>;

// --mg-args: as what args are written. PyTorch's weights_only loader takes a Namespace only if it is told to.
enum class MegatronArgsForm : uint8_t { kNamespace, kDict, kOmit };

// The inverse of megatron_model: members that say this model, and those that Megatron's loaders ask for besides, None
// where the model has nothing to say. model: resolved.
MegatronArgList megatron_args(const core::TransformerConfig& model);

// True if Megatron itself, which knows of two kinds of scaled rotary embeddings, computes what the model says.
bool megatron_knows_rope_scaling(const core::TransformerConfig& model);

// Of a vocabulary stored as padded_rows rows: how many are true. asked: --true-vocab-size, 0 for none. Else
// args.vocab_size, if the padding that is left is less than args.make_vocab_size_divisible_by x tp; else all rows.
// Appends to `decisions` that rows are padding, or that nothing fit says which are. Throws kInvalidArgument if more are
// asked for than are there.
int64_t true_vocab_size(const MegatronArgs& args, int64_t asked, int64_t padded_rows, int tp,
                        std::vector<std::string>& decisions);

}  // namespace ms::convert
