#include "train/loop/run_inputs.h"

#include "ckpt/recording.h"
#include "core/error.h"
#include "core/log.h"
#include "train/group_ranking.h"
#include "train/loop/same_model.h"

namespace ms::train {
namespace {

using core::cat;

void open_checkpoint(const TrainerConfig& config, const OpenSource& open_source, RunInputs& inputs) {
  try {
    inputs.source = open_source(config.checkpoint.load, config.checkpoint.ckpt_step);
    if (ckpt::is_recording(inputs.source->info())) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        cat("--load ", config.checkpoint.load,
                            ": it holds what modules computed (--save-tensors), and is no checkpoint"));
    }
  } catch (const core::Error& e) {
    // As Megatron: an empty --load folder starts from scratch, so that one command line serves every start of a job.
    const bool optional = e.code() == core::ErrorCode::kNotFound &&
                          (!config.checkpoint.exit_on_missing_checkpoint || has_local_checkpoints(config)) &&
                          config.checkpoint.ckpt_step == 0 && trains(config) &&
                          !config.checkpoint.use_checkpoint_args && !config.checkpoint.finetune;
    if (!optional) throw;
    inputs.missing = e.what();
  }
}

}  // namespace

bool trains(const TrainerConfig& config) { return !config.training.skip_train && config.generate.generate.empty(); }

bool has_local_checkpoints(const TrainerConfig& config) {
  return trains(config) && !config.checkpoint.non_persistent_ckpt_type.empty();
}

RunInputs open_inputs(TrainerConfig& config, int world_size, const OpenSource& open_source) {
  RunInputs inputs;
  config.data.validate();
  core::TransformerConfig& model = config.model;
  const TokenizerChoice choice = config.data.tokenizer(model.vocab_size);
  inputs.tokenizer = make_tokenizer(choice);
  const Tokenizer& tokenizer = *inputs.tokenizer;
  const bool by_eod = !masks_documents_of_data(config);
  for (const auto& [given, flag] : {std::pair{config.data.eod_mask_loss, "--eod-mask-loss"},
                                    std::pair{by_eod && config.training.reset_attention_mask, "--reset-attention-mask"},
                                    std::pair{by_eod && config.training.reset_position_ids, "--reset-position-ids"}}) {
    if (given) require_eod(tokenizer, choice, flag);
  }
  if (!config.checkpoint.load.empty()) {
    open_checkpoint(config, open_source, inputs);
  } else if (!config.generate.generate.empty()) {
    core::log_warning("train.generate",
                      "--generate without --load: the weights are random, and so is the text. Give the folder of a "
                      "checkpoint or of a Hugging Face model with --load");
  }
  // The --vocab-size of a NullTokenizer is without its eod, which the model knows too.
  if (choice.tokenizer_type == "NullTokenizer") {
    model.vocab_size = tokenizer.vocab_size();
    inputs.given_vocab_size = choice.vocab_size;
  }
  if (model.vocab_size == 0) model.vocab_size = tokenizer.vocab_size();
  if (model.vocab_size < tokenizer.vocab_size()) {
    const std::string seen =
        cat("--vocab-size ", model.vocab_size, " is below the tokenizer's ", tokenizer.vocab_size());
    if (!config.generate.generate.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, seen);
    // A data set may come from elsewhere (a model of 128 ids has no tokenizer of ours): its ids are checked as read.
    core::log_warning("train.data", cat(seen, "; a data set that holds larger ids will be refused"));
  }
  if (inputs.source != nullptr && model.max_position_embeddings == 0 && model.frequencies_follow_max_position()) {
    model.max_position_embeddings = inputs.source->info().model.max_position_embeddings;  // not --seq-length
  }
  config.resolve_and_validate(world_size);
  if (!config.training.gradient_accumulation_fusion) {
    core::log_info("train.config",
                   cat("--no-gradient-accumulation-fusion: gradients of linear layers are rounded to ",
                       core::dtype_name(config.params_dtype()),
                       " in each micro-batch, as in Megatron. Without this flag they are fp32 sums, and steps faster"));
  }
  if (inputs.source != nullptr) {
    check_same_model(inputs.source->info().model, config.model);
    check_group_ranking(inputs.source->info(), config);
  }
  return inputs;
}

}  // namespace ms::train
