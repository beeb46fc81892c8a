// What a run reads before anything is built: tokenizer, checkpoint to load, and the configuration that follows from
// both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "ckpt/source.h"
#include "train/config.h"
#include "train/data/tokenizer.h"

namespace ms::train {

// False for --skip-train and --generate.
bool trains(const TrainerConfig& config);
bool has_local_checkpoints(const TrainerConfig& config);

struct RunInputs {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ckpt::Source> source;  // null: from scratch
  std::string missing;                   // why there is no source, where there should be one
  int64_t given_vocab_size = 0;          // of a NullTokenizer: without its eod; 0 with any other
};

// Local. Resolves and validates `config`. Throws what can be wrong: kInvalidArgument and kUnsupported, naming the
// flags, and what opening the checkpoint throws.
using OpenSource = std::function<std::unique_ptr<ckpt::Source>(const std::filesystem::path& path, int64_t iteration)>;
RunInputs open_inputs(TrainerConfig& config, int world_size, const OpenSource& open_source);

}  // namespace ms::train
